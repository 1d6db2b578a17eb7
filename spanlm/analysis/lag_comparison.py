"""Mean attention by lag of several models side by side, and what the paper printed of each."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spanlm.analysis.by_lag import LAST, LEAST_SHOWN, LagProfile
from spanlm.analysis.lags import in_words
from spanlm.analysis.published_lags import ABOUT, PUBLISHED_SOURCE, PublishedRow, published_cut, published_notes

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
    """Yield a table as rows of cells: a column for each model and beside it the paper's, a row for each lag."""
    columns = [column for one in measured for column in _columns(one)]
    lags = range(max(one.profile.lags[0] for one in measured), min(one.profile.lags[-1] for one in measured) - 1, -1)
    yield ["lag", *(name for name, _, _ in columns)]
    if any(one.profile.older is not None for one in measured):
        yield ["older", *(cell for one in measured for cell in _older(one))]
    for lag in lags:
        yield [in_words(lag), *(cells.get(lag, "") for _, cells, _ in columns)]
    yield [f"last {LAST}", *(last for _, _, last in columns)]
    counts = ([f"{one.profile.positions:,}", *([""] * (one.published is not None))] for one in measured)
    yield ["positions", *(cell for cells in counts for cell in cells)]


def _columns(one: MeasuredLags) -> Iterator[tuple[str, dict[int, str], str]]:
    """Yield name, cell by lag and share of the nearest five of what was measured and, if there, of the paper's."""
    profile, row = one.profile, one.published
    yield one.name, _cells(profile.lags, profile.percent), f"{profile.last_five:.1f}"
    if row is not None:
        cells = _cells(row.lags, row.percent, row.inferred_lags)
        about = ABOUT * any(lag in row.inferred_lags for lag in row.lags[-LAST:])
        yield "paper", cells, f"{about}{sum(row.percent[-LAST:]):.1f}"


def _older(one: MeasuredLags) -> list[str]:
    """Of what was measured and, if there, of the paper's, whose windows are bounded."""
    older = one.profile.older
    return ["" if older is None else f"{older:.1f}", *([""] * (one.published is not None))]


def _cells(lags: range, percent: Sequence[float], inferred: Sequence[int] = ()) -> dict[int, str]:
    return {lag: f"{ABOUT * (lag in inferred)}{value:.1f}" for lag, value in zip(lags, percent, strict=True)}


def comparison_markdown(measured: Sequence[MeasuredLags]) -> bytes:
    """Return a Markdown table, two rows for each model: measured, and the paper's; the notes follow."""
    (_, *header), *rows = zip(*lag_columns(measured), strict=True)
    lines = [("model", *header), ("---", *["---:"] * len(header)), *rows]
    table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"{table}\n\n{' '.join(notes(measured))}\n".encode()


def comparison_csv(measured: Sequence[MeasuredLags]) -> bytes:
    """Return one row for each model and lag, the paper's number beside the measured one."""
    return csv_with_gaps([CSV_COLUMNS, *(row for one in measured for row in _csv_rows(one))])


def _csv_rows(one: MeasuredLags) -> Iterator[tuple[object, ...]]:
    row = one.published
    published = {} if row is None else dict(zip(row.lags, row.percent, strict=True))
    for lag, percent in zip(one.profile.lags, one.profile.percent, strict=True):
        beside: tuple[object, ...] = ("", "", "", "")
        if row is not None and lag in published:
            beside = (one.model, published[lag], int(row.scaled), int(lag in row.inferred_lags))
        yield (one.name, one.text, one.profile.window, lag, percent, *beside)


def csv_with_gaps(rows: Iterable[Sequence[object]]) -> bytes:
    """Return rows as CSV in which nothing stands where nothing was published.

    `csv_bytes` would quote that as a word, and a reader take a column of numbers for words.
    """
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def comparison_json(measured: Sequence[MeasuredLags]) -> bytes:
    """Return everything that is known, with the notes."""
    content = {"format": 1, "notes": notes(measured), "runs": [_run(one) for one in measured]}
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def _run(one: MeasuredLags) -> dict[str, Any]:
    profile, row = one.profile, one.published
    published = (
        None
        if row is None
        else {
            "model": one.model,
            "source": PUBLISHED_SOURCE,
            "lags": list(row.lags),
            "percent": row.percent,
            "scaled": row.scaled,
            "inferred_lags": row.inferred_lags,
        }
    )
    return {
        "run": one.name,
        "text": one.text,
        **profile.to_json(),
        "published": published,
    }
