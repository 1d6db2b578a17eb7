"""Two models on the same cloze questions: who is right more often, how sure that is, and in which class of questions.

Each question is right or wrong for both models, which makes four counts: right for `both`, for the model alone
(`gained`, b), for the baseline alone (`lost`, c), for `neither`. McNemar's exact test (1947) is of the b + c discordant
questions: without a difference between the models each is as likely to be gained as lost.

    difference   (b − c) / Q, of Q questions
    p            min(1, 2 Σ_{i=0}^{min(b, c)} C(b + c, i) / 2^{b + c})
    interval     the middle 95 % of (b* − c*) / Q over all draws of Q questions with replacement

A question adds 1, −1 or 0 to b − c, so the distribution of b* − c* is the Q-fold convolution of the three shares; there
is nothing to draw. The studentised draws of `spanlm.scoring.resampling` are for texts: where most differences are 0,
many draws have no spread. Files of questions do not name a question's book, so questions are drawn, not books: an
interval for other books would be wider.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlm.data.cbt import Defect, Question
from spanlm.runs.model import Model
from spanlm.scoring.cloze import SCORES, Score
from spanlm.scoring.options import ClozeContext, ClozeOptions
from spanlm.scoring.resampling import FEWEST_BLOCKS, Interval

Flags = NDArray[np.bool_]
Way = tuple[ClozeContext, Score]
"""What is read before a query, and what its candidates are ranked by."""


@dataclass(frozen=True, eq=False)
class Answers:
    """A model's answers to Q questions: `right` (Q,) in each way, and whether it could score them, `scored` (Q,)."""

    name: str
    right: dict[Way, Flags]
    scored: Flags


@dataclass(frozen=True)
class PairedAnswers:
    """A model and the baseline on the questions of one class.

    `gained` and `lost` are those that the model alone, or the baseline alone, has right.
    """

    name: str
    both: int
    gained: int
    lost: int
    neither: int

    @property
    def questions(self) -> int:
        return self.both + self.gained + self.lost + self.neither

    @property
    def accuracy(self) -> float:
        return (self.both + self.gained) / self.questions

    @property
    def baseline_accuracy(self) -> float:
        return (self.both + self.lost) / self.questions

    @property
    def difference(self) -> float:
        """Positive: the model is better."""
        return (self.gained - self.lost) / self.questions

    @property
    def p(self) -> float:
        return mcnemar(self.gained, self.lost)

    @cached_property
    def interval(self) -> Interval:
        """The 95 % interval of the difference; NaN with fewer than `FEWEST_BLOCKS` questions."""
        if self.questions < FEWEST_BLOCKS:
            return math.nan, math.nan
        return drawn_differences(self.gained, self.lost, self.questions)

    @property
    def sparse(self) -> bool:
        """Whether discordant questions are so few that the interval may be too short."""
        return self.gained + self.lost < FEWEST_BLOCKS

    def to_json(self) -> dict[str, Any]:
        names = ("questions", "accuracy", "baseline_accuracy", "difference", "interval", "p")
        return {**asdict(self), **{name: getattr(self, name) for name in names}}


def mcnemar(gained: int, lost: int) -> float:
    """Return p of McNemar's exact test, two-sided; 1 without discordant questions."""
    discordant = gained + lost
    tail = sum(math.comb(discordant, i) for i in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / (1 << discordant))


def drawn_differences(gained: int, lost: int, questions: int) -> Interval:
    """Return the middle 95 % of the differences of accuracy over all draws of the questions with replacement."""
    shares = np.zeros(2 * questions + 1)  # of the changes 0, 1, …, Q, −Q, …, −1
    shares[0], shares[1], shares[-1] = questions - gained - lost, gained, lost
    chances = np.fft.irfft(np.fft.rfft(shares / questions) ** questions, len(shares))
    reached = np.cumsum(np.roll(chances, questions))  # from −Q on
    low, high = np.searchsorted(reached, (0.025, 0.975)) - questions
    return float(low) / questions, float(high) / questions


def read_answers(
    model: Model, questions: Iterable[Question | Defect], options: ClozeOptions, name: str = ""
) -> Answers:
    """Answer questions in the contexts of `options`; InputError: as `Model.cloze`."""
    contexts = model.texts.cloze_contexts(options.contexts)
    settings: dict[str, Any] = {"batch_size": options.batch_size, "precision": options.precision}
    ranked = model.cloze(questions, contexts=contexts, **settings)
    ways, rows, scored = list(product(contexts, SCORES)), list[list[bool]](), list[bool]()
    for first in ranked:
        scored.append(not isinstance(first, Defect))
        answers = [] if isinstance(first, Defect) else [first, *islice(ranked, len(contexts) - 1)]
        right = [not isinstance(answer, Defect) and answer.right(score) for answer in answers for score in SCORES]
        rows.append(right or [False] * len(ways))
    columns = np.array(rows, np.bool_).reshape(-1, len(ways)).T
    return Answers(name or str(model.folder), dict(zip(ways, columns, strict=True)), np.array(scored, np.bool_))


def paired(baseline: Answers, model: Answers, way: Way, classes: Sequence[str], known: Flags) -> list[PairedAnswers]:
    """Compare two models on all questions that are `known` (Q,), then on each class (Q,), if there are several."""
    labels = np.array(classes)[known]
    several = list(dict.fromkeys(labels.tolist()))
    several = several if len(several) > 1 else []
    members = [labels == labels, *(labels == name for name in several)]
    right, before = model.right[way][known], baseline.right[way][known]
    cells = (right & before, right & ~before, before & ~right, ~right & ~before)
    return [
        PairedAnswers(name, *(int((cell & inside).sum()) for cell in cells))
        for name, inside in zip(["all", *several], members, strict=True)
    ]
