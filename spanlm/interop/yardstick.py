"""Any causal model of Hugging Face as a yardstick (extra `hf`): `spanlm.load("hf:FOLDER")`, a local folder.

Such a model predicts sub-words. Here all scores are by *written word* (between white space) and line end, so that they
compare with those of a model of words. The tokenizer reads a text with one space between two words and a line end after
each line. The score of a word covers the sub-words of its letters and of the space before it. The line end is that of
the text, or the `eos` token if the tokenizer has no line end. Each context is opened by the `bos` token or, without
one, by `eos`. Some tokenizers, as those of Llama 3 and Qwen, join a punctuation mark and the line end after it into one
sub-word. Here the line end is always a separate sub-word, since it belongs to no word; such models give it a lower
probability than the joined one.

A word's end is counted with the word, see `spanlm.scoring.fold`; `bos` and `eos` count as tokens that begin with white
space. A tokenizer whose sub-words do not begin with white space gets no correction.

This module does not use `spanlm.scoring.stream.read`: its windows overlap, and a word is a sum over sub-words.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice, pairwise, tee
from operator import itemgetter
from pathlib import Path
from string import punctuation
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spanlm.data.config import DataConfig
from spanlm.data.corpora import Corpus
from spanlm.data.pieces import Piece, lines_as_pieces, refuse_one_string, require_texts, whole_lines
from spanlm.data.tokenizer import Words, written_spans
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError, named, require
from spanlm.interop import hf
from spanlm.models.ops.precision import autocast, products
from spanlm.options import Precision
from spanlm.runs.model import Model
from spanlm.runs.requests import Score
from spanlm.runs.texts import Texts
from spanlm.scoring.fold import CORRECTED, fold
from spanlm.scoring.options import CacheConfig, Context
from spanlm.scoring.perplexity import Evaluation, evaluation_of
from spanlm.scoring.prefix_tree import Prefixes, TextScore
from spanlm.scoring.protocol import Protocol
from spanlm.scoring.stream import word_values
from spanlm.scoring.tally import Tally
from spanlm.scoring.words import WordScore, WrittenScore, written_scores
from spanlm.store.files import expanded
from spanlm.store.machine import pick_device

WINDOW = 2048
"""Most sub-words read at a time, even if the model has no limit or a higher one."""

CHUNK = 2048
"""Least words of a text with carried state to cut into sub-words together; a chunk ends with a line."""

LINES = 64
"""Most lines in a batch, if the state is reset at each line."""

LOGITS = 1 << 24
"""Most logits of a batch, rows × steps × vocabulary; a single window may exceed it."""

_SPACE = (" ", "\t", "\n", "\r", "\v", "\f")


class _AnyWord(Vocabulary):
    """A vocabulary with every word, since only the tokenizer decides what is unknown."""

    def __contains__(self, word: object) -> bool:
        return True


_Unit = tuple[WordScore, list[str]]
"""A written word or a line end: its score in nats, and its sub-words."""

_Places = list[tuple[int, int, str]]
"""Line, index in the line, and letters of words and line ends."""


class Yardstick(Model):
    """A causal model of Hugging Face: `evaluate`, `score`, `score_items`, `score_texts` and `compare`, by written word.

    Args:
        path: a local folder with config.json, model.safetensors and a tokenizer of the `tokenizers` library. Nothing is
            downloaded or unpickled, and no code in the folder is run.
        device: as of `spanlm.load`.
        corrected: count a word's end with the word; see the module's docstring.

    Raises:
        InputError: no such folder, no causal model, no tokenizer, or one with more sub-words than the model; an export
            of a run that never predicted first words.
    """

    model: Any
    tokenizer: Any
    kind = "a model of Hugging Face"

    def __init__(self, path: str | Path, device: str = "auto", *, corrected: bool = True) -> None:
        folder, target = expanded(str(path)), pick_device(device, "device")
        model, self.tokenizer = _loaded(folder)
        if not getattr(model.config, "run", {}).get("predict_first", True):
            export = "a run that never predicted the first word of a line (training.batching.predict_first=false)"
            raise InputError(f"hf:{path}: is an export of {export}, from which a text cannot be opened. Name the run.")
        name = Path(f"hf:{path}")
        data, textless = DataConfig(corpus=str(name), marks="drop"), "has no text of its own"
        super().__init__(model.to(target).eval(), Texts(_AnyWord((EOS, UNK)), data, name, textless=textless))
        limits = (getattr(model.config, "max_position_embeddings", None), WINDOW)
        self.window: int = min(limit for limit in limits if limit)
        self.stride: int = max(1, self.window // 2)
        special = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        known = [id for id in special if id is not None]
        if not known:
            raise InputError(f"{name}: the tokenizer has neither a bos nor an eos token to open a text; give it one")
        self._opening = known[0]
        self._line_end, self._joins = _line_ends(self.tokenizer, known[-1])
        begins = _begins_with_space(self.tokenizer, self._size, known) if corrected else None
        self._begins = None if begins is None else begins.to(target)
        pair = torch.tensor([[self._opening, 0], [self._opening, self._size - 1]], device=self.model.device)
        with torch.no_grad():
            first, second = self.model(input_ids=pair, use_cache=False).logits[:, 0]
        if not torch.allclose(first, second, rtol=1e-4, atol=1e-5):
            raise InputError(f"{name}: sees the words that it predicts; only causal models are a yardstick")

    @property
    def description(self) -> str:
        return f"{type(self.model).__name__}, {len(self.tokenizer):,} sub-words, by written word ({self._correction})"

    @property
    def _correction(self) -> str:
        return "no leading spaces to correct" if self._begins is None else CORRECTED

    def title(self) -> str:
        return str(self.folder)

    def _evaluated(self, corpus: Corpus, part: str, protocol: Protocol, cache: CacheConfig | None) -> Evaluation:
        """Measure exp(total NLL / (written words + line ends)), in overlapping windows of longer contexts."""
        if cache is not None:
            self.predictor("cache")
        context = protocol.context
        require(context != "document", "state", context, f"carry or line of {self.kind}")
        pieces = lines_as_pieces(corpus.written_lines(part), Words("whitespace"))
        began, count, total = time.perf_counter(), 0, Tally()
        for score, subwords in self._units(pieces, context, protocol.batch_size, protocol.precision):
            total, count = _plus(total, score), count + len(subwords)
        if total.unk_tokens and protocol.spelling is not None:
            why = f"the tokenizer of {self.folder} does not know {total.unk_tokens:,} words, and cannot spell them"
            raise InputError("spell_unknown", limit=why, way_out="Leave it out")
        if protocol.spelling is not None:  # sub-words spell an <unk> in the text, too
            protocol = replace(protocol, spelling=replace(protocol.spelling, notes=()))
        seconds, counted = time.perf_counter() - began, replace(corpus, oov={part: total.unk_tokens})
        result = evaluation_of(total, seconds, counted, part, protocol, corpus.written(part))
        where = "each line by itself" if context == "line" else "the text as one, state carried"
        opening = self.tokenizer.convert_ids_to_tokens(self._opening)
        read = (
            f"read by {count:,} sub-words, {self.window:,} at a time, moved on by {self.stride:,} where there are more"
        )
        method = f"every written word and line end predicted once; {where}, opened by {opening}; {read}"
        return replace(result, protocol=f"{method}; {self._correction}")

    def _scored(self, pieces: Iterable[Piece], request: Score) -> Iterator[WordScore]:
        """Score written words; entropy and rank are those of a word's first sub-word, over sub-words."""
        return (score for score, _ in self._rows(pieces, request) if request.eos or score.word != EOS)

    def score_items(
        self, items: Iterable[str], *, state: Context = "line", eos: bool = False, **options: Any
    ) -> Iterator[list[WrittenScore]]:
        """Score the words of items as `Model.score_items` does; `tokens` are a word's sub-words."""
        refuse_one_string("items", items)
        lines, items = tee(self.texts.unmarked(items))
        rows = self._rows(self.texts.pieces(lines), Score(lines, state=state, **options))
        for (_, units), item in zip(groupby(rows, key=lambda unit: unit[0].sentence), items, strict=False):
            scores, subwords = zip(*units, strict=True)
            written = written_scores(item, list(scores), map(len, self.texts.cut(item)), eos=eos)
            tokens = list(map(" ".join, subwords))
            yield [word if word.word == EOS else replace(word, tokens=tokens[word.index - 1]) for word in written]

    def score_texts(self, texts: Iterable[str], *, precision: Precision = "fp32") -> tuple[list[TextScore], Prefixes]:
        """Return log p of many short texts, each read as one line with its end; see `Model.score_texts`."""
        refuse_one_string("texts", texts)
        texts = list(require_texts(texts))
        plain = [*self.texts.unmarked(texts)]
        units = self._units(lines_as_pieces(plain, Words("whitespace")), "line", precision=precision)
        results, count = [], 0
        groups = groupby(units, key=lambda unit: unit[0].sentence)
        for text, read, (_, group) in zip(texts, plain, groups, strict=True):
            scores, subwords = zip(*group, strict=True)
            *words, end = scores
            count += 1 + sum(map(len, subwords))
            left = (-word.surprisal for word in words)
            # a mark that is left out has no token
            log_p = [0.0 if read[at] in " \v" else next(left) for at, _ in written_spans(text)]
            results.append(TextScore(log_p, -end.surprisal, sum(x.oov for x in words)))
        return results, Prefixes(count, count)

    @property
    def _size(self) -> int:
        return int(self.model.get_input_embeddings().weight.shape[0])

    def _rows(self, pieces: Iterable[Piece], request: Score) -> Iterator[_Unit]:
        """Score words and line ends in the unit of the base."""
        for name in ("looks", "cache"):
            if getattr(request, name):
                self.predictor(name)
        unit = math.log(request.base)
        for score, subwords in self._units(pieces, request.state, precision=request.precision):
            if score.oov and (request.oov == "error" or request.spell_unknown):
                where = f"line {score.sentence}, word {score.index}: {score.word!r}"
                way = f"Leave {named('spell_unknown')} out" if request.spell_unknown else f"Use {named('oov=flag')}"
                raise InputError(f"{where} is unknown to the tokenizer. {way} to score it so.")
            yield replace(score, surprisal=score.surprisal / unit, entropy=score.entropy / unit), subwords

    def _units(
        self, pieces: Iterable[Piece], state: Context, rows: int | None = None, precision: Precision = "fp32"
    ) -> Iterator[_Unit]:
        before = [self._opening]
        for texts, fresh in _contexts(pieces, state):
            read = list(map(self._read, texts))
            before = [self._opening] if fresh else before
            sequences = [before + ids for _, _, ids in read]
            values = self._values(sequences, len(before), rows or LINES, precision)
            for (places, owners, ids), text_values in zip(read, values, strict=True):
                yield from self._joined(places, owners, ids, text_values)
            before = sequences[-1][-(self.window - self.stride) :]

    def _read(self, lines: list[Piece]) -> tuple[_Places, list[int], list[int]]:
        """Cut lines into sub-words; return the places of the words, and the word index and the id of each sub-word."""
        places = [(line.sentence, n, word) for line in lines for n, word in enumerate([*line.words, EOS], 1)]
        segments = ["\n" if word == EOS else f"{' ' * (index > 1)}{word}" for _, index, word in places]
        letters = np.repeat(np.arange(len(places)), [len(segment) for segment in segments]).tolist()
        text, pairs, begin = "".join(segments), [], 0
        for part in text.split("\n") if self._joins else [text]:
            read = self.tokenizer(part, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
            for id, (start, end) in zip(read["input_ids"], read["offset_mapping"], strict=True):
                first, last = letters[min(begin + start, len(letters) - 1)], letters[begin + max(start, end - 1)]
                if first != last and part[start:end].strip("\n"):
                    raise InputError(f"the tokenizer reads {part[start:end]!r} as one: its words cannot be told apart")
                pairs.append((first, id))
            begin += len(part) + 1
        if self._line_end is not None:
            pairs = [(owner, id) for owner, id in pairs if places[owner][2] != EOS]
            pairs += [(n, id) for n, (_, _, word) in enumerate(places) if word == EOS for id in self._line_end]
            pairs.sort(key=itemgetter(0))
        return places, [owner for owner, _ in pairs], [id for _, id in pairs]

    def _joined(self, places: _Places, owners: list[int], ids: list[int], values: Tensor) -> Iterator[_Unit]:
        """Sum the values (sub-words, 4) of a text over its words; move log e(c) from each word to the one before it."""
        surprisal, entropy, rank, edge = values.T.tolist()
        tokens, unknown = self.tokenizer.convert_ids_to_tokens(ids), self.tokenizer.unk_token_id
        bounds = np.searchsorted(owners, np.arange(len(places) + 1)).tolist()
        sums = fold(surprisal, edge, bounds, {unit for unit, (_, _, word) in enumerate(places) if word == EOS})
        for (line, index, word), nll, (start, stop) in zip(places, sums, pairwise(bounds), strict=True):
            # a word without sub-words is certain
            before, place = (entropy[start], int(rank[start])) if start < stop else (0.0, 1)
            oov = unknown in ids[start:stop] and word != EOS
            yield WordScore(line, index, word, nll, before, place, oov), tokens[start:stop]

    def _values(self, sequences: list[list[int]], start: int, rows: int, precision: Precision) -> list[Tensor]:
        """Return surprisal, entropy, rank and log e(c) of the sub-words from `start` on of each sequence, (n, 4)."""
        results = [torch.empty(len(ids) - start, 4, dtype=torch.float64) for ids in sequences]
        windows = [(number, *cut) for number, ids in enumerate(sequences) for cut in self._windows(len(ids), start)]
        windows.sort(key=lambda cut: cut[3] - cut[1])
        while windows:
            longest = windows[-1][3] - windows[-1][1]
            size = max(1, min(rows, LOGITS // (longest * self._size)))
            batch, windows = windows[-size:], windows[:-size]
            ids = torch.full((len(batch), longest), self._opening)
            for row, (number, begin, _, end) in zip(ids, batch, strict=True):
                row[: end - begin] = torch.tensor(sequences[number][begin:end])
            lengths = torch.tensor([[end - begin] for _, begin, _, end in batch])
            values = self._predict(ids, lengths, precision)
            for row_values, (number, begin, first, end) in zip(values, batch, strict=True):
                results[number][first - start : end - start] = row_values[first - begin - 1 : end - begin - 1]
        return results

    def _windows(self, length: int, start: int) -> Iterator[tuple[int, int, int]]:
        """Cut a sequence into windows: begin, first sub-word that the window predicts, and end."""
        while start < length:
            begin = max(0, start - (self.window - self.stride))
            end = min(length, begin + self.window + 1)
            yield begin, start, end
            start = end

    def _predict(self, ids: Tensor, lengths: Tensor, precision: Precision) -> Tensor:
        """Return the values (rows, N − 1, 4) of all but the first of ids (rows, N) with lengths (rows, 1)."""
        ids = ids.to(self.model.device)
        mask = (torch.arange(ids.shape[1] - 1) < lengths - 1).long().to(ids.device)
        with torch.no_grad(), products(ids.device, precision), autocast(ids.device, precision):
            logits = self.model(input_ids=ids[:, :-1], attention_mask=mask, use_cache=False).logits
        log_p = logits.float().log_softmax(-1)
        edge = torch.zeros_like(log_p[..., 0])
        if self._begins is not None:
            edge = log_p.masked_fill(~self._begins, -math.inf).logsumexp(-1)
        return torch.stack([value.double() for value in (*word_values(log_p, ids[:, 1:]), edge)], -1).cpu()


def _line_ends(tokenizer: Any, eos: int) -> tuple[list[int] | None, bool]:
    """Return the ids to put at line ends, and whether the tokenizer joins a line end with a mark before it.

    None: the tokenizer's line ends stay. If it has none, the ids are `eos`. If it joins them, lines are cut one by one.
    """

    def read(text: str) -> list[tuple[int, str]]:
        encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        spans = zip(encoding["input_ids"], encoding["offset_mapping"], strict=True)
        return [(id, text[start:end]) for id, (start, end) in spans]

    line_end = [id for id, letters in read("a\nb") if "\n" in letters and id != tokenizer.unk_token_id]
    marks = read("\n".join(["a", *punctuation, "a"]))
    joins = bool(line_end) and any("\n" in letters and letters.strip() for _, letters in marks)
    return (None if line_end and not joins else line_end or [eos]), joins


def _contexts(pieces: Iterable[Piece], state: Context) -> Iterator[tuple[list[list[Piece]], bool]]:
    """Yield batches of texts (lists of lines), and whether a context begins with the batch."""
    whole = whole_lines(pieces)
    while state == "line" and (batch := [[line] for line in islice(whole, LINES)]):
        yield batch, True
    lines, words, fresh, blank, begun = list[Piece](), 0, True, False, False
    for line in whole:
        resets = state == "document" and blank and begun and bool(line.words)
        if lines and (words >= CHUNK or resets):
            yield [lines], fresh
            lines, words, fresh = [], 0, resets
        lines, words = [*lines, line], words + len(line.words) + 1
        blank, begun = not line.words, begun or bool(line.words)
    if lines:
        yield [lines], fresh


def _plus(total: Tally, score: WordScore) -> Tally:
    eos, unk = score.word == EOS, score.oov
    return Tally(
        total.tokens + 1,
        total.nll + score.surprisal,
        total.unk_tokens + unk,
        total.unk_nll + score.surprisal * unk,
        total.eos_tokens + eos,
        total.eos_nll + score.surprisal * eos,
    )


def _loaded(folder: Path) -> tuple[Any, Any]:
    """Load a causal model and its tokenizer; InputError if the folder is not one of such a model."""
    way = "Name a folder that save_pretrained of transformers, or spanlm export, wrote"
    if not (folder / "config.json").is_file():
        problem = "has no config.json" if folder.is_dir() else "there is no such folder; nothing is fetched"
        raise InputError(f"hf:{folder}: {problem}. {way}.")
    transformers, settings = hf.transformers, {"local_files_only": True, "trust_remote_code": False}
    try:
        with hf.quiet():
            # weights of half precision are read in float32, as all weights; --precision sets that of products
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                folder, use_safetensors=True, output_loading_info=True, dtype=torch.float32, **settings
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **settings)
    except InputError:
        raise
    except Exception as error:  # the parsers raise many kinds of errors for a damaged folder
        why = " ".join(str(error).split())[:300]
        needs = "model.safetensors, its tokenizer's files and no code of its own (trust_remote_code), which is not run"
        raise InputError(f"hf:{folder}: cannot be loaded: {why}. {way}, with {needs}.") from None
    if missing := sorted(info["missing_keys"]):
        raise InputError(f"hf:{folder}: has no weights {missing[0]}, so it is no causal model that was trained")
    if len(tokenizer) <= len(tokenizer.all_special_ids) or not tokenizer("a b", add_special_tokens=False)["input_ids"]:
        raise InputError(
            f"hf:{folder}: has no tokenizer. Put its files there: tokenizer.save_pretrained({str(folder)!r})"
        )
    if not tokenizer.is_fast:
        raise InputError(f"hf:{folder}: its tokenizer does not say where sub-words stand; it needs a tokenizer.json")
    size = int(model.get_input_embeddings().weight.shape[0])
    if tokenizer.vocab_size > size:
        sizes = f"the tokenizer has {tokenizer.vocab_size:,} sub-words and the model {size:,}"
        raise InputError(f"hf:{folder}: {sizes}. Put the model's own tokenizer there.")
    return model, tokenizer


def _begins_with_space(tokenizer: Any, size: int, special: Sequence[int]) -> Tensor | None:
    """Return which sub-words (V,) begin with white space; None if spaces never belong to the sub-word after them."""
    first, count = tokenizer("a b", add_special_tokens=False)["input_ids"][0], min(size, len(tokenizer))
    texts = tokenizer.batch_decode([[first, id] for id in range(count)], clean_up_tokenization_spaces=False)
    before = len(tokenizer.decode([first]))
    begins = torch.zeros(size, dtype=torch.bool)
    begins[:count] = torch.tensor([text[before:].startswith(_SPACE) for text in texts])
    # tokenizers that drop spaces, or that mark ends of words, decode every sub-word with a space before it
    if begins[:count].all() or not begins.any():
        return None
    begins[list(special)] = True
    return begins
