"""Mean attention by lag beside what Daniluk et al. (2017) printed in Figure 3b, and several models side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from spanlm.analysis.by_lag import LAST, LEAST_SHOWN, LagProfile, lag_groups, lag_range, signed
from spanlm.errors import InputError, nearest

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


def published_by_lag(model: str | None, window: int, *, cut: bool = False) -> PublishedRow | None:
    """Return the published row of `model`, or None if it is not of this window.

    A longer row can be cut to the nearest lags and scaled to sum to 100: a shorter window can look no further.

    Raises:
        InputError: If `model` is neither None nor a name in `PUBLISHED`.
    """
    if model is None:
        return None
    if model not in PUBLISHED:
        raise InputError(f"model={model}: no attention by lag was published for it.{nearest(model, PUBLISHED)}")
    row = PUBLISHED[model]
    if not cut or window >= len(row.percent):
        return row if window == len(row.percent) else None
    kept = row.percent[-window:]
    return replace(row, percent=tuple(100 * x / sum(kept) for x in kept), scaled=True)


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


class LagRow(NamedTuple):
    """One lag: what was measured beside what was published (None where nothing was), both in percent.

    `inferred`: the published number could not be read, see `PublishedRow`.
    """

    lag: int
    measured: float
    published: float | None
    inferred: bool = False


def format_lag_table(profile: LagProfile, model: str | None = None) -> list[LagRow]:
    """Set the measured percent beside the published one of `model`, oldest lag first.

    Raises:
        InputError: As `published_by_lag`.
    """
    row = published_by_lag(model, profile.window)
    published = {} if row is None else dict(zip(row.lags, row.percent, strict=True))
    inferred = () if row is None else row.inferred_lags
    return [
        LagRow(lag, percent, published.get(lag), lag in inferred)
        for lag, percent in zip(profile.lags, profile.percent, strict=True)
    ]


@dataclass(frozen=True)
class MeasuredLags:
    """What one model did on one text.

    Attributes:
        name: Of the model, for columns and legends.
        text: What it read: a corpus and a split.
        profile: Mean attention by lag.
        model: What it can stand beside, a name in `PUBLISHED`, or None.
    """

    name: str
    text: str
    profile: LagProfile
    model: str | None = None

    @property
    def published(self) -> PublishedRow | None:
        """The paper's row, cut to this window and scaled to sum to 100 where that is shorter than the paper's 15."""
        return published_by_lag(self.model, self.profile.window, cut=True)


def check_alike(slots: Mapping[str, tuple[int, bool, int]]) -> None:
    """Refuse models side by side whose lags are not of the same things.

    Args:
        slots: for each model, by name, how many words what it attends to stands for, whether on a fixed grid, and the
            nearest lag.

    Raises:
        InputError: Words beside spans, spans of another length or grid, or whose newest ends elsewhere.
    """
    (first, of_first), *others = ((name, _what(*span)) for name, span in slots.items())
    for name, what in others:
        if what != of_first:
            raise InputError(
                f"by lag: {first} looks at {of_first} and {name} at {what}, whose shares cannot stand side by side: "
                "name one alone, or such as look at the same"
            )


def _what(span: int, fixed: bool, nearest_lag: int) -> str:
    if span == 1:
        return "words"
    current = "" if nearest_lag else ", up to the current word"
    return f"spans of {span} words on a {'fixed' if fixed else 'sliding'} grid{current}"


def notes(measured: Sequence[MeasuredLags], rows: Sequence[PublishedRow] | None = None, mark: str = ABOUT) -> list[str]:
    """Return what must be known to read the numbers, a sentence each.

    Args:
        measured: the models.
        rows: of the paper, where not all that `measured` can stand beside are shown.
        mark: of the paper's numbers that were inferred.
    """
    if rows is None:
        rows = [one.published for one in measured if one.published is not None]
    counted = " or ".join(dict.fromkeys(one.profile.counted for one in measured))
    found = [f"Mean over positions {counted}: {', '.join(dict.fromkeys(one.text for one in measured))}."]
    found.extend(filter(None, dict.fromkeys(one.profile.about_spans for one in measured)))
    if len({(one.profile.window, one.profile.older is None) for one in measured}) > 1:
        found.append("Shares of windows of different lengths cannot be compared with each other.")
    older = [f"{one.name} {one.profile.older:.1f} %" for one in measured if one.profile.older is not None]
    if older:
        found.append(f"On older words, of memories that hold all since the last reset: {', '.join(older)}.")
    elsewhere = [(one.name, one.profile.null_mass) for one in measured if one.profile.null_mass >= LEAST_SHOWN]
    if elsewhere:
        found.append(f"On no word: {', '.join(f'{name} {percent:.1f} %' for name, percent in elsewhere)}.")
    if rows:
        found.append(f"Paper: {PUBLISHED_SOURCE}.")
    return [*found, *published_notes(rows, mark)]


def lag_columns(measured: Sequence[MeasuredLags]) -> Iterator[list[str]]:
    """Yield a table as rows of cells: a column for each model and beside it the paper's, a row for each lag.

    Many lags are summed in groups.

    Raises:
        InputError: As `check_alike`.
    """
    check_alike({one.name: one.profile.alike for one in measured})
    profile = max((one.profile for one in measured), key=lambda profile: profile.lags[0])
    groups = lag_groups(range(profile.lags[0], min(one.profile.lags[-1] for one in measured) - 1, -profile.span))
    columns = [column for one in measured for column in _columns(one, groups)]
    yield ["lag", *(name for name, _, _ in columns)]
    if any(one.profile.older is not None for one in measured):
        yield ["older", *(cell for one in measured for cell in _older(one))]
    for number, group in enumerate(groups):
        yield [profile.label(group[0], group[-1]), *(cells[number] for _, cells, _ in columns)]
    yield [f"last {LAST}{' spans' if profile.span > 1 else ''}", *(last for _, _, last in columns)]
    counts = ([f"{one.profile.positions:,}", *([""] * (one.published is not None))] for one in measured)
    yield ["positions", *(cell for cells in counts for cell in cells)]


def _columns(one: MeasuredLags, groups: Sequence[range]) -> Iterator[tuple[str, list[str], str]]:
    """Yield name, cell of each group and share of the nearest five: as measured and, if there, the paper's."""
    profile, row = one.profile, one.published
    yield one.name, _cells(groups, profile.lags, profile.percent), f"{profile.last_five:.1f}"
    if row is not None:
        cells = _cells(groups, row.lags, row.percent, row.inferred_lags)
        about = ABOUT * any(lag in row.inferred_lags for lag in row.lags[-LAST:])
        yield "paper", cells, f"{about}{sum(row.percent[-LAST:]):.1f}"


def _older(one: MeasuredLags) -> list[str]:
    """Of what was measured and, if there, of the paper's, whose windows are bounded."""
    older = one.profile.older
    return ["" if older is None else f"{older:.1f}", *([""] * (one.published is not None))]


def _cells(groups: Sequence[range], lags: range, percent: Sequence[float], inferred: Sequence[int] = ()) -> list[str]:
    by_lag, cells = dict(zip(lags, percent, strict=True)), []
    for group in groups:
        there = [lag for lag in group if lag in by_lag]
        about = ABOUT * any(lag in inferred for lag in there)
        cells.append(f"{about}{sum(by_lag[lag] for lag in there):.1f}" if there else "")
    return cells
