"""Mean attention by lag of several models side by side, and what the paper printed of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanlm.analysis.by_lag import LAST, LEAST_SHOWN, LagProfile
from spanlm.analysis.files import csv_bytes, json_bytes
from spanlm.analysis.lags import lag_groups
from spanlm.analysis.published_lags import ABOUT, PUBLISHED_SOURCE, PublishedRow, published_cut, published_notes
from spanlm.errors import InputError
from spanlm.store.plain import markdown, markdown_table

CSV_COLUMNS = (
    *("run", "text", "window", "lag", "measured_percent"),
    *("published_model", "published_percent", "published_scaled", "published_inferred"),
)


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
        return published_cut(self.model, self.profile.window)


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
    elsewhere = [(one.name, one.profile.on_no_step) for one in measured if one.profile.on_no_step >= LEAST_SHOWN]
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


def comparison_markdown(measured: Sequence[MeasuredLags]) -> bytes:
    """Return a Markdown table, two rows for each model: measured, and the paper's; the notes follow."""
    (_, *header), *rows = zip(*lag_columns(measured), strict=True)
    return f"{markdown_table(('model', *header), rows)}\n\n{markdown(' '.join(notes(measured)))}\n".encode()


def comparison_csv(measured: Sequence[MeasuredLags]) -> bytes:
    """Return one row for each model and lag, the paper's number beside the measured one."""
    return csv_bytes([CSV_COLUMNS, *(row for one in measured for row in _csv_rows(one))], gaps=True)


def _csv_rows(one: MeasuredLags) -> Iterator[tuple[object, ...]]:
    row = one.published
    published = {} if row is None else dict(zip(row.lags, row.percent, strict=True))
    for lag, percent in zip(one.profile.lags, one.profile.percent, strict=True):
        beside: tuple[object, ...] = ("", "", "", "")
        if row is not None and lag in published:
            beside = (one.model, published[lag], int(row.scaled), int(lag in row.inferred_lags))
        yield (one.name, one.text, one.profile.window, lag, percent, *beside)


def comparison_json(measured: Sequence[MeasuredLags]) -> bytes:
    """Return everything that is known, with the notes."""
    return json_bytes({"notes": notes(measured), "runs": [_run(one) for one in measured]})


def _run(one: MeasuredLags) -> dict[str, Any]:
    profile, row = one.profile, one.published
    published = row and {
        "model": one.model,
        "source": PUBLISHED_SOURCE,
        "lags": list(row.lags),
        "percent": row.percent,
        "scaled": row.scaled,
        "inferred_lags": row.inferred_lags,
    }
    return {"run": one.name, "text": one.text, **profile.to_json(), "published": published}
