"""A trained model with the verbs of `minicons`, for scripts that know those."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spanlm.data.tokenizer import written_words
from spanlm.errors import InputError
from spanlm.evaluation.words import WordScore
from spanlm.runs.loading import load
from spanlm.runs.trained_model import LoadedModel

Batch = str | Sequence[str]
Reduction = Callable[[Tensor], float]


def mean(scores: Tensor) -> float:
    """Return the mean of a text's scores, which is what a sequence's score is where nothing else is asked for."""
    return float(scores.mean())


class Scorer:
    """Scores of texts, each opened by <eos> and by itself: log p in nats, or surprisal, or in bits (`base_two`).

        scorer = spanlm.Scorer.from_pretrained("runs/demo")
        scorer.token_score(["the name is bound ."], surprisal=True, base_two=True)
        scorer.sequence_score(texts, reduction=lambda scores: scores.sum().item())

    Where first words were only read in training (training.batching.predict_first) their score is NaN.
    """

    def __init__(self, run: LoadedModel) -> None:
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
        texts = _listed(batch)
        return [
            self._by_word(text, rows, 1.0 if surprisal else -1.0)
            for text, rows in zip(texts, self._rows(texts, base_two), strict=True)
        ]

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
            InputError: not as many prefixes as stimuli.
        """
        prefixes, after = _listed(prefix), _listed(stimuli)
        if len(prefixes) != len(after):
            raise InputError(f"prefix: has {len(prefixes)} texts for {len(after)} stimuli; give one for each")
        texts = [separator.join(pair) for pair in zip(prefixes, after, strict=True)]
        skipped = [len(self.run.tokenize(text)) for text in prefixes]
        rows = self._rows(texts, base_two)
        return [reduction(_log_p(own[count:])) for own, count in zip(rows, skipped, strict=True)]

    def compare(self, good: Batch, bad: Batch) -> list[bool]:
        """Say of each pair whether the good text is more probable, line ends included; equal ones are no."""
        pairs = zip(_listed(good), _listed(bad), strict=True)
        return [self.run.compare(*pair).correct for pair in pairs]

    def _rows(self, texts: Sequence[str], base_two: bool) -> list[list[WordScore]]:
        lines = [" ".join(text.split("\n")) for text in texts]
        scored = self.run.score(lines, state="line", base=2.0 if base_two else math.e)
        found = {sentence: list(rows) for sentence, rows in groupby(scored, key=lambda row: row.sentence)}
        return [found.get(number, []) for number in range(1, len(texts) + 1)]

    def _by_word(self, text: str, rows: list[WordScore], sign: float) -> list[tuple[str, float]]:
        found, start = [], 0
        for word in written_words(text):
            end = start + len(self.run.tokenize(word))
            found.append((word, sign * math.fsum(row.surprisal for row in rows[start:end])))
            start = end
        return found


def _listed(batch: Batch) -> Sequence[str]:
    return [batch] if isinstance(batch, str) else batch


def _log_p(rows: Sequence[WordScore]) -> Tensor:
    return -torch.tensor([row.surprisal for row in rows], dtype=torch.float64)
