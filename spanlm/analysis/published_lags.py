"""Mean attention by lag as Daniluk et al. (2017) printed it in Figure 3b, for models with windows of 15."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spanlm.analysis.lags import lag_range, signed
from spanlm.errors import InputError, nearest, require

PUBLISHED_SOURCE = "Daniluk et al. 2017, Fig. 3b (Wikipedia test set)"
ABOUT, HOLLOW = "≈", "Hollow mark"
"""How a number that was inferred is marked: in tables, in figures."""


@dataclass(frozen=True)
class PublishedRow:
    """One row of the figure.

    Attributes:
        percent: Mean weight in percent, oldest lag first.
        nearest_lag: The lag of the last number. The figure's axis counts positions, −15 ... −1. Position −1 is the
            word before the current one, lag 1, except for RM(+tM-g), whose window holds the current word: lag 0.
        inferred_lags: Lags whose number could not be read and was inferred from the others.
        scaled: Not as printed, but cut to a shorter window and scaled to sum to 100.
    """

    percent: tuple[float, ...]
    nearest_lag: int = 1
    inferred_lags: tuple[int, ...] = ()
    scaled: bool = False

    @property
    def lags(self) -> range:
        """The lag of each number in `percent`."""
        return lag_range(len(self.percent), self.nearest_lag)

    def cut(self, window: int) -> PublishedRow:
        """Keep the `window` nearest lags, scaled to sum to 100: a shorter window can look no further.

        Raises:
            InputError: If `window` is longer than the row, or below 1.
        """
        require(1 <= window <= len(self.percent), "window", window, f"from 1 to {len(self.percent)}")
        if window == len(self.percent):
            return self
        kept = self.percent[-window:]
        return replace(self, percent=tuple(100 * x / sum(kept) for x in kept), scaled=True)


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


def published_row(model: str | None) -> PublishedRow | None:
    """Return what was published of `model`, None of None.

    Raises:
        InputError: If `model` is neither None nor a name in `PUBLISHED`.
    """
    if model is None:
        return None
    if model not in PUBLISHED:
        raise InputError(f"model={model}: no attention by lag was published for it.{nearest(model, PUBLISHED)}")
    return PUBLISHED[model]


def published_by_lag(model: str | None, window: int) -> PublishedRow | None:
    """Return the published row of `model`, or None if it is not of this window.

    Raises:
        InputError: As `published_row`.
    """
    row = published_row(model)
    return row if row is not None and len(row.percent) == window else None


def published_cut(model: str | None, window: int) -> PublishedRow | None:
    """Return the published row of `model` cut to `window`, or None if it is shorter than that.

    Raises:
        InputError: As `published_row`.
    """
    row = published_row(model)
    return row.cut(window) if row is not None and window <= len(row.percent) else None


def published_notes(rows: Sequence[PublishedRow], mark: str = ABOUT) -> list[str]:
    """Say what must be known of `rows` wherever they are shown, a sentence each.

    Args:
        rows: what is shown.
        mark: how a number that was inferred is marked there.
    """
    notes = []
    if any(row.scaled for row in rows):
        notes.append("The paper's windows are 15: for shorter ones its rows are cut, and scaled to sum to 100.")
    inferred = sorted({signed(lag) for row in rows for lag in row.inferred_lags})
    if inferred:
        lags = ", ".join(inferred)
        notes.append(
            f"{mark} (lag {lags}): illegible in the text of the paper that we have; what its row lacks to 100."
        )
    if any(row.nearest_lag == 0 for row in rows):
        notes.append("The paper's position −1 of RM(+tM-g) is the current word: lag 0 here.")
    return notes
