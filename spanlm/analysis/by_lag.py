"""Mean attention by lag (Daniluk et al. 2017, Fig. 3b), measured.

    m_i = 100 / |F| · sum_{t in F} α_{t,i},   F = {t : the window of t is full}

While a text opens, the window holds fewer than L words and the same weight is shared among fewer of them;
those positions would lift the recent lags. Only full windows are averaged, and the positions left out are
counted. A window that grows with the text is never full: there the nearest lags are told apart, the weight of all that
is older is one number, and F are the positions that have a word at each of the nearest lags. Spans of several words
have the lags where they end: one in every L.

Column j of a window of L is lag L - 1 - j + n, where n is the nearest lag: 1 where the window ends at the step
before, 0 where it holds the current word, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spanlm.errors import InputError, require

LAST = 5
LEAST_SHOWN = 0.05
"""Percent that one decimal can show: softmax rows miss 100 by rounding."""


MOST_ROWS = 50
"""Lags that a table has a row for, each."""


def lag_range(window: int, nearest_lag: int, span: int = 1) -> range:
    """Return the lag of each of `window` columns, oldest first; of spans the lag where each ends."""
    return range((window - 1) * span + nearest_lag, nearest_lag - 1, -span)


def lag_groups(lags: range) -> list[range]:
    """Cut lags, oldest first, into the rows of a table: one each, or if they are many the nearest 1, 1, 2, 4, 8, …."""
    if len(lags) <= MOST_ROWS:
        return [lags[number : number + 1] for number in range(len(lags))]
    edges = [0, *(2**power for power in range((len(lags) - 1).bit_length())), len(lags)]
    return [lags[len(lags) - far : len(lags) - near] for near, far in pairwise(edges)][::-1]


def signed(lag: int) -> str:
    """Write a lag as the paper's axis does: −3 is three words back, 0 the current word."""
    return f"−{lag}" if lag else "0"


def in_words(lag: int) -> str:
    """Write a lag where nothing else explains it."""
    return signed(lag) if lag else "0 (current word)"


def axis_title(nearest_lag: int, span: int = 1) -> str:
    """Return what stands at an axis of lags."""
    if span > 1:
        return f"words back to the last word of a span of {span}"
    return "words back" if nearest_lag else "words back (0: the current word)"


@dataclass(frozen=True)
class LagProfile:
    """Mean attention by lag.

    Attributes:
        percent: (L,) mean weight in percent, oldest lag first; sums to 100 but for what is `older` or `null_mass`.
        positions: Positions averaged: those whose window was full.
        left_out: Positions seen whose window was not full.
        nearest_lag: The lag of the last number.
        older: Percent on lags beyond the first number, of a window that grows with the text; else None.
        span: How many words what is attended stands for: spans of several have the lag of their last word.
        fixed: Spans end at every `span`-th word of the text: at their lags or up to `span` - 1 words before.
    """

    percent: tuple[float, ...]
    positions: int
    left_out: int
    nearest_lag: int = 1
    older: float | None = None
    span: int = 1
    fixed: bool = False

    @property
    def window(self) -> int:
        """L, how many words or spans the model could look at, or how many lags are told apart."""
        return len(self.percent)

    @property
    def lags(self) -> range:
        """The lag of each number in `percent`, down to the nearest."""
        return lag_range(self.window, self.nearest_lag, self.span)

    @property
    def alike(self) -> tuple[int, bool, int]:
        """What the lags are of, which side by side must be the same: `span`, `fixed`, `nearest_lag`."""
        return self.span, self.fixed, self.nearest_lag

    @property
    def last_five(self) -> float:
        """Percent of the attention on the five most recent words or spans (on all where L <= 5)."""
        return sum(self.percent[-LAST:])

    @property
    def null_mass(self) -> float:
        """Percent that lies on no word: on the sentinel of a pointer (its mean gate), on a zero slot."""
        return max(0.0, 100 - sum(self.percent) - (self.older or 0.0))

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as they stand in files."""
        return {
            "window": self.window,
            "positions": self.positions,
            "left_out": self.left_out,
            "last_five_percent": self.last_five,
            "on_no_step_percent": self.null_mass,
            "older_percent": self.older,
            "span": self.span,
            "fixed": self.fixed,
            "lags": list(self.lags),
            "measured_percent": self.percent,
        }

    @property
    def slots(self) -> str:
        """What is attended, in a word."""
        return "words" if self.span == 1 else "spans"

    @property
    def about_spans(self) -> str:
        """What must be known of the lags of spans, in a sentence; empty where there are none."""
        if self.span == 1:
            return ""
        if self.fixed:
            return (
                f"A span of {self.span} words ends after every {self.span} words of the text: its last word is at one "
                f"of {self.span} neighbouring lags, of which a figure names the nearest."
            )
        return f"A span of {self.span} words stands at the lag of its last word; none ends at the lags between."

    def label(self, farthest: int, nearest: int | None = None) -> str:
        """Write one of the lags, or those from one to another."""
        nearest, farthest = farthest if nearest is None else nearest, farthest + self.fixed * (self.span - 1)
        return f"{signed(farthest)} … {in_words(nearest)}" if farthest > nearest else in_words(nearest)

    @property
    def counted(self) -> str:
        """Which positions these are, in words."""
        return "with a full window" if self.older is None else f"with at least {self.window} words to look back at"


class LagAccumulator:
    """Sums attention by lag over a test set of any size, keeping L numbers in memory.

    Args:
        nearest: how many lags to tell apart of a window that grows with the text; None: it is of one length.

    Raises:
        InputError: If `nearest` is below 1.
    """

    def __init__(self, nearest: int | None = None) -> None:
        require(nearest is None or nearest >= 1, "nearest", nearest, "at least 1")
        self._nearest, self._older = nearest, 0.0
        self.positions = 0
        self.left_out = 0
        self._nearest_lag = 1
        self._sum: NDArray[np.float64] | None = None

    def update(self, weights: ArrayLike, slots: ArrayLike, nearest_lag: int = 1) -> None:
        """Add rows of attention.

        Args:
            weights: (N, L), column j is lag L - 1 - j + `nearest_lag`. Of a window that grows, of any width.
            slots: (N,), how many of them, counted from the nearest, held a word. The weights do not tell: that of a
                word which a model is sure to have no use for is 0 in float32.
            nearest_lag: the lag of the last column.

        Raises:
            InputError: If L changed since the last call, or a weight is not finite.
        """
        rows, held = np.asarray(weights), np.asarray(slots)
        older = np.zeros(len(rows))
        if self._nearest is not None:
            older = rows[:, : -self._nearest].sum(axis=1, dtype=np.float64)
            rows = np.pad(rows, ((0, 0), (self._nearest, 0)))[:, -self._nearest :]
        if self._sum is None:
            self._sum, self._nearest_lag = np.zeros(rows.shape[1]), nearest_lag
        window = len(self._sum)
        require(rows.shape[1:] == (window,), "weights.shape", rows.shape, f"(N, {window}) as in the first update")
        if not (np.isfinite(rows).all() and np.isfinite(older).all()):
            raise InputError("weights: every weight must be a finite number")
        full = held >= window
        # float64: a test set has a million rows, and float32 stops adding small weights long before
        self._sum += rows[full].sum(axis=0, dtype=np.float64)
        self._older += float(older[full].sum())
        self.positions += int(full.sum())
        self.left_out += int((~full).sum())

    def profile(self) -> LagProfile:
        """Return the means so far.

        Raises:
            InputError: If no position had a full window.
        """
        if self._sum is None or self.positions == 0:
            wanted = "a full window" if self._nearest is None else f"{self._nearest} words to look back at"
            raise InputError(f"attention by lag: none of {self.left_out} positions has {wanted}; give a longer text")
        percent = tuple(float(mean) for mean in 100 * self._sum / self.positions)
        older = None if self._nearest is None else 100 * self._older / self.positions
        return LagProfile(percent, self.positions, self.left_out, self._nearest_lag, older)
