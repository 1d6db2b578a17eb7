"""How many cloze questions were answered right, and how sure that is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean
from typing import Any

from spanlm.evaluation.cloze import SCORES, RankedQuestion, Score

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A share of questions.

    Attributes:
        right: how many were answered right.
        questions: of how many.
    """

    right: int
    questions: int

    @property
    def share(self) -> float | None:
        """The right ones as a share of all; None of no questions."""
        return self.right / self.questions if self.questions else None

    @property
    def interval(self) -> tuple[float, float] | None:
        r"""The 95 % interval of Wilson (1927); None of no questions.

            (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)

        with p the share, n the questions and z = 1.96.
        """
        if not self.questions:
            return None
        p, n, z = self.right / self.questions, self.questions, NormalDist().inv_cdf((1 + LEVEL) / 2)
        centre, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        scale = 1 + z * z / n
        return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"right": self.right, "questions": self.questions, "accuracy": self.share, "interval": self.interval}


@dataclass(slots=True)
class ClozeTally:
    """Counts over ranked questions.

    Attributes:
        questions: that were ranked.
        answers_oov: those whose answer the vocabulary does not have.
        candidates: of all questions.
        candidates_oov: those that the vocabulary does not have.
        ties: by score: questions whose answer shares the highest score, which is not right.
    """

    questions: int = 0
    answers_oov: int = 0
    candidates: int = 0
    candidates_oov: int = 0
    ties: Counter[Score] = field(default_factory=Counter)
    _right: Counter[tuple[Score, bool]] = field(default_factory=Counter)

    def add(self, ranked: RankedQuestion) -> None:
        """Count a question."""
        self.questions += 1
        self.answers_oov += ranked.answer_oov
        self.candidates += len(ranked.oov)
        self.candidates_oov += sum(ranked.oov)
        for by in SCORES:
            self.ties[by] += ranked.tied(by)
            self._right[by, ranked.answer_oov] += ranked.right(by)

    def accuracy(self, by: Score) -> Accuracy:
        """Over all questions."""
        return Accuracy(self._right[by, False] + self._right[by, True], self.questions)

    def accuracy_in_vocabulary(self, by: Score) -> Accuracy:
        """Over the questions whose answer the vocabulary has."""
        return Accuracy(self._right[by, False], self.questions - self.answers_oov)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "questions": self.questions,
            "answers_oov": self.answers_oov,
            "candidates": self.candidates,
            "candidates_oov": self.candidates_oov,
            **{
                by: {
                    **self.accuracy(by).to_json(),
                    "ties": self.ties[by],
                    "answer_in_vocabulary": self.accuracy_in_vocabulary(by).to_json(),
                }
                for by in SCORES
            },
        }


def macro_average(accuracies: Iterable[Accuracy]) -> float | None:
    """Return the mean of the shares, each set of questions counting alike; None if there is none with a question."""
    shares: Sequence[float] = [a.share for a in accuracies if a.share is not None]
    return fmean(shares) if shares else None
