"""Mean attention by lag (Daniluk et al., 2017, Figure 3b): measured, published, and both side by side.

    m_i = 100 / |F| · sum_{t in F} α_{t,i},   F = {t : the window of t is full}

At the beginning of a text the window holds fewer than L words, which share all weight; these positions would lift the
recent lags. Only full windows are averaged, and the positions left out are counted. A window that grows with the text
is never full: its nearest lags have a number each, all older words one together, and F are the positions with a word at
each of the nearest lags. The lag of a span is that of its last word.

Column j of a window of L is lag L - 1 - j + n, where n is the nearest lag: 1 where the window ends at the step before,
0 where it holds the current word, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spanlm.errors import InputError, require
from spanlm.models.interfaces import Attention

LAST = 5
LEAST_SHOWN = 0.05
"""Percent that one decimal can show: softmax rows miss 100 by rounding."""
MOST_ROWS = 50
"""Of a table: lags up to this many have a row each."""


def _lag_range(window: int, nearest_lag: int, span: int = 1) -> range:
    """Return lags, oldest first; a span has the lag of its last word."""
    return range((window - 1) * span + nearest_lag, nearest_lag - 1, -span)


def signed(lag: int) -> str:
    """Write a lag as the paper's axis does: −3 is three words back, 0 the current word."""
    return f"−{lag}" if lag else "0"


def axis_title(nearest_lag: int, span: int = 1) -> str:
    if span > 1:
        return f"words back to the last word of a span of {span}"
    return "words back" if nearest_lag else "words back (0: the current word)"


# --- measured ---


@dataclass(frozen=True)
class LagProfile:
    """Mean attention by lag."""

    # (L,) mean weight in percent, oldest lag first; sums to 100 but for `older` and `null_mass`
    percent: tuple[float, ...]
    positions: int  # the number of positions averaged: those with a full window
    left_out: int  # the number of other positions
    nearest_lag: int = 1  # the lag of the last number
    # percent on lags beyond the first number, for a window that grows with the text; else None
    older: float | None = None
    span: int = 1  # number of words in a slot: 1 for words, more for spans

    @property
    def window(self) -> int:
        """L, the number of lags that have a number of their own."""
        return len(self.percent)

    @property
    def lags(self) -> range:
        return _lag_range(self.window, self.nearest_lag, self.span)

    @property
    def last_five(self) -> float:
        """Percent of the attention on the five most recent words or spans (on all where L <= 5)."""
        return sum(self.percent[-LAST:])

    @property
    def null_mass(self) -> float:
        """Percent of weight on no word: on the sentinel of a pointer (its mean gate)."""
        return max(0.0, 100 - sum(self.percent) - (self.older or 0.0))

    @property
    def counted(self) -> str:
        return "with a full window" if self.older is None else f"with at least {self.window} words to look back at"

    def to_json(self) -> dict[str, Any]:
        return {
            "window": self.window,
            "positions": self.positions,
            "left_out": self.left_out,
            "last_five_percent": self.last_five,
            "on_no_step_percent": self.null_mass,
            "older_percent": self.older,
            "span": self.span,
            "fixed": False,  # spans are never on a fixed grid; readers of these files may ask
            "lags": list(self.lags),
            "measured_percent": self.percent,
        }


class LagAccumulator:
    """Sums attention by lag over a corpus of any size; it holds L numbers.

    `nearest` (at least 1) says how many lags get a number of their own, for a window that grows with the text.
    """

    def __init__(self, nearest: int | None = None) -> None:
        require(nearest is None or nearest >= 1, "nearest", nearest, "at least 1")
        self._nearest, self._older = nearest, 0.0
        self.positions: int = 0
        self.left_out: int = 0
        self.nearest_lag = self.span = 1
        self._sum: NDArray[np.float64] | None = None

    def update(self, weights: ArrayLike, slots: ArrayLike) -> None:
        """Add rows of attention (N, L), oldest lag first, of which (N,) slots from the nearest on held a word.

        The weights do not show that: one can be 0 in float32. L may change between calls if the window grows.
        """
        rows, held = np.asarray(weights), np.asarray(slots)
        older = np.zeros(len(rows))
        if self._nearest is not None:
            older = rows[:, : -self._nearest].sum(axis=1, dtype=np.float64)
            rows = np.pad(rows, ((0, 0), (self._nearest, 0)))[:, -self._nearest :]
        if self._sum is None:
            self._sum = np.zeros(rows.shape[1])
        window = len(self._sum)
        require(rows.shape[1:] == (window,), "weights.shape", rows.shape, f"(N, {window}) as in the first update")
        if not (np.isfinite(rows).all() and np.isfinite(older).all()):
            raise InputError("weights", limit="every weight must be a finite number")
        full = held >= window
        # float64: a test set has a million rows, and float32 stops adding small weights long before
        self._sum += rows[full].sum(axis=0, dtype=np.float64)
        self._older += float(older[full].sum())
        self.positions += int(full.sum())
        self.left_out += int((~full).sum())

    def profile(self) -> LagProfile:
        """Return the means so far."""
        if self._sum is None or self.positions == 0:
            wanted = "a full window" if self._nearest is None else f"{self._nearest} words to look back at"
            raise InputError(f"attention by lag: none of {self.left_out} positions has {wanted}; give a longer text")
        percent = tuple(float(mean) for mean in 100 * self._sum / self.positions)
        older = None if self._nearest is None else 100 * self._older / self.positions
        return LagProfile(percent, self.positions, self.left_out, self.nearest_lag, older, self.span)


# --- published ---

PUBLISHED_SOURCE = "Daniluk et al. 2017, Fig. 3b (Wikipedia test set)"
ABOUT, HOLLOW = "≈", "Hollow mark"
"""Mark of a number that was inferred: in tables, in figures."""


@dataclass(frozen=True)
class PublishedRow:
    """One row of the paper's figure."""

    percent: tuple[float, ...]  # (L,) mean weight in percent, oldest lag first
    # the lag of the last number. The figure's axis counts positions, −15 ... −1. Position −1 is the word before the
    # current one, lag 1, except for RM(+tM-g), whose window holds the current word: lag 0.
    nearest_lag: int = 1
    inferred_lags: tuple[int, ...] = ()  # lags whose number could not be read and was inferred from the others
    scaled: bool = False  # cut to a shorter window and scaled to sum to 100

    @property
    def lags(self) -> range:
        return _lag_range(len(self.percent), self.nearest_lag)


RECURRENT_MEMORY = "RM(+tM-g)"

# the last number of RM(+tM-g) is illegible in what we have of the paper: it is what the others lack to 100
PUBLISHED: dict[str, PublishedRow] = {
    "attention": PublishedRow((4.6, 4.6, 4.7, 4.7, 4.9, 5.0, 5.2, 5.5, 5.8, 6.2, 6.8, 7.5, 8.8, 11.1, 14.7)),
    "key-value": PublishedRow((4.2, 4.2, 4.3, 4.4, 4.5, 4.7, 5.0, 5.3, 5.8, 6.3, 7.1, 8.0, 9.5, 11.8, 14.9)),
    "key-value-predict": PublishedRow((4.0, 4.0, 4.0, 4.1, 4.2, 4.4, 4.6, 4.9, 5.4, 5.9, 6.7, 7.8, 9.5, 12.5, 17.8)),
    RECURRENT_MEMORY: PublishedRow(
        (1.6, 2.1, 2.0, 2.1, 2.3, 2.3, 2.6, 2.9, 3.5, 4.1, 4.9, 5.9, 8.6, 15.2, 39.9),
        nearest_lag=0,
        inferred_lags=(0,),
    ),
}


# --- side by side ---


@dataclass(frozen=True)
class MeasuredLags:
    """The lags of the model `name` on a corpus and split, `text`; `model` is its row in `PUBLISHED`, if any."""

    name: str
    text: str
    profile: LagProfile
    model: str | None = None

    @property
    def published(self) -> PublishedRow | None:
        """The paper's row: as printed, or for a shorter window cut and scaled to sum to 100; None for a longer one."""
        row = None if self.model is None else PUBLISHED[self.model]
        if row is None or self.profile.window > len(row.percent):
            return None
        if self.profile.window == len(row.percent):
            return row
        nearest = row.percent[-self.profile.window :]
        return replace(row, percent=tuple(100 * x / sum(nearest) for x in nearest), scaled=True)


def check_alike(attentions: Mapping[str, Attention]) -> None:
    """Refuse models whose shares cannot be compared: by name, how each attends."""
    slots = {
        name: "words"
        if attention.stride == 1
        else f"spans of {attention.stride} words{', up to the current word' * (not attention.nearest_lag)}"
        for name, attention in attentions.items()
    }
    (first, of_first), *others = slots.items()
    for name, of_other in others:
        if of_other != of_first:
            raise InputError(
                f"by lag: {first} looks at {of_first} and {name} at {of_other}, whose shares cannot be compared: "
                "name one alone, or models that look at the same"
            )


def notes(measured: Sequence[MeasuredLags], rows: Sequence[PublishedRow] | None = None, mark: str = ABOUT) -> list[str]:
    """Return notes for readers of the numbers, a sentence each.

    `rows` are the paper's that are shown; None: all that `measured` can be compared with. `mark` marks inferred ones.
    """
    if rows is None:
        rows = [model.published for model in measured if model.published is not None]
    profiles = [model.profile for model in measured]
    counted = " or ".join(dict.fromkeys(profile.counted for profile in profiles))
    sentences = [f"Mean over positions {counted}: {', '.join(dict.fromkeys(model.text for model in measured))}."]
    if (span := profiles[0].span) > 1:
        sentences.append(f"A span of {span} words stands at the lag of its last word; none ends at the lags between.")
    if len({(profile.window, profile.older is None) for profile in profiles}) > 1:
        sentences.append("Shares of windows of different lengths cannot be compared with each other.")
    older = [f"{model.name} {model.profile.older:.1f} %" for model in measured if model.profile.older is not None]
    if older:
        sentences.append(f"On older words, of memories that hold all since the last reset: {', '.join(older)}.")
    null = [
        f"{model.name} {model.profile.null_mass:.1f} %" for model in measured if model.profile.null_mass >= LEAST_SHOWN
    ]
    if null:
        sentences.append(f"On no word: {', '.join(null)}.")
    if rows:
        sentences.append(f"Paper: {PUBLISHED_SOURCE}.")
    if any(row.scaled for row in rows):
        sentences.append("The paper's windows are 15: for shorter ones its rows are cut, and scaled to sum to 100.")
    if inferred := sorted({signed(lag) for row in rows for lag in row.inferred_lags}):
        lags = ", ".join(inferred)
        sentences.append(
            f"{mark} (lag {lags}): illegible in the text of the paper that we have; what its row lacks to 100."
        )
    if any(row.nearest_lag == 0 for row in rows):
        sentences.append("The paper's position −1 of RM(+tM-g) is the current word: lag 0 here.")
    return sentences


def lag_columns(measured: Sequence[MeasuredLags]) -> list[list[str]]:
    """Return a table as rows of cells: a row for each lag, a column for each model and, beside it, for the paper.

    Many lags are summed in groups; one model then has a column with the shares of equal weights.
    """
    profiles = [model.profile for model in measured]
    first, span = profiles[0], profiles[0].span
    far, near = max(profile.lags[0] for profile in profiles), min(profile.lags[-1] for profile in profiles)
    groups = _lag_groups(range(far, near - 1, -span))
    labels = [signed(group[-1]) if group[-1] else "0 (current word)" for group in groups]
    labels = [
        f"{signed(group[0])} … {label}" if len(group) > 1 else label
        for group, label in zip(groups, labels, strict=True)
    ]
    columns = [["lag", "older", *labels, f"last {LAST}{' spans' * (span > 1)}", "positions"]]
    for model in measured:
        profile, row = model.profile, model.published
        older = "" if profile.older is None else f"{profile.older:.1f}"
        cells = _cells(groups, profile.lags, profile.percent)
        columns.append([model.name, older, *cells, f"{profile.positions:,}"])
        if row is not None:
            columns.append(["paper", "", *_cells(groups, row.lags, row.percent, row.inferred_lags), ""])
    if len(measured) == 1 and len(groups) < first.window:
        columns.append(["if equal", "", *_cells(groups, first.lags, [100 / first.window] * first.window), ""])
    return [[*row] for row in zip(*columns, strict=True) if row[0] != "older" or any(row[1:])]


def _lag_groups(lags: range) -> list[range]:
    """Cut lags, oldest first, into the rows of a table: one each, or if they are many the nearest 1, 1, 2, 4, 8, …."""
    if len(lags) <= MOST_ROWS:
        return [lags[number : number + 1] for number in range(len(lags))]
    edges = [0, *(2**power for power in range((len(lags) - 1).bit_length())), len(lags)]
    return [lags[len(lags) - far : len(lags) - near] for near, far in pairwise(edges)][::-1]


def _cells(groups: Sequence[range], lags: range, percent: Sequence[float], inferred: Sequence[int] = ()) -> list[str]:
    """Write the share of each group, and of the nearest five lags."""
    by_lag, cells = dict(zip(lags, percent, strict=True)), []
    for group in (*groups, lags[-LAST:]):
        measured = [lag for lag in group if lag in by_lag]
        about = ABOUT * any(lag in inferred for lag in measured)
        cells.append(f"{about}{sum(by_lag[lag] for lag in measured):.1f}" if measured else "")
    return cells
