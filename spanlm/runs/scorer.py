"""A trained model with the verbs of `minicons`, for scripts that know those."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spanlm.errors import InputError, require
from spanlm.evaluation.words import WordScore, by_line, require_texts
from spanlm.runs.loading import load
from spanlm.runs.trained_model import LoadedModel

Batch = str | Sequence[str]
Reduction = Callable[[Tensor], float]


def mean(scores: Tensor) -> float:
    """Return the mean of a text's scores, which is what a sequence's score is where nothing else is asked for."""
    return float(scores.mean())


class Scorer:
    """Scores of texts, each opened by <eos> and by itself: log p in nats, or surprisal, or in bits (`base_two`).

    Where first words were only read in training (training.batching.predict_first) their score is NaN.

    Example:
        >>> scorer = spanlm.Scorer.from_pretrained("runs/demo")
        >>> (scores,) = scorer.token_score(["the name is bound ."], surprisal=True, base_two=True)
        >>> scores[1]
        ('name', ...)
        >>> totals = scorer.sequence_score(["the name .", "a name ."], reduction=lambda scores: scores.sum().item())
    """

    def __init__(self, run: LoadedModel) -> None:
        require(isinstance(run, LoadedModel), "run", run, "a loaded model; a folder is for Scorer.from_pretrained")
        self.run = run

    @classmethod
    def from_pretrained(cls, run: str | Path, device: str = "auto") -> Scorer:
        """Load a run; arguments and errors as of `spanlm.load`."""
        return cls(load(run, device))

    def token_score(
        self, batch: Batch, surprisal: bool = False, base_two: bool = False, rank: bool = False
    ) -> list[list[tuple[Any, ...]]]:
        """Give (token, score) of every token of each text, or (token, score, rank)."""
        sign = 1.0 if surprisal else -1.0
        return [
            [(row.word, sign * row.surprisal, *([row.rank] if rank else [])) for row in rows]
            for rows in self._rows(_listed(batch), base_two)
        ]

    def word_score(
        self, batch: Batch, surprisal: bool = False, base_two: bool = False
    ) -> list[list[tuple[str, float]]]:
        """Give (word, score) of every word as written, between white space: the sum over its tokens."""
        sign, base = 1.0 if surprisal else -1.0, 2.0 if base_two else math.e
        items = self.run.score_items(_listed(batch), base=base)
        return [[(word.word, sign * word.surprisal) for word in words] for words in items]

    def sequence_score(self, batch: Batch, reduction: Reduction = mean, base_two: bool = False) -> list[float]:
        """Give a number of each text: the `reduction` of the log p of its tokens (N,), float64."""
        return [reduction(_log_p(rows)) for rows in self._rows(_listed(batch), base_two)]

    def conditional_score(
        self,
        prefix: Batch,
        stimuli: Batch,
        separator: str = " ",
        reduction: Reduction = mean,
        base_two: bool = False,
    ) -> list[float]:
        """Give the same of each of the stimuli after its prefix, whose tokens are read and not counted.

        Raises:
            InputError: there are not as many prefixes as stimuli, or a token reaches from a prefix into its stimulus.
        """
        pairs = _paired(prefix, stimuli)
        texts, read = [separator.join(pair) for pair in pairs], [self.run.tokenize(first) for first, _ in pairs]
        for (first, _), text, tokens in zip(pairs, texts, read, strict=True):
            if self.run.tokenize(text)[: len(tokens)] != tokens:
                raise InputError(f"prefix={first!r}: goes on within a word in {text!r}. Cut between two words.")
        rows = self._rows(texts, base_two)
        return [reduction(_log_p(own[len(tokens) :])) for own, tokens in zip(rows, read, strict=True)]

    def compare(self, good: Batch, bad: Batch) -> list[bool]:
        """Say of each pair whether the good text is more probable, line ends included.

        Raises:
            InputError: there are not as many good texts as bad ones.
        """
        return [self.run.compare(*pair).correct for pair in _paired(good, bad)]

    def _rows(self, texts: Sequence[str], base_two: bool) -> list[list[WordScore]]:
        lines = [" ".join(text.split("\n")) for text in require_texts(texts)]
        return by_line(self.run.score(lines, state="line", base=2.0 if base_two else math.e), len(lines))


def _listed(batch: Batch) -> Sequence[str]:
    return [batch] if isinstance(batch, str) else batch


def _paired(one: Batch, other: Batch) -> list[tuple[str, str]]:
    first, second = _listed(one), _listed(other)
    if len(first) != len(second):
        raise InputError(f"{len(first)} texts for {len(second)}: give one for each")
    return list(zip(first, second, strict=True))


def _log_p(rows: Sequence[WordScore]) -> Tensor:
    return -torch.tensor([row.surprisal for row in rows], dtype=torch.float64)
