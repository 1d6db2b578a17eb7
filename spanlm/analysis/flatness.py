"""The flatness of attention: what Salton et al. (2017, §5) saw in maps of sentences, Figures 2 and 3, as a number.

    flatness = 1/|R| · Σ_{t in R} H_t / ln n_t,    H_t = -Σ_i p_ti ln p_ti,    p_ti = a_ti / Σ_j a_tj

At step t, n_t slots held a word. R are the steps with n_t >= 2: a single slot leaves no choice. Flatness 1 is equal
weight on every word, 0 all weight on one. p excludes weight on no word (a pointer's sentinel), which is
reported beside it. In a span buffer a slot holds a span.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spanlm.errors import InputError
from spanlm.scoring.attention import AttentionRecord

GROUPS: dict[str, int] = {"2-5": 2, "6-10": 6, "11-20": 11, "21-35": 21, "36-100": 36, "101-255": 101, ">255": 256}
"""Name -> the least number of slots."""
ALL = "all"


class FlatnessRow(NamedTuple):
    """Means over the rows of one group, as shares of the weight on words."""

    slots: str  # the number of slots to choose from, a name in `GROUPS` or `ALL`
    rows: int
    flatness: float
    largest: float  # the largest weight; `nearest` is that of the nearest slot
    nearest: float
    equal: float  # `largest` and `nearest` of equal weights, 1 / n
    on_no_word: float  # the share that lies on no word, before the row is scaled


@dataclass(frozen=True)
class Flatness:
    """Flatness of the attention over a text: by number of slots, where there are rows, and over all rows."""

    groups: tuple[FlatnessRow, ...]
    overall: FlatnessRow
    left_out: int  # rows without a choice, or with no weight on any word
    nearest_lag: int  # the lag of the nearest slot: 1 is the word before the one just read, 0 that itself
    span: int = 1  # number of words in a slot; the nearest of several spans is the one that ended last

    @property
    def rows(self) -> tuple[FlatnessRow, ...]:
        return (*self.groups, self.overall)

    def to_json(self) -> dict[str, Any]:
        return {
            "overall": self.overall._asdict(),
            "by_slots": [group._asdict() for group in self.groups],
            "left_out": self.left_out,
            "nearest_lag": self.nearest_lag,
            "span": self.span,
        }


class FlatnessAccumulator:
    """Sums flatness over a corpus of any size."""

    def __init__(self, nearest_lag: int = 1) -> None:
        self.nearest_lag: int = nearest_lag
        self.span: int = 1
        self.left_out: int = 0
        self._counts = np.zeros(len(GROUPS), dtype=np.int64)
        self._sums = np.zeros((len(GROUPS), len(FlatnessRow._fields) - 2))

    @property
    def rows(self) -> int:
        return int(self._counts.sum())

    def update(self, weights: ArrayLike, slots: ArrayLike) -> None:
        """Add attention (N, L), oldest first, of which (N,) slots from the nearest on held a word; L may change."""
        rows, held = np.asarray(weights, dtype=np.float64), np.asarray(slots)
        if not (np.isfinite(rows).all() and (rows >= 0).all()):
            raise InputError("weights", limit="every weight must be a finite number that is not negative")
        window = rows.shape[1]
        rows = np.where(np.arange(window) >= window - held[:, None], rows, 0.0)
        counted = (held >= 2) & (rows.sum(axis=1) > 0)
        self.left_out += int((~counted).sum())
        measured, group = _measured(rows[counted], held[counted]), np.digitize(held[counted], [*GROUPS.values()]) - 1
        self._counts += np.bincount(group, minlength=len(GROUPS))
        for number in range(len(GROUPS)):
            self._sums[number] += measured[group == number].sum(axis=0)

    def result(self) -> Flatness:
        """Return the means so far."""
        if self.rows == 0:
            slots = "words" if self.span == 1 else "spans"
            raise InputError("flatness", limit=f"none of {self.left_out} positions has two {slots} to look at")
        columns = zip(GROUPS, self._counts.tolist(), self._sums, strict=True)
        groups = tuple(_row(name, count, sums) for name, count, sums in columns if count > 0)
        overall = _row(ALL, self.rows, self._sums.sum(axis=0))
        return Flatness(groups, overall, self.left_out, self.nearest_lag, self.span)


def _measured(rows: NDArray[np.float64], slots: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the quantities to average, (N, 5), for rows with weight and at least two slots to choose from."""
    on_words = rows.sum(axis=1)
    shares = rows / on_words[:, None]
    # 0 ln 0 = 0
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=1)
    largest = shares.max(axis=1, initial=0)
    return np.stack([entropy / np.log(slots), largest, shares[:, -1], 1 / slots, 1 - on_words], axis=1)


def _row(slots: str, count: int, sums: NDArray[np.float64]) -> FlatnessRow:
    row = FlatnessRow(slots, count, *(float(total) / count for total in sums))
    # softmax rows miss 1 by rounding
    return row._replace(on_no_word=max(0.0, row.on_no_word))


def mean_flatness(records: Sequence[AttentionRecord]) -> Flatness | None:
    """Return the flatness over all rows of several records of one model; None where no row has a choice."""
    accumulator = FlatnessAccumulator(records[0].nearest_lag)
    for record in records:
        weights, held = record.weights, record.occupied.sum(axis=1)
        # of written words, the one just read may not be in a slot yet
        late = (held > 0) & (weights[:, -1] == 0) & record.of_written_words
        weights = np.where(late[:, None], np.roll(weights, 1, axis=1), weights)
        accumulator.update(weights, held - late)
    return accumulator.result() if accumulator.rows else None
