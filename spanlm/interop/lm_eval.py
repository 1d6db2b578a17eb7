"""A trained model in EleutherAI's `lm_eval` (extra `eval`).

    from lm_eval import simple_evaluate
    from spanlm.interop.lm_eval import SpanlmLM
    simple_evaluate(model=SpanlmLM("runs/demo"), tasks=["my_task"], task_manager=…)

Importing this module registers the name `spanlm`: simple_evaluate(model="spanlm", model_args="run=runs/demo").

Every text is opened by <eos> and tokenised, as a line in training. A line end within a text is <eos>, and the state is
carried over it, unless the model was trained on single lines. A word that begins in a context and ends in its
continuation, as in "(" and "A)", counts with the continuation.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spanlm.data.pieces import words_of
from spanlm.data.tokenizer import WHITE_SPACE
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError, installation
from spanlm.runs.loading import load
from spanlm.runs.model import Model
from spanlm.scoring.words import WordScore, by_line

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError:
    raise InputError(f"lm-eval needs more: {installation('eval')}") from None

if TYPE_CHECKING:
    LM = object  # lm-eval declares no types

LENGTH = 256
"""Words to generate if a task sets no `max_gen_toks`."""


class SpanlmLM(LM):  # type: ignore[misc]
    """A run, or a loaded model, that answers the requests of a task. Log-probabilities are natural.

    Among equally probable answers to a question, as with the same <unk>, the last counts as the best. Tasks of pairs,
    such as BLiMP, name the right answer first, so that a tie is wrong, as in `spanlm pairs`.

    Args:
        run: folder of a run, or a model from `load` or `load_ensemble`.
        ends: count the line end (<eos>) after each text, too, as `spanlm pairs` does.
        device: as of `load`; cuda and cuda:0, lm_eval's defaults, mean auto.
        batch_size, max_batch_size: ignored; texts are batched as in `Model.score`.

    Raises:
        InputError: as `load`.
    """

    def __init__(
        self,
        run: str | Path | Model,
        *,
        ends: bool | str = False,
        device: str | None = None,
        batch_size: object = None,
        max_batch_size: object = None,
    ) -> None:
        super().__init__()
        chosen = "auto" if device in (None, "cuda", "cuda:0") else device
        self.trained: Model = run if isinstance(run, Model) else load(run, chosen)
        self.ends: bool = ends in (True, "True", "true")

    @property
    def tokenizer_name(self) -> str:
        """Identify the vocabulary, for lm_eval's caches of requests."""
        return f"spanlm-{self.trained.vocabulary.hash[:16]}"

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return log p(continuation | context) of each request, and whether all its words were the likeliest."""
        pairs = [request.args for request in requests]
        texts = [self._closed(context + continuation) for context, continuation in pairs]
        results = []
        for (context, _), text, rows in zip(pairs, texts, self._rows(texts), strict=True):
            scored = rows[self._read(context, text, rows) :]
            results.append((_log_p(scored), all(row.rank == 1 for row in scored)))
        return _last_of_equals(requests, results)

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Return log p of each whole text."""
        return [_log_p(rows) for rows in self._rows([self._closed(request.args[0]) for request in requests])]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Continue each context up to one of the strings `until`, or `max_gen_toks` words."""
        # requests may be repeated, for another answer each
        tasks = enumerate((request.args for request in requests), 1)
        return [self._continued(context, task, seed) for seed, (context, task) in tasks]

    def _continued(self, context: str, task: dict[str, Any], seed: int) -> str:
        until = task.get("until") or []
        stops, text = [until] if isinstance(until, str) else until, ""
        options: dict[str, Any] = {"top_k": 1}
        if task.get("do_sample"):
            temperature = float(task.get("temperature", 1.0))
            options = {"temperature": temperature, "top_k": task.get("top_k"), "top_p": task.get("top_p"), "seed": seed}
        words = self.trained.words(context, length=int(task.get("max_gen_toks", LENGTH)), **options)
        fresh = context[-1:] in ("", *WHITE_SPACE)
        for part in self.trained.texts.tokenizer.readable(words, at_line_start=fresh):
            text += part
            if cut := [text.index(stop) for stop in stops if stop in text]:
                return text[: min(cut)]
        return text

    def _closed(self, text: str) -> str:
        return text + "\n" * (self.ends and not text.endswith("\n"))

    def _rows(self, texts: Sequence[str]) -> list[list[WordScore]]:
        """Score every token of each text: texts of one line in batches, the others one by one."""
        lines = [text for text in texts if "\n" not in text]
        of_lines = iter(by_line(self.trained.score(lines, state="line", base=math.e), len(lines)))
        return [self._stream(text) if "\n" in text else next(of_lines) for text in texts]

    def _stream(self, text: str) -> list[WordScore]:
        """Score a text of several lines, with the <eos> of each complete line."""
        alone = self.trained.texts.line_by_line or not self.trained.texts.predict_first
        rows = list(self.trained.score(_lines(text), state="line" if alone else "carry", base=math.e, eos=True))
        return rows[: _ended(text, [row.word for row in rows])]

    def _read(self, context: str, text: str, rows: Sequence[WordScore]) -> int:
        """Count the rows at the start of a text that belong to its context alone."""
        words = words_of(self.trained.texts.pieces(_lines(context)))
        words = words[: _ended(context, words)]
        words = words if "\n" in text else [word for word in words if word != EOS]
        shared = (word == row.word for word, row in zip(words, rows, strict=False))
        return sum(takewhile(bool, shared))


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def _ended(text: str, words: list[str]) -> int:
    """Count the words of a text without the <eos> of an incomplete last line."""
    return len(words) - (words[-1:] == [EOS] and not text.endswith("\n"))


def _log_p(rows: Sequence[WordScore]) -> float:
    """Sum log p of the predicted words; a model may only read first words."""
    return 0.0 - math.fsum(row.surprisal for row in rows if row.rank is not None)


def _last_of_equals(requests: Sequence[Any], results: list[tuple[float, bool]]) -> list[tuple[float, bool]]:
    """Lower all but the last of a question's equal log-probabilities by the least step of a float."""
    places: dict[tuple[Any, Any, float], list[int]] = defaultdict(list)
    for place, (request, (log_p, _)) in enumerate(zip(requests, results, strict=True)):
        places[request.task_name, request.doc_id, log_p].append(place)
    changed = list(results)
    for (_, _, log_p), equals in places.items():
        for place in equals[:-1]:
            changed[place] = math.nextafter(log_p, -math.inf), results[place][1]
    return changed


register_model("spanlm")(SpanlmLM)
