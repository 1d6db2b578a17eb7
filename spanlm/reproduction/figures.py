"""The figure of each table, measured and published."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from spanlm.analysis.figures import (
    Panel,
    Point,
    RowsPanel,
    Series,
    Value,
    lag_comparison_figure,
    rows_figure,
    sweep_figure,
    utilisation_figure,
)
from spanlm.analysis.utilisation import Utilisation
from spanlm.reproduction.daniluk2017 import (
    CLOZE_CLASSES,
    ORDERS,
    PUBLISHED_CLOZE,
    WINDOW_FAMILIES,
    WINDOWS,
)
from spanlm.reproduction.grids import measured_lags
from spanlm.reproduction.ladder_grids import sections
from spanlm.reproduction.plan import Plan
from spanlm.reproduction.protocol_grids import groups, titled
from spanlm.reproduction.run import Outcome
from spanlm.reproduction.summary import RowSummary, Spread, summarise
from spanlm.reproduction.tables import Layout, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPERS_CORPUS = "the paper, Wikipedia"


def figure(plan: Plan, table: Table, outcomes: Sequence[Outcome]) -> Figure | None:
    """Draw a table; None while no run is finished."""
    rows = [row for row in summarise(outcomes, table.rows) if row.records]
    if not rows:
        return None
    draw: dict[Layout, Callable[[Plan, Table, list[RowSummary]], Figure]] = {
        "windows": _windows,
        "orders": _orders,
        "models": _models,
        "cloze": _cloze,
        "lags": _lags,
        "protocols": _protocols,
        "ladder": _ladder,
        "ablations": _ladder,
    }
    return draw[table.layout](plan, table, rows)


def use_by_epoch(plan: Plan, table: Table, outcomes: Sequence[Outcome]) -> Figure | None:
    """Li et al., Figure 4: how often each span buffer was used, of the first seed; None where there is none."""
    found = [
        Utilisation(
            plan.paper.rows[row.row].title,
            *(tuple(row.records[0][f"{what}_by_epoch"]) for what in ("utilisation", "oracle_utilisation")),
        )
        for row in summarise(outcomes, table.rows)
        if row.records and "utilisation_by_epoch" in row.records[0]
    ]
    if not found:
        return None
    title = f"{plan.paper.title}, Figure 4: use of the span buffer by epoch"
    return utilisation_figure(title, found, f"{plan.corpus.name}, scale {plan.scale.name}, first seed.")


def _windows(plan: Plan, table: Table, rows: list[RowSummary]) -> Figure:
    """Figure 2a: a curve a family over the window size."""
    families = {title: {size: f"{name}-w{size}" for size in WINDOWS} for name, title in WINDOW_FAMILIES.items()}
    return _sweep(plan, table, "window", families, rows)


def _orders(plan: Plan, table: Table, rows: list[RowSummary]) -> Figure:
    """Figure 2b: one curve over N."""
    return _sweep(plan, table, "N", {"N-gram RNN": {order: f"{order}-gram" for order in ORDERS}}, rows)


def _sweep(
    plan: Plan, table: Table, x_label: str, families: dict[str, dict[int, str]], rows: list[RowSummary]
) -> Figure:
    """Draw test perplexity over x: measured in one panel, published in another, since the corpora differ."""
    found = {row.row: row for row in rows}
    measured, published = [], []
    for title, family in families.items():
        here = {x: found[row].perplexity("test") for x, row in family.items() if row in found}
        theirs = {x: plan.paper.rows[row].reported.test_ppl for x, row in family.items()}
        if here:
            measured.append(Series(title, tuple(_point(x, spread) for x, spread in here.items())))
            points = tuple(Point(x, value) for x, value in theirs.items() if value is not None)
            published.append(Series(title, points, published=True))
    return sweep_figure(
        f"{plan.paper.title}, {table.title}",
        x_label,
        "test perplexity",
        (
            Panel(f"measured on {plan.corpus.name}, scale {plan.scale.name}", tuple(measured)),
            Panel(PAPERS_CORPUS, tuple(published)),
        ),
        _seeds(rows),
    )


def _point(x: int, spread: Spread) -> Point:
    return Point(x, spread.mean) if spread.count == 1 else Point(x, spread.mean, spread.low, spread.high)


def _models(plan: Plan, table: Table, rows: list[RowSummary]) -> Figure:
    """Figure 2c: a dot a model."""
    nothing = (None,) * len(rows)
    measured = tuple(_value(row.perplexity("test")) for row in rows)
    published = tuple(plan.paper.rows[row.row].reported.test_ppl for row in rows)
    return rows_figure(
        f"{plan.paper.title}, {table.title}",
        [plan.paper.rows[row.row].title for row in rows],
        (
            RowsPanel(f"test ppl, {plan.corpus.name}, {plan.scale.name}", measured, nothing),
            RowsPanel(f"test ppl, {PAPERS_CORPUS}", nothing, published),
        ),
        _seeds(rows),
    )


def _cloze(plan: Plan, table: Table, rows: list[RowSummary]) -> Figure:
    """Figure 2d: a dot a model and word class, beside the paper's on the real questions."""
    panels = []
    for number, name in enumerate(CLOZE_CLASSES):
        asked = [record["cloze"]["classes"].get(name) for row in rows for record in row.records]
        if all(found and found["sentence"]["accuracy"] is not None for found in asked):
            measured = tuple(_value(row.of("cloze", "classes", name, "sentence", "accuracy")) for row in rows)
            published = tuple(PUBLISHED_CLOZE[row.row][number] for row in rows)
            panels.append(RowsPanel(f"{CLOZE_CLASSES[name]}: accuracy", measured, published, 3))
    like = any(record["cloze"]["cbt_like"] for row in rows for record in row.records)
    which = "CBT-like (not comparable)" if like else "the real"
    return rows_figure(
        f"{plan.paper.title}, {table.title}",
        [plan.paper.rows[row.row].title for row in rows],
        panels,
        f"Dots: measured, {which} questions, whole sentence. Squares: the paper, the real ones. {_seeds(rows)}",
    )


def _lags(plan: Plan, table: Table, rows: list[RowSummary]) -> Figure:
    """Figure 3b: a curve a model, of the first seed, and the paper's."""
    return lag_comparison_figure([measured_lags(row) for row in rows])


def _protocols(plan: Plan, table: Table, rows: list[RowSummary]) -> Figure:
    """Salton et al.: a dot a row, those of running text first; measured and published have scales of their own."""
    parted = groups(rows, plan.paper.name).values()
    ordered = [(row, plan.paper.rows[row.row]) for group in parted for row in group]
    nothing = (None,) * len(ordered)
    measured = tuple(_value(row.perplexity("test")) for row, _ in ordered)
    published = tuple(row.reported.test_ppl for _, row in ordered)
    panels = [RowsPanel(f"test ppl, {plan.corpus.name}, {plan.scale.name}", measured, nothing)]
    if any(published):
        panels.append(RowsPanel(f"test ppl, published: {table.home}", nothing, published))
    return rows_figure(
        f"{plan.paper.title}, {table.title}",
        [f"{titled(row)}{' (by sentence)' if row.by_sentence else ''}" for _, row in ordered],
        panels,
        "Rows by sentence do not compare with those of running text; published, they are in the paper's own count. "
        f"† is not in the paper's table. {_seeds(rows)}",
    )


def _ladder(plan: Plan, table: Table, rows: list[RowSummary]) -> Figure:
    """Li et al.: a dot a row; adapting rows, and published ones, have scales of their own."""
    titles = list(dict.fromkeys(plan.paper.rows[row.row].title for row in rows))
    nothing, panels = (None,) * len(titles), []
    for adapting, part in sections(rows, plan.paper.name).items():
        found = {plan.paper.rows[row.row].title: row for row in part}
        measured = tuple(_value(found[name].perplexity("test")) if name in found else None for name in titles)
        published = tuple(
            plan.paper.rows[found[name].row].reported.test_ppl if name in found else None for name in titles
        )
        what = "test ppl, dynamic" if adapting else "test ppl"
        panels.append(RowsPanel(f"{what}, {plan.corpus.name}, {plan.scale.name}", measured, nothing))
        if any(published):
            panels.append(RowsPanel(f"{what}, published: {table.home}", nothing, published))
    return rows_figure(f"{plan.paper.title}, {table.title}", titles, panels, _seeds(rows))


def _value(spread: Spread) -> Value:
    return Value(spread.mean, spread.low, spread.high)


def _seeds(rows: list[RowSummary]) -> str:
    most = max(len(row.records) for row in rows)
    return "One seed." if most == 1 else f"Means of up to {most} seeds; bars from the least to the greatest."
