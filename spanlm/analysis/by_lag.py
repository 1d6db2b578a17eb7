"""Mean attention by lag (Daniluk et al. 2017, Fig. 3b), measured and published.

    m_i = 100 / |F| · sum_{t in F} α_{t,i},   F = {t : the window of t is full}

While a text opens, the window holds fewer than L words and the same weight is shared among fewer of them;
those positions would lift the recent lags. Only full windows are averaged, and the positions left out are
counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spanlm.errors import InputError, nearest, require

LAST = 5
PUBLISHED_SOURCE = "Daniluk et al. 2017, Fig. 3b (Wikipedia test set)"
# lags 15 ... 1 in percent. RM(+tM-g) is not here: the last number of its row is illegible in what we have
PUBLISHED: dict[str, tuple[float, ...]] = {
    "attention": (4.6, 4.6, 4.7, 4.7, 4.9, 5.0, 5.2, 5.5, 5.8, 6.2, 6.8, 7.5, 8.8, 11.1, 14.7),
    "key-value": (4.2, 4.2, 4.3, 4.4, 4.5, 4.7, 5.0, 5.3, 5.8, 6.3, 7.1, 8.0, 9.5, 11.8, 14.9),
    "key-value-predict": (4.0, 4.0, 4.0, 4.1, 4.2, 4.4, 4.6, 4.9, 5.4, 5.9, 6.7, 7.8, 9.5, 12.5, 17.8),
}


@dataclass(frozen=True)
class LagProfile:
    """Mean attention by lag.

    Attributes:
        percent: (L,) mean weight in percent for lags L, L - 1, ... 1; sums to 100.
        positions: Positions averaged: those whose window was full.
        left_out: Positions seen whose window was not full.
    """

    percent: tuple[float, ...]
    positions: int
    left_out: int

    @property
    def window(self) -> int:
        """L, how many words back the model could look."""
        return len(self.percent)

    @property
    def lags(self) -> range:
        """The lag of each number in `percent`: L, L - 1, ... 1."""
        return range(self.window, 0, -1)

    @property
    def last_five(self) -> float:
        """Percent of the attention on the five most recent words (all of it where L <= 5)."""
        return sum(self.percent[-LAST:])


class LagRow(NamedTuple):
    """One lag: what was measured beside what was published (None where nothing was), both in percent."""

    lag: int
    measured: float
    published: float | None


class LagAccumulator:
    """Sums attention by lag over a test set of any size, keeping L numbers in memory."""

    def __init__(self) -> None:
        self.positions = 0
        self.left_out = 0
        self._sum: NDArray[np.float64] | None = None

    def update(self, weights: ArrayLike) -> None:
        """Add the rows of `weights` (N, L); column j is lag L - j.

        A window is full if its oldest slot, column 0, has weight: a memory fills from lag 1 on, and a softmax
        gives every filled slot some. Rows of zeros (padding, an empty memory) are therefore left out.

        Raises:
            InputError: If `weights` is not (N, L), L changed since the last call, or a weight is not finite.
        """
        rows = np.asarray(weights)
        require(rows.ndim == 2 and rows.shape[1] > 0, "weights.shape", rows.shape, "(N, L) with L at least 1")
        if self._sum is None:
            self._sum = np.zeros(rows.shape[1])
        window = len(self._sum)
        require(rows.shape[1] == window, "weights.shape", rows.shape, f"(N, {window}) as in the first update")
        if not np.isfinite(rows).all():
            raise InputError("weights: every weight must be a finite number")
        full = rows[:, 0] > 0
        # float64: a test set has a million rows, and float32 stops adding small weights long before
        self._sum += rows[full].sum(axis=0, dtype=np.float64)
        self.positions += int(full.sum())
        self.left_out += int((~full).sum())

    def profile(self) -> LagProfile:
        """Return the means so far.

        Raises:
            InputError: If no position had a full window.
        """
        if self._sum is None or self.positions == 0:
            raise InputError(
                f"attention by lag: none of {self.left_out} positions has a full window; give a longer text"
            )
        percent = tuple(float(mean) for mean in 100 * self._sum / self.positions)
        return LagProfile(percent, self.positions, self.left_out)


def mean_by_lag(weights: ArrayLike) -> LagProfile:
    """Return the mean attention by lag of `weights` (N, L) over the positions whose window is full.

    Raises:
        InputError: As `LagAccumulator.update` and `LagAccumulator.profile`.
    """
    accumulator = LagAccumulator()
    accumulator.update(weights)
    return accumulator.profile()


def published_by_lag(model: str | None, window: int) -> tuple[float, ...] | None:
    """Return the published percent for lags `window` ... 1, or None: only window 15 was published.

    Raises:
        InputError: If `model` is neither None nor a name in `PUBLISHED`.
    """
    if model is None:
        return None
    if model not in PUBLISHED:
        raise InputError(f"model={model}: no attention by lag was published for it.{nearest(model, PUBLISHED)}")
    row = PUBLISHED[model]
    return row if len(row) == window else None


def format_lag_table(profile: LagProfile, model: str | None = None) -> list[LagRow]:
    """Set the measured percent beside the published one of `model`, oldest lag first.

    Raises:
        InputError: As `published_by_lag`.
    """
    published = published_by_lag(model, profile.window) or (None,) * profile.window
    return [LagRow(*row) for row in zip(profile.lags, profile.percent, published, strict=True)]
