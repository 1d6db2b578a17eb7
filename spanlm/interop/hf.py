"""Trained models as models of Hugging Face's `transformers` (extra `hf`).

Importing this module registers its `CLASSES`; `to_hf` has an example.
The model wraps `LanguageModel`, so that every encoder, memory and head works. Tensors are batch-first here:

    input_ids, attention_mask, labels (B, N) → loss, logits (B, N, V), hidden_states, attentions ((B, 1, N, L),), state

`logits` are log p(next word), normalised, natural logarithm. `state` (`LMState`) holds the streams' context: pass it in
with the following words. Padding on either side changes no number and costs no time: time is cut where rows begin and
end, and each piece is read only for the rows that have words in it.

A run reads lines, each opened and closed by <eos>, which is the tokenizer's `bos_token`, `eos_token` and `pad_token`.
The tokenizer puts <eos> before each text, from which its first word is predicted (not of a run that only read first
words, training.batching.predict_first=false), and writes <eos> for each line end within the text.
add_special_tokens=False leaves the first one out, as for words that continue a text.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from spanlm.config import RunConfig
from spanlm.data.config import TokenizerName, is_exact
from spanlm.data.subwords import SPACE
from spanlm.data.tokenizer import OTHER_SPACE, UNSEEN
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError, RunError, installation, require
from spanlm.models.interfaces import LMState, Readout
from spanlm.models.language_model import LanguageModel, to_be_filled
from spanlm.runs.model import Model, TrainedModel
from spanlm.scoring.attention import attention_of, check_attends
from spanlm.store.files import new_folder
from spanlm.training.card import CARD, run_card

try:
    import transformers as transformers  # re-exported for `yardstick`, which needs the classes below
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
    from tokenizers.models import BPE, WordLevel
except ImportError:
    raise InputError(f"Hugging Face needs more: {installation('hf')}") from None

# \w and the letters of `spanlm.data.tokenizer`, in the syntax of `tokenizers`
_LETTER = r"[\p{L}\p{N}\p{M}_\u200c\u200d]"
_WORDS = rf"{UNK}|(?:[\p{{L}}\p{{Nl}}\p{{No}}]\.){{2,}}(?!{_LETTER})|{_LETTER}+(?:['’.,\-]{_LETTER}+)*|[^ \t\n\r\v\f]"
_CASED, _PASSED_OVER = r"[\p{Lu}\p{Ll}\p{Lt}]", r"[\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}'’.·:]*"
_LAST_SIGMA = rf"{_CASED}{_PASSED_OVER}\KΣ(?!{_PASSED_OVER}{_CASED})"  # Unicode's condition Final_Sigma

IGNORED = -100
"""Label of positions that the loss ignores."""

MODELING = "modeling_spanlm.py"
"""File of an exported folder that imports the installed package, for `trust_remote_code`; it defines no model."""

SCORE_DEVIATION = 0.02
"""Standard deviation of the first weights of a classifier, the usual one of `transformers`."""


class _Imported:
    """What saved folders find by MODELING, so that `transformers` copies no code into them."""

    @classmethod
    def register_for_auto_class(cls, auto_class: str | None = None) -> None:
        """Change nothing."""


class SpanlmConfig(_Imported, transformers.PreTrainedConfig):  # type: ignore[misc]
    """The configuration of an exported model.

    Attributes:
        run: `model` as in a run's config.yaml; `tokenizer` and `lines` of its text; `predict_first`.
    """

    model_type = "spanlm"
    is_stateful = True
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["state"]  # a `Trainer` would concatenate it as a tensor

    run: dict[str, Any] | None = None
    vocab_size: int = 2
    hidden_size: int = 1
    num_hidden_layers: int = 1
    num_attention_heads: int = 1
    tie_word_embeddings: bool = False
    use_cache: bool = True


@dataclass
class SpanlmOutput(transformers.utils.ModelOutput):  # type: ignore[misc]
    """The output of the model for words (B, N).

    Attributes:
        loss: mean −log p of the labels, nats, each predicted at the position before it; labels at padding, or after
            padding, are left out.
        logits: (B, N, V) log p(next word); 0 at padding.
        state: after the last word of each row.
        attentions: one tensor (B, 1, N, L); column j is lag L − 1 − j + `nearest_lag`, in words; 0 at padding.
        hidden_states: the embedded words (B, N, E), the encoder's output (B, N, H), and the readout (B, N, D), each
            0 at padding.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    state: LMState | None = None
    attentions: tuple[Tensor, ...] | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class SpanlmPreTrainedModel(_Imported, transformers.PreTrainedModel):  # type: ignore[misc]
    """The network of a run, and how it reads rows of words by a mask.

    Raises:
        InputError: the configuration has no model, or one unknown to this version.
    """

    config_class: type[SpanlmConfig] = SpanlmConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"

    def save_pretrained(self, save_directory: str | Path, *arguments: Any, **more: Any) -> None:
        """Save as `transformers` does, with MODELING, by which trust_remote_code=True finds the classes."""
        names = {auto: kind.__name__ for auto, kind in CLASSES.items()}
        self.config.auto_map = {auto: f"{MODELING[:-3]}.{name}" for auto, name in names.items()}
        super().save_pretrained(save_directory, *arguments, **more)
        imported = f"from spanlm.interop.hf import {', '.join(names.values())}  # noqa: F401\n"
        (Path(save_directory) / MODELING).write_text(imported)

    def __init__(self, config: SpanlmConfig) -> None:
        super().__init__(config)
        if config.run is None:
            raise InputError("config.json has no `run`: export a run by `spanlm export RUN --to hf --out DIR`")
        model = RunConfig.from_tree({"model": config.run["model"]}, "config.json, run").model
        self.model: LanguageModel = to_be_filled(model, config.vocab_size)
        self.fixed: set[str] = {name for name, parameter in self.named_parameters() if not parameter.requires_grad}
        words = "model.embedding.weight"
        parameters = self.named_parameters(remove_duplicate=False)
        tied = [name for name, value in parameters if value is self.model.embedding.weight and name != words]
        self._tied_weights_keys = dict.fromkeys(tied, words)
        config.tie_word_embeddings = bool(tied)

    def _init_weights(self, module: torch.nn.Module) -> None:
        pass  # `LanguageModel` has drawn the weights

    @classmethod
    def from_pretrained(cls, *arguments: Any, **more: Any) -> Any:
        """Load as `transformers` does, and copy each weight.

        Weights mapped from a file lie at odd addresses, and the last bits of a product depend on the addresses of its
        factors. Weights that training keeps fixed (torch's second bias of an LSTM) stay fixed here.
        """
        loaded = super().from_pretrained(*arguments, **more)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        for name, parameter in model.named_parameters():
            parameter.data = parameter.data.clone()
            parameter.requires_grad_(name not in model.fixed)
        return loaded

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.model.embedding

    def set_input_embeddings(self, value: torch.nn.Module) -> None:
        raise InputError("the vocabulary of a trained model cannot be changed; train one with the words that you need")

    def _read(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        state: LMState | None,
        values: Callable[[Tensor, Readout], list[Tensor]],
    ) -> tuple[list[Tensor], Tensor, LMState]:
        """Read words (B, N) after `state`, or from the beginning; return values, mask (B, N) and state.

        `values` gives those of words (T, n) and their readout, (T, n, …) each; they are returned as (B, N, …).
        """
        shape = input_ids.shape
        require(len(shape) == 2 and min(shape) > 0, "input_ids", tuple(shape), "rows of one word or more, as <eos>")
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        mask = mask.bool() if state is None else mask.bool()[..., -shape[1] :]
        _require_shape("attention_mask", mask, input_ids)
        if self.dtype not in (torch.float32, torch.float64):
            name = str(self.dtype).removeprefix("torch.")
            way = f"load without dtype, and use torch.autocast for products in {name}"
            raise InputError("dtype", name, f"states and sums need float32 weights; {way}")
        state = self.model.init_state(len(input_ids)) if state is None else state
        if _streams(state) != len(input_ids):
            raise InputError("state", limit=f"is of {_streams(state)} rows, and input_ids has {len(input_ids)}")
        read: list[list[Tensor]] = []
        for rows, columns in _rectangles(mask):
            some = rows if len(rows) else rows.new_zeros(1)  # only padding here: read a row for the shapes
            tokens = input_ids[some, columns].T
            readout, after = self._advance(tokens, state, some)
            state = after if len(rows) else state
            pieces = values(tokens, readout)
            read.append([_on_rows(x[:, : len(rows)].transpose(0, 1), rows, len(input_ids)) for x in pieces])
        return [*map(_aligned, zip(*read, strict=True))], mask, state

    def _advance(self, tokens: Tensor, state: LMState, rows: Tensor) -> tuple[Readout, LMState]:
        """Read words (T, n) of n of the B rows; return their readout, and the state of all rows."""
        others = torch.tensor(sorted({*range(_streams(state))} - {*rows.tolist()}), device=rows.device).long()
        readout, after = self.model(tokens, state.select(rows) if len(others) else state)
        if len(others):
            after = LMState.beside([state.select(others), after]).select(torch.cat([others, rows]).argsort())
        return readout, after


class SpanlmForSequenceClassification(SpanlmPreTrainedModel):
    """A classifier of texts: a linear layer on the network's readout at the last word of each row.

    The layer is drawn if the folder is that of a language model. Labels and losses are those of `transformers`
    (`num_labels`, `problem_type`). Padding on either side changes nothing; it is known by the mask alone, since <eos>
    is also a word.
    """

    def __init__(self, config: SpanlmConfig) -> None:
        super().__init__(config)
        self.score: torch.nn.Linear = torch.nn.Linear(self.model.memory.readout_size, config.num_labels, bias=False)
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        if module is self.score:
            torch.nn.init.normal_(module.weight, std=SCORE_DEVIATION)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
    ) -> transformers.modeling_outputs.SequenceClassifierOutput | tuple[Any, ...]:
        """Return the logits (B, C) of words (B, N), and the loss of their labels; InputError: as the language model."""
        (features,), mask, _ = self._read(input_ids, attention_mask, None, lambda _, readout: [readout.features])
        last = mask.long().cumsum(1).argmax(1)
        logits = self.score(features[torch.arange(len(last), device=last.device), last])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, pooled_logits=logits, config=self.config)
        output = transformers.modeling_outputs.SequenceClassifierOutput(loss=loss, logits=logits)
        return output if return_dict is not False else output.to_tuple()


class SpanlmForCausalLM(SpanlmPreTrainedModel, transformers.GenerationMixin):  # type: ignore[misc]
    """A recurrent language model of spanlm."""

    _is_stateful = True

    def __init__(self, config: SpanlmConfig) -> None:
        super().__init__(config)
        self.post_init()

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        state: LMState | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> SpanlmOutput | tuple[Any, ...]:
        """Read words (B, N) after `state`, or from the beginning; see `SpanlmOutput`.

        A mask may be longer, with the words before `state` first. Words masked between others are not read.

        Raises:
            InputError: no words; a mask, labels or a state of another shape; weights of half precision; or
                `output_attentions` for a model without attention.
        """
        if labels is not None:
            _require_shape("labels", labels, input_ids)
        looks = bool(self.config.output_attentions if output_attentions is None else output_attentions)
        hidden = bool(self.config.output_hidden_states if output_hidden_states is None else output_hidden_states)

        def values(tokens: Tensor, readout: Readout) -> list[Any]:
            wanted: list[Any] = [self.model.head.log_probs(readout)]
            wanted += [self.model.embedding(tokens), readout.hidden, readout.features] if hidden else []
            return [*wanted, attention_of(readout).by_lag()] if looks else wanted

        (logits, *more), mask, after = self._read(input_ids, attention_mask, state, values)
        output = SpanlmOutput(
            loss=None if labels is None else _loss(logits, labels, mask),
            logits=logits,
            state=None if use_cache is False else after,
            attentions=(more.pop().unsqueeze(1),) if looks else None,
            hidden_states=tuple(more) if hidden else None,
        )
        return output if return_dict is not False else output.to_tuple()

    @property
    def nearest_lag(self) -> int:
        """Lag of the last column of `attentions`, in words; 0 is the word just read."""
        return check_attends(self.model).nearest_lag

    def square_attentions(self, attentions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return weights (B, 1, N, L) by lag as (B, 1, N, N) by word, for BertViz; words before the first are left out.

        Row n is the last word read, column m the attended word.
        """
        squares, nearest = [], self.nearest_lag
        for weights in attentions:
            count, window = weights.shape[-2:]
            square = weights.new_zeros(*weights.shape[:-1], count)
            for column in range(window):
                lag = window - 1 - column + nearest
                if lag < count:
                    square.diagonal(-lag, -2, -1).copy_(weights[..., lag:, column])
            squares.append(square)
        return tuple(squares)

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        state: LMState | None = None,
        next_sequence_length: int | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        if next_sequence_length is not None:
            input_ids = input_ids[:, -next_sequence_length:]
        if attention_mask is not None:
            attention_mask = attention_mask[:, -input_ids.shape[1] :]
            if not bool(attention_mask[:, -1].all()):  # padding goes before the words: what comes is after the last
                order = attention_mask.long().argsort(dim=1, stable=True)
                input_ids, attention_mask = input_ids.gather(1, order), attention_mask.gather(1, order)
        flags = {name: more.get(name) for name in ("use_cache", "output_attentions", "output_hidden_states")}
        return {"input_ids": input_ids, "attention_mask": attention_mask, "state": state, **flags}

    def _update_model_kwargs_for_generation(
        self, outputs: SpanlmOutput, model_kwargs: dict[str, Any], *arguments: Any, **more: Any
    ) -> dict[str, Any]:
        changed: dict[str, Any] = super()._update_model_kwargs_for_generation(outputs, model_kwargs, *arguments, **more)
        return changed if outputs.state is None else {**changed, "state": outputs.state}

    def _expand_inputs_for_generation(self, expand_size: int = 1, **inputs: Any) -> Any:
        """Repeat each row, and its state, for its beams or samples."""
        if inputs.get("state") is not None:
            inputs["state"] = inputs["state"].map(lambda x: x.repeat_interleave(expand_size, dim=1))
        return super()._expand_inputs_for_generation(expand_size=expand_size, **inputs)

    def _get_stopping_criteria(
        self, generation_config: Any, stopping_criteria: Any, tokenizer: Any = None
    ) -> transformers.StoppingCriteriaList:
        """End rows at `stop_strings` of the decoded text, since the library's criterion expects sub-words."""
        config, criteria = copy(generation_config), list(stopping_criteria or ())
        if config.stop_strings and tokenizer is not None:
            criteria.append(_StopStrings(config.stop_strings, tokenizer))
            config.stop_strings = None
        return super()._get_stopping_criteria(config, transformers.StoppingCriteriaList(criteria), tokenizer=tokenizer)

    @staticmethod
    def _reorder_cache(state: LMState, beams: Tensor) -> LMState:
        return state.select(beams)


class _StopStrings(transformers.StoppingCriteria):  # type: ignore[misc]
    """Ends the rows whose decoded text contains a stop string that ends within the last word."""

    def __init__(self, strings: str | list[str], tokenizer: transformers.PreTrainedTokenizerFast) -> None:
        self.strings, self.decode = [strings] if isinstance(strings, str) else strings, tokenizer.decode

    def __call__(self, input_ids: Tensor, scores: object, **more: object) -> Tensor:
        ends = [any(self._ends(row, string) for string in self.strings) for row in input_ids]
        return torch.tensor(ends, device=input_ids.device)

    def _ends(self, row: Tensor, string: str) -> bool:
        # every token has at least one byte, and a letter at most four
        text, last = self.decode(row[-4 * len(string) - 4 :]), self.decode(row[-1:])
        return string in text[-len(last) - len(string) + 1 :]


def to_hf(trained: Model) -> tuple[SpanlmForCausalLM, transformers.PreTrainedTokenizerFast]:
    """Return a trained model and its tokenizer as classes of `transformers`; the weights are copied.

    Raises:
        InputError: an ensemble, an n-gram model, or a lesion that weights cannot express (`uniform`, `none`).

    Example:
        >>> model, tokenizer = spanlm.to_hf(spanlm.load("runs/demo"))
        >>> model(**tokenizer("the name is bound", return_tensors="pt")).logits.shape[:2]  # rows, words and <eos>
        torch.Size([1, 5])
    """
    require(isinstance(trained, Model), "trained", trained, "a loaded model, of spanlm.load")
    if not isinstance(trained, TrainedModel):
        raise InputError(f"{trained.folder}: only a single recurrent model can be exported; name one run")
    if trained.attention in ("uniform", "none"):
        lesion = f"attention={trained.attention}: {trained.folder}"
        raise InputError(f"{lesion}: weights alone do not say so, and no more is exported. Export the run as trained.")
    config, model = trained.config, trained.model
    run = {
        "model": asdict(model.config),
        "tokenizer": config.data.effective_tokenizer,
        "lines": config.data.lines,
        "predict_first": (opened := config.training.batching.predict_first),
    }
    special = {f"{name}_token_id": trained.vocabulary.eos_id for name in ("bos", "eos", "pad")}
    sizes = {
        "vocab_size": len(trained.vocabulary),
        "hidden_size": model.encoder.output_size,
        "num_hidden_layers": getattr(config.model.encoder, "layers", 1),
    }
    wrapped = SpanlmForCausalLM(SpanlmConfig(run=run, architectures=[SpanlmForCausalLM.__name__], **sizes, **special))
    wrapped.model.load_state_dict(model.state_dict())
    tokenizer = tokenizer_of(trained.vocabulary, config.data.effective_tokenizer, opened=opened)
    return wrapped.to(model.device).eval(), tokenizer


def export(trained: Model, folder: Path) -> None:
    """Write a folder for `from_pretrained` of `transformers`; see `to_hf`.

    To load it, import spanlm.interop.hf before, or set trust_remote_code=True, which runs the one line of MODELING.

    Raises:
        InputError: as `to_hf`; the folder exists and is not empty.
        RunError: the folder cannot be written; nothing is left of it.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: is there and not empty; name a new folder")
    model, tokenizer = to_hf(trained)
    opened = trained.config.training.batching.predict_first
    card = run_card(trained.folder, trained.config, len(trained.vocabulary), model.model.config, opened=opened)
    try:
        with new_folder(folder) as new, quiet():
            model.save_pretrained(new)
            # safetensors makes the file readable for its owner alone
            shutil.copymode(new / "config.json", new / "model.safetensors")
            tokenizer.save_pretrained(new)
            (new / CARD).write_text(card.text, encoding="utf-8")
    except Exception as error:  # `tokenizers` raises nothing narrower
        raise RunError(f"{folder}: cannot be written: {error}. Make room, or choose another folder.") from error


def _of_subwords(vocabulary: Vocabulary, tokenizer: TokenizerName) -> Tokenizer:
    if vocabulary.pieces:
        return Tokenizer.from_str(vocabulary.pieces)
    ids = {word: id for id, word in enumerate(vocabulary.words)}
    if tokenizer == "bytes":
        fast = Tokenizer(BPE(ids, []))
        fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        fast.decoder = decoders.ByteLevel()
    else:
        ids[" "] = ids.pop(SPACE)
        fast = Tokenizer(BPE(ids, [], byte_fallback=True))
        fast.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    fast.normalizer = normalizers.Replace("\n", EOS)
    return fast


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the library's log and progress bars."""
    log = transformers.utils.logging
    level, bar = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bar:
            log.enable_progress_bar()


def tokenizer_of(
    vocabulary: Vocabulary, tokenizer: TokenizerName, *, opened: bool = True
) -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer that cuts lines into tokens as in training, with <eos> between lines.

    `opened` puts <eos> before each text, as a special token. A written <eos> is one. "straight-words" drops words of
    invisible characters alone, as a no-break space between two spaces. Sentences are not cut: for a run whose lines
    were cut into sentences (`data.lines`), give one sentence a line.
    """
    if is_exact(tokenizer):
        marks = {mark: AddedToken(mark, normalized=mark == EOS, special=True) for mark in (EOS, UNK)}
        ends = {f"{name}_token": marks[EOS] for name in ("bos", "eos", "pad")}
        fast = _opened(_of_subwords(vocabulary, tokenizer), vocabulary, opened)
        return transformers.PreTrainedTokenizerFast(tokenizer_object=fast, unk_token=marks[UNK], **ends)
    fast = Tokenizer(WordLevel(dict(zip(vocabulary.words, range(len(vocabulary)), strict=True)), unk_token=UNK))
    changes: list[Any] = [normalizers.Replace("\n", f" {EOS} ")]
    if tokenizer == "straight-words":
        straight = (("’", "'"), (Regex(OTHER_SPACE.pattern), " "), (Regex(UNSEEN.pattern), ""))
        changes += [normalizers.Replace(*change) for change in straight]
    if tokenizer != "whitespace":
        # `str.lower` knows the final sigma of a Greek word; the normaliser lower-cases each letter by itself
        changes += [normalizers.Replace(Regex(_LAST_SIGMA), "ς"), normalizers.Lowercase()]
    fast.normalizer = normalizers.Sequence(changes)
    pattern = r"[^ \t\n\r\v\f]+" if tokenizer == "whitespace" else f"{EOS}|{_WORDS}"
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    # a space before the first word, too: pipelines append the decoded words to the prompt
    fast.decoder = decoders.Replace(Regex("^"), " ")
    special = {f"{name}_token": EOS for name in ("bos", "eos", "pad")}
    fast = _opened(fast, vocabulary, opened)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=fast, unk_token=UNK, **special)


def _opened(fast: Tokenizer, vocabulary: Vocabulary, opened: bool) -> Tokenizer:
    """Put <eos> before each text; the second text of a pair goes on in a new line."""
    if opened:
        template = {"single": f"{EOS} $A", "pair": f"{EOS} $A {EOS} $B"}
        fast.post_processor = processors.TemplateProcessing(**template, special_tokens=[(EOS, vocabulary.eos_id)])
    return fast


def _require_shape(name: str, values: Tensor, input_ids: Tensor) -> None:
    shape = tuple(input_ids.shape)
    require(tuple(values.shape) == shape, name, tuple(values.shape), f"of the shape of input_ids, {shape}")


def _streams(state: LMState) -> int:
    return next(iter(state.flat().values())).shape[1]


def _rectangles(mask: Tensor) -> Iterator[tuple[Tensor, slice]]:
    """Cut a mask (B, N) at columns where any row begins or ends; yield the rows with words, and the columns."""
    changes = (mask[:, 1:] != mask[:, :-1]).any(0).nonzero().squeeze(1) + 1
    for start, stop in pairwise([0, *changes.tolist(), mask.shape[1]]):
        yield mask[:, start].nonzero().squeeze(1), slice(start, stop)


def _on_rows(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """Spread values (n, T, …) of `rows` over all rows (B, T, …), with zeros elsewhere."""
    if len(rows) == count:
        return values
    return values.new_zeros(count, *values.shape[1:]).index_copy(0, rows, values)


def _aligned(parts: Sequence[Tensor]) -> Tensor:
    """Join parts (B, T, L) in time, padded on the left of L: the last column is the same lag in all."""
    longest = max(part.shape[-1] for part in parts)
    return torch.cat([pad(part, (longest - part.shape[-1], 0)) for part in parts], 1)


def _loss(log_p: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Mean −log p of labels (B, N), each from the position before it, without labels at or after padding."""
    wanted = labels[:, 1:].masked_fill(~(mask[:, 1:] & mask[:, :-1]), IGNORED)
    return torch.nn.functional.nll_loss(log_p[:, :-1].flatten(0, 1), wanted.flatten(), ignore_index=IGNORED)


CLASSES: dict[str, type[Any]] = {
    "AutoConfig": SpanlmConfig,
    "AutoModelForCausalLM": SpanlmForCausalLM,
    "AutoModelForSequenceClassification": SpanlmForSequenceClassification,
}
"""The class behind each name by which `transformers` finds one."""

transformers.AutoConfig.register(SpanlmConfig.model_type, SpanlmConfig)
transformers.AutoModelForCausalLM.register(SpanlmConfig, SpanlmForCausalLM)
transformers.AutoModelForSequenceClassification.register(SpanlmConfig, SpanlmForSequenceClassification)
