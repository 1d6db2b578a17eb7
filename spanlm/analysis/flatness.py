"""How flat attention is: in a number what Salton et al. (2017, §5) saw in their Figures 2 and 3.

    flatness = 1/|R| · Σ_{t in R} H_t / ln n_t,    H_t = -Σ_i p_ti ln p_ti,    p_ti = a_ti / Σ_j a_tj

n_t is how many slots held a word at step t, and R are the steps with n_t >= 2: with one there is no choice. 1: the same
weight on every word; 0: all of it on one. What lies on no word (the sentinel of a pointer, a zero slot) is left out of
p and reported beside it. In a span buffer a slot holds a span.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spanlm.errors import InputError

GROUPS: dict[str, tuple[int, int | None]] = {
    "2-5": (2, 5),
    "6-10": (6, 10),
    "11-20": (11, 20),
    "21-35": (21, 35),
    "36-100": (36, 100),
    "101-255": (101, 255),
    ">255": (256, None),
}
"""Name -> the least and the greatest number of slots."""
ALL = "all"


class FlatnessRow(NamedTuple):
    """Means over the rows of one group, shares of what lies on words.

    Attributes:
        slots: how many there were to choose from, a name in `GROUPS` or `ALL`.
        rows: how many rows.
        flatness: entropy over that of equal weights.
        largest: the largest weight.
        nearest: the weight of the nearest slot.
        equal: what `largest` and `nearest` are where all weights are equal, 1 / n.
        on_no_word: the share that lies on no word, before the row is scaled.
    """

    slots: str
    rows: int
    flatness: float
    largest: float
    nearest: float
    equal: float
    on_no_word: float


@dataclass(frozen=True)
class Flatness:
    """Of a text or a corpus.

    Attributes:
        groups: by number of slots, those that have rows.
        overall: all rows.
        left_out: rows with fewer than two slots, or with no weight on any word.
        nearest_lag: the lag of the nearest slot: 1 is the word before the one just read, 0 that itself.
        span: how many words a slot stands for; the nearest of several is the span that ended last.
    """

    groups: tuple[FlatnessRow, ...]
    overall: FlatnessRow
    left_out: int
    nearest_lag: int
    span: int = 1


class FlatnessAccumulator:
    """Sums over a corpus of any size, keeping a few numbers for each group."""

    def __init__(self, nearest_lag: int = 1) -> None:
        self.nearest_lag, self.span = nearest_lag, 1
        self.left_out = 0
        self._counts = np.zeros(len(GROUPS), dtype=np.int64)
        self._sums = np.zeros((len(GROUPS), len(FlatnessRow._fields) - 2))

    @property
    def rows(self) -> int:
        """How many rows were counted."""
        return int(self._counts.sum())

    def update(self, weights: ArrayLike, slots: ArrayLike) -> None:
        """Add rows of attention, whose window may be of another length at every call.

        Args:
            weights: (N, L), oldest first.
            slots: (N,), how many of them, counted from the nearest, held a word.

        Raises:
            InputError: A weight that is negative or not finite.
        """
        rows, held = np.asarray(weights, dtype=np.float64), np.asarray(slots)
        if not (np.isfinite(rows).all() and (rows >= 0).all()):
            raise InputError("weights: every weight must be a finite number that is not negative")
        window = rows.shape[1]
        rows = np.where(np.arange(window) >= window - held[:, None], rows, 0.0)
        counted = (held >= 2) & (rows.sum(axis=1) > 0)
        self.left_out += int((~counted).sum())
        measured = _measured(rows[counted], held[counted])
        for number, (least, most) in enumerate(GROUPS.values()):
            inside = (held[counted] >= least) & (held[counted] <= (most or window))
            self._counts[number] += inside.sum()
            self._sums[number] += measured[inside].sum(axis=0)

    def result(self) -> Flatness:
        """Return the means so far.

        Raises:
            InputError: If no row had two words to choose from.
        """
        if self.rows == 0:
            what = "words" if self.span == 1 else "spans"
            raise InputError(f"flatness: none of {self.left_out} positions has two {what} to look at")
        groups = (
            _row(name, count, sums)
            for name, count, sums in zip(GROUPS, self._counts, self._sums, strict=True)
            if count > 0
        )
        overall = _row(ALL, self.rows, self._sums.sum(axis=0))
        return Flatness(tuple(groups), overall, self.left_out, self.nearest_lag, self.span)


def _measured(rows: NDArray[np.float64], slots: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what is averaged, (N, 5), of rows with weight on two slots or more to choose from."""
    on_words = rows.sum(axis=1)
    shares = rows / on_words[:, None]
    # 0 ln 0 = 0
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=1)
    return np.stack(
        [entropy / np.log(slots), shares.max(axis=1, initial=0), shares[:, -1], 1 / slots, 1 - on_words], axis=1
    )


def _row(slots: str, count: int | np.int64, sums: NDArray[np.float64]) -> FlatnessRow:
    flatness, largest, nearest, equal, on_no_word = (float(total) / int(count) for total in sums)
    # softmax rows miss 1 by rounding
    return FlatnessRow(slots, int(count), flatness, largest, nearest, equal, max(0.0, on_no_word))
