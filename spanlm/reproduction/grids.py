"""The tables of a paper as grids of text, measured and published side by side; for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean

from spanlm.analysis.by_lag import LagProfile
from spanlm.analysis.compare import PUBLISHED, MeasuredLags, lag_columns, notes
from spanlm.reproduction.daniluk2017 import CLOZE_CLASSES, PUBLISHED_CLOZE, WINDOW_FAMILIES, WINDOWS
from spanlm.reproduction.grid import NONE, Grid, number
from spanlm.reproduction.ladder_grids import TITLES, ablation_grids, ladder_grids, sections
from spanlm.reproduction.papers import find_row
from spanlm.reproduction.protocol_grids import groups, protocol_grids
from spanlm.reproduction.summary import RowSummary, concordance
from spanlm.reproduction.tables import Layout, Table


def grids(table: Table, rows: Sequence[RowSummary], paper: str) -> list[Grid]:
    """Return the grids of a table; rows without a finished run are left out."""
    done = [row for row in rows if row.records]
    builders: dict[Layout, Callable[[Sequence[RowSummary], str], list[Grid]]] = {
        "models": _models,
        "windows": _by_window,
        "orders": _models,
        "cloze": _cloze,
        "lags": _by_lag,
        "protocols": protocol_grids,
        "ladder": ladder_grids,
        "ablations": ablation_grids,
    }
    return builders[table.layout](done, paper) if done else []


def order_notes(table: Table, rows: Sequence[RowSummary], paper: str) -> list[str]:
    """Say of each group of rows that may be compared how far it stands in the paper's order."""
    if table.measure != "perplexity":
        return []
    parted: dict[str, Sequence[RowSummary]] = {"": rows}
    if table.layout == "protocols":
        parted = {f"{title}. ": part for title, part in groups(rows, paper).items()}
    elif table.layout in ("ladder", "ablations"):
        parted = {f"{TITLES[adapting]}. ": part for adapting, part in sections(rows, paper).items()}
    return [f"{title}{note}" for title, part in parted.items() if (note := order_note(part, paper))]


def order_note(rows: Sequence[RowSummary], paper: str) -> str:
    """Say in which order the models stand by test perplexity, and how far that is the paper's order.

    Rows of one family at several windows stand as that family, by the mean over its windows.
    """
    known = [
        (row, published) for row in rows if row.records and (published := find_row(paper, row.row).reported.test_ppl)
    ]
    if len(known) < 2:
        return ""
    measured = [row.perplexity("test").mean for row, _ in known]
    theirs = [value for _, value in known]
    agree, pairs = concordance(measured, theirs)
    names = _names([row.row for row, _ in known], paper)
    return (
        f"Order by test perplexity, measured: {_ordered(names, measured)}. The paper's: {_ordered(names, theirs)}. "
        f"{agree} of {pairs} pairs of rows stand in the paper's order."
    )


def _names(rows: Sequence[str], paper: str) -> list[str]:
    """Return what each row is called beside the others: its title, or its family where that has several rows."""
    families = [row.partition("-")[0] for row in rows]
    several = len(set(families) & set(WINDOW_FAMILIES)) < sum(family in WINDOW_FAMILIES for family in families)
    return [
        WINDOW_FAMILIES[f] if several and f in WINDOW_FAMILIES else find_row(paper, row).title
        for f, row in zip(families, rows, strict=True)
    ]


def _ordered(names: Sequence[str], values: Sequence[float]) -> str:
    """`a < b = c`, by the mean of each name's values."""
    means = {name: fmean(v for n, v in zip(names, values, strict=True) if n == name) for name in names}
    order = sorted(means, key=lambda name: (means[name], name))
    signs = ("=" if means[one] == means[other] else "<" for one, other in pairwise(order))
    return " ".join([order[0], *(f"{sign} {name}" for sign, name in zip(signs, order[1:], strict=True))])


def _models(rows: Sequence[RowSummary], paper: str) -> list[Grid]:
    """Figures 2b and 2c: one line a model."""
    header = (
        "model",
        "units",
        "readout",
        "θ_M",
        "seeds",
        "valid ppl",
        "test ppl",
        "paper: valid",
        "paper: test",
        "best epoch",
        "train ppl",
        "tokens/s",
        "minutes",
    )
    return [Grid(header, tuple(_model(row, paper) for row in rows))]


def _model(row: RowSummary, paper: str) -> tuple[str, ...]:
    first, known = row.records[0], find_row(paper, row.row)
    return (
        known.title,
        f"{first['units']:,}",
        f"{first['readout']:,}",
        f"{first['model_parameters'] / 1e6:.2f}M",
        str(len(row.records)),
        row.perplexity("valid").show(),
        row.perplexity("test").show(),
        number(known.reported.valid_ppl),
        number(known.reported.test_ppl),
        "; ".join(f"{record['best_epoch']} of {record['epochs']}" for record in row.records),
        row.of("train_perplexity_at_best").show(),
        f"{row.of('tokens_per_second').mean:,.0f}",
        f"{row.of('training_seconds').mean / 60:.1f}",
    )


def _by_window(rows: Sequence[RowSummary], paper: str) -> list[Grid]:
    """Figure 2a: a line a family, a column a window."""
    found = {row.row: row for row in rows}

    def family(name: str, cell: Callable[[str], str]) -> tuple[str, ...]:
        return (WINDOW_FAMILIES[name], *(cell(f"{name}-w{window}") for window in WINDOWS))

    def measured(split: str) -> Callable[[str], str]:
        return lambda row: found[row].perplexity(split).show() if row in found else NONE

    names = [name for name in WINDOW_FAMILIES if any(f"{name}-w{window}" in found for window in WINDOWS)]
    header = ("window", *map(str, WINDOWS))
    cells: dict[str, Callable[[str], str]] = {
        "Test perplexity, measured": measured("test"),
        "Validation perplexity, measured": measured("valid"),
        "Test perplexity, the paper's": lambda row: number(find_row(paper, row).reported.test_ppl),
    }
    return [Grid(header, tuple(family(name, cell) for name in names), caption) for caption, cell in cells.items()]


def _cloze(rows: Sequence[RowSummary], paper: str) -> list[Grid]:
    """Figure 2d: accuracy by word class, by the whole sentence and by the candidate alone."""
    header = ("model", *(f"{name}, {title}" for name, title in CLOZE_CLASSES.items()), "test ppl")
    titles = {row.row: find_row(paper, row.row).title for row in rows}

    def accuracy(row: RowSummary, score: str, name: str) -> str:
        found = [record["cloze"]["classes"].get(name, {}).get(score, {}) for record in row.records]
        if any(one.get("accuracy") is None for one in found):
            return NONE  # no such questions, or none that could be scored
        if len(found) == 1:
            low, high = found[0]["interval"]
            return f"{found[0]['accuracy']:.3f} [{low:.3f}, {high:.3f}]"
        return row.of("cloze", "classes", name, score, "accuracy").show(3)

    def lines(score: str) -> tuple[tuple[str, ...], ...]:
        return tuple(
            (
                titles[row.row],
                *(accuracy(row, score, name) for name in CLOZE_CLASSES),
                row.perplexity("test").show(),
            )
            for row in rows
        )

    published = tuple((titles[row.row], *(f"{value:.3f}" for value in PUBLISHED_CLOZE[row.row])) for row in rows)
    cloze = [record["cloze"] for row in rows for record in row.records]
    files = "CBT-like questions, which are not comparable with the published ones"
    asked = files if any(found["cbt_like"] for found in cloze) else "the real questions"
    intervals = "" if any(len(row.records) > 1 for row in rows) else ", with 95 % intervals"
    return [
        Grid(
            header, lines("sentence"), f"Accuracy by the probability of the whole query sentence, on {asked}{intervals}"
        ),
        Grid(header, lines("candidate"), f"Accuracy by the probability of the candidate alone, on {asked}{intervals}"),
        Grid(header[:-1], published, "The paper's accuracy, on the real Children's Book Test"),
    ]


def _by_lag(rows: Sequence[RowSummary], paper: str) -> list[Grid]:
    """Figure 3b: a line a lag, measured and published columns."""
    measured = [measured_lags(row) for row in rows]
    header, *lines = lag_columns(measured)
    caption = f"Mean attention in percent, first seed. {' '.join(notes(measured))}"
    return [Grid(tuple(header), tuple(map(tuple, lines)), caption)]


def measured_lags(row: RowSummary) -> MeasuredLags:
    """Return the attention by lag of a row's first seed, to stand beside the paper's."""
    record = row.records[0]
    found = record["attention"]
    profile = LagProfile(tuple(found["percent"]), found["positions"], found["left_out"], found["nearest_lag"])
    family = WINDOW_FAMILIES[row.row.partition("-")[0]]
    model = family if family in PUBLISHED else family.lower()
    return MeasuredLags(family, f"{record['corpus']} {found['split']}", profile, model)
