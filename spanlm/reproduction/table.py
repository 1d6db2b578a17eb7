"""A table as rows with named columns, measured and published: in Markdown, on the terminal and as a figure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import combinations, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from spanlm.analysis.by_lag import LagProfile
from spanlm.analysis.compare import PUBLISHED, MeasuredLags, lag_columns, notes
from spanlm.analysis.export import write_whole
from spanlm.analysis.figures import (
    Panel,
    Point,
    RowsPanel,
    Series,
    Value,
    figure_bytes,
    lag_comparison_figure,
    rows_figure,
    sweep_figure,
    utilisation_figure,
)
from spanlm.analysis.utilisation import Utilisation, spread_epochs
from spanlm.evaluation.scoring import shown
from spanlm.presets.preset import Reported
from spanlm.reproduction.papers import BY_EPOCH, Averaged, Cached, Paper, Plain, Row, Section, Table
from spanlm.reproduction.papers.daniluk2017 import CLOZE_CLASSES, PUBLISHED_CLOZE
from spanlm.reproduction.papers.li2020 import PARTS
from spanlm.reproduction.plan import PAPERS, Plan
from spanlm.reproduction.run import Outcome
from spanlm.reproduction.scales import several
from spanlm.store.plain import markdown, markdown_table

NONE = "–"
_EPOCHS_SHOWN = 12


@dataclass(frozen=True)
class Grid:
    """Cells of text; the first column is flushed left, the others right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class Spread:
    """A number over several seeds."""

    mean: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        """Summarise one or more numbers."""
        found = list(values)
        return Spread(fmean(found), min(found), max(found), len(found))

    def show(self, digits: int = 1) -> str:
        """`81.2`, or over several seeds `81.2 (80.9–81.6)`."""
        mean, low, high = (shown(value, digits) for value in (self.mean, self.low, self.high))
        return mean if self.count == 1 else f"{mean} ({low}–{high})"


@dataclass(frozen=True)
class RowSummary:
    """All finished runs of a row, and why others failed."""

    row: str
    records: tuple[dict[str, Any], ...]
    errors: tuple[str, ...] = ()

    def perplexity(self, split: str) -> Spread:
        """Perplexity of a part over the seeds."""
        return self.of(split, "perplexity")

    def of(self, *path: str) -> Spread:
        """Summarise the number at `path` of every record.

        Raises:
            KeyError, TypeError: a record has none.
        """
        return Spread.of(float(value) for value in self.each(*path))

    def each(self, *path: str) -> list[Any]:
        """Return what is at `path` of every record; see `of`."""
        values: list[Any] = list(self.records)
        for name in path:
            values = [value[name] for value in values]
        return values

    @property
    def seeds(self) -> list[tuple[int, ...]]:
        """Of what was trained for each record: one seed, or those of an ensemble's members."""
        return [
            (record["seed"],) if "seed" in record else tuple(member["seed"] for member in record["members"])
            for record in self.records
        ]

    def over(self, other: RowSummary) -> float | None:
        """How much the perplexity of test is above another row's at the seeds that both have; None without one."""
        mine, theirs = (dict(zip(row.seeds, row.each("test", "perplexity"), strict=True)) for row in (self, other))
        shared = mine.keys() & theirs.keys()
        return fmean(mine[seeds] - theirs[seeds] for seeds in shared) if shared else None


def summarise(outcomes: Sequence[Outcome], rows: Iterable[str]) -> list[RowSummary]:
    """Group outcomes by row, in the order of `rows`; rows that were not run are left out."""
    groups = []
    for row in rows:
        mine = [outcome for outcome in outcomes if outcome.job.row == row]
        if mine:
            records = tuple(outcome.record for outcome in mine if outcome.record is not None)
            groups.append(RowSummary(row, records, tuple(o.error for o in mine if o.record is None)))
    return groups


@dataclass(frozen=True)
class Line:
    """A line of a table, before it is text: a row with its finished runs, at least one, among those of its table."""

    row: Row
    summary: RowSummary
    table: Table
    paper: Paper
    found: Mapping[str, RowSummary]

    @property
    def first(self) -> dict[str, Any]:
        """The record of the first seed."""
        return self.summary.records[0]

    def ppl(self, value: float | None) -> str:
        """Show a perplexity, or a dash."""
        return NONE if value is None else shown(value, self.paper.digits)

    def by(self, difference: float | None) -> str:
        """Show a difference: `−3.2`, `+0.5`, or a dash."""
        return NONE if difference is None else f"{'−' if difference < 0 else '+'}{self.ppl(abs(difference))}"

    def parts(self) -> Iterator[Line]:
        """Yield a line for each part that the table takes the row apart into, compared with the whole."""
        printed = self.table.parts.get(self.row.name)
        for part, title in PARTS.values() if printed is not None else ():
            reported = Reported(test_ppl=(printed or {}).get(part))
            row = replace(self.row, title=title, how=Plain(), published=reported, control=self.row.name)
            records = []
            with suppress(KeyError, TypeError):  # a buffer that never held anything
                for record in self.summary.records:
                    alone = {split: {"perplexity": record[split]["parts"][part]} for split in ("valid", "test")}
                    records.append(record | alone)
                yield replace(self, row=row, summary=RowSummary(self.row.name, tuple(records)))


Cell = Callable[[Line], str]
"""Raises KeyError or TypeError where the line's records have nothing for it."""


def titled(row: Row) -> str:
    """Return a row's title, marked if the paper does not have it."""
    return row.title + ("" if row.in_paper else " †")


def _ppl(*path: str) -> Cell:
    return lambda line: line.summary.of(*path).show(line.paper.digits)


def _mean(form: str, name: str, scale: float = 1) -> Cell:
    return lambda line: form.format(line.summary.of(name).mean * scale)


def _percent(*path: str) -> Cell:
    return lambda line: Spread.of(100 * share for share in line.summary.each(*path)).show()


def _setting(*names: tuple[str, str]) -> Cell:
    """A setting that was chosen for each seed, of the first kind that the line has."""

    def cell(line: Line) -> str:
        (kind, name) = next(pair for pair in names if pair[0] in line.first["details"])
        return "; ".join(f"{value:.2g}" for value in line.summary.each("details", kind, name))

    return cell


def _over(line: Line) -> str:
    """`−3.2 (medium)`: what a row adds to its control; an ensemble, to the mean of its own members."""
    if isinstance(line.row.how, Averaged):
        members = fmean(line.first["details"]["test"]["members"])
        return f"{line.by(line.summary.perplexity('test').mean - members)} (its members)"
    over = line.summary.over(line.found[line.row.control])
    return NONE if over is None else f"{line.by(over)} ({line.row.control})"


def _published_over(line: Line) -> str:
    control = line.row.control if line.row.control in line.table.rows else ""
    ours, theirs = line.row.reported.test_ppl, line.paper.rows[control].reported.test_ppl
    return NONE if ours is None or theirs is None else line.by(ours - theirs)


def _accuracy(name: str, score: str) -> Cell:
    def cell(line: Line) -> str:
        found = [accuracies[name][score] for accuracies in line.summary.each("cloze", "classes")]
        if len(found) > 1:
            return line.summary.of("cloze", "classes", name, score, "accuracy").show(3)
        low, high = found[0]["interval"]
        return f"{found[0]['accuracy']:.3f} [{low:.3f}, {high:.3f}]"

    return cell


def _read_whole(line: Line) -> str:
    """How many points read all of valid; a perplexity beyond all numbers is null, too, and older records do not say."""
    points = line.first["details"]["grid"]
    return str(sum(bool(point.get("whole", point["perplexity"] is not None)) for point in points))


def _gathered(line: Line) -> str:
    found = line.first["details"]["statistics"]
    return "all of train" if found["whole"] else f"{found['tokens']:,}"


def _seeds_of(line: Line) -> str:
    how = line.row.how
    return f"1–{how.members}" if isinstance(how, Averaged) else str(len(line.summary.records))


def _millions(value: float | None) -> str:
    return NONE if value is None else f"{value:g}M"


def _of_split(split: str) -> dict[str, Cell]:
    return {
        f"{split} ppl": _ppl(split, "perplexity"),
        f"their count: {split}": _ppl(split, "salton2017", "perplexity"),
        f"per predicted word: {split}": _ppl(split, "salton2017", "perplexity_per_predicted"),
        f"{split}: without": _ppl(split, "without_cache", "perplexity"),
        f"members: {split}": lambda line: Spread.of(line.first["details"][split]["members"]).show(line.paper.digits),
        f"oracle bound: {split}": lambda line: line.ppl(line.first["details"][split]["oracle_bound"]),
        **{f"{split}: {name}": _ppl(split, "parts", part) for name, (part, _) in PARTS.items()},
    }


def _of_class(number: int, name: str, title: str) -> dict[str, Cell]:
    return {
        f"sentence: {title}": _accuracy(name, "sentence"),
        f"candidate: {title}": _accuracy(name, "candidate"),
        f"paper: {title}": lambda line: f"{PUBLISHED_CLOZE[line.row.name][number]:.3f}",
    }


COLUMNS: dict[str, Cell] = {
    "units": lambda line: f"{line.first['units']:,}",
    "readout": lambda line: f"{line.first['readout']:,}",
    "θ_M": lambda line: f"{line.first['model_parameters'] / 1e6:.2f}M",
    "parameters": lambda line: f"{line.first['all_parameters'] / 1e6:.2f}M",
    "seeds": _seeds_of,
    **_of_split("valid"),
    **_of_split("test"),
    "over": _over,
    "paper: valid": lambda line: line.ppl(line.row.reported.valid_ppl),
    "paper: test": lambda line: line.ppl(line.row.reported.test_ppl),
    "paper: parameters": lambda line: _millions(line.row.reported.all_parameters),
    "paper: over": _published_over,
    "PoU": _percent("test", "parts", "utilisation"),
    "oracle PoU": _percent("test", "parts", "oracle_utilisation"),
    "best epoch": lambda line: "; ".join(f"{one['best_epoch']} of {one['epochs']}" for one in line.summary.records),
    "train ppl": lambda line: line.summary.of("train_perplexity_at_best").show(),
    "tokens/s": _mean("{:,.0f}", "tokens_per_second"),
    "minutes": _mean("{:.1f}", "training_seconds", 1 / 60),
    "measured in minutes": _mean("{:.1f}", "seconds", 1 / 60),
    "words": lambda line: f"{line.row.how.window:,}" if isinstance(line.row.how, Cached) else NONE,
    "θ": _setting(("cache", "theta")),
    "λ": _setting(("cache", "lambda"), ("dynamic", "decay")),
    "η": _setting(("dynamic", "rate")),
    "ε": _setting(("dynamic", "epsilon")),
    "pairs tried": lambda line: str(line.first["details"]["tried"]),
    "on all of valid": _read_whole,
    "MS over words": _gathered,
    **{
        column: cell
        for number, (name, title) in enumerate(CLOZE_CLASSES.items())
        for column, cell in _of_class(number, name, title).items()
    },
}
"""By name, which is what stands above it."""


def grids(table: Table, rows: Sequence[RowSummary], paper: Paper) -> list[Grid]:
    """Return the tables of a table; rows without a finished run are left out, and so are columns without a number."""
    if table.measure == "attention":
        return _by_lag(rows)
    found = {row.row: row for row in rows if row.records}
    lines = [Line(paper.rows[name], summary, table, paper, found) for name, summary in found.items()]
    made = []
    for section, part in parted(rows, paper) if table.columns else ():
        names = [row.row for row in part]
        whole = [line for line in lines if line.row.name in names]
        caption = ". ".join(text for text in (section.title, section.note, paper.note) if text)
        made.append(_grid([one for line in whole for one in (line, *line.parts())], table.columns, caption))
    for details in table.details:
        columns = _epochs(lines) if details.columns == (BY_EPOCH,) else details.columns
        able = [line for line in lines if columns and _cell(line, columns[0]) != NONE]
        caption = details.caption + (_noted(able) if details.notes else "")
        made += [_grid(able, columns, caption)] if able else []
    return made


def _grid(lines: Sequence[Line], columns: Sequence[str], caption: str) -> Grid:
    by_column = {name: [_cell(line, name) for line in lines] for name in columns}
    kept = {name: cells for name, cells in by_column.items() if set(cells) != {NONE}}
    rows = zip((titled(line.row) for line in lines), *kept.values(), strict=True)
    return Grid(("model", *kept), tuple(rows), caption)


def _cell(line: Line, column: str) -> str:
    try:
        if column.isdecimal():  # Figure 4: of an epoch
            epochs = line.first["utilisation_by_epoch"]
            return f"{100 * epochs[int(column) - 1]:.1f}" if int(column) <= len(epochs) else NONE
        return COLUMNS[column](line)
    except (KeyError, TypeError, StopIteration):
        return NONE


def _epochs(lines: Sequence[Line]) -> list[str]:
    """Return at most so many of the epochs, the first and the last among them."""
    most = max((len(line.first.get("utilisation_by_epoch", ())) for line in lines), default=0)
    return [str(epoch + 1) for epoch in spread_epochs(most, _EPOCHS_SHOWN)] if most else []


def _noted(lines: Sequence[Line]) -> str:
    """Return what was noted when rows were measured."""
    records = [(titled(line.row), record) for line in lines for record in line.summary.records]
    found = [f"{title}: {note}" for title, record in records for note in record.get("details", {}).get("notes", ())]
    if any(record.get("cloze", {}).get("cbt_like") for _, record in records):
        found.append("CBT-like questions, which are not comparable with the published ones.")
    return ". " + " ".join(found) if found else ""


def _by_lag(rows: Sequence[RowSummary]) -> list[Grid]:
    """Figure 3b: a line a lag, measured and published columns."""
    measured = _measured_lags(rows)
    if not measured:
        return []
    header, *lines = lag_columns(measured)
    caption = f"Mean attention in percent, first seed. {' '.join(notes(measured))}"
    return [Grid(tuple(header), tuple(map(tuple, lines)), caption)]


def _measured_lags(rows: Sequence[RowSummary]) -> list[MeasuredLags]:
    """Return the attention by lag of each row's first seed, to stand beside the paper's."""
    measured = []
    for record in (row.records[0] for row in rows if row.records):
        found, (name, _) = record["attention"], PAPERS["daniluk2017"].rows[record["row"]].curve or ("", 0)
        profile = LagProfile(tuple(found["percent"]), found["positions"], found["left_out"], found["nearest_lag"])
        model = name if name in PUBLISHED else name.lower()
        measured.append(MeasuredLags(name, f"{record['corpus']} {found['split']}", profile, model))
    return measured


def parted(rows: Sequence[RowSummary], paper: Paper) -> Iterator[tuple[Section, list[RowSummary]]]:
    """Part finished rows by what can be compared; sections without one are left out."""
    left = [row for row in rows if row.records]
    for section in paper.sections:
        mine = [row for row in left if section.holds(paper.rows[row.row])]
        left = [row for row in left if row not in mine]
        if mine:
            yield section, mine


def order_notes(table: Table, rows: Sequence[RowSummary], paper: Paper) -> list[str]:
    """Say of each section how far its rows stand in the paper's order."""
    sections = parted(rows, paper) if table.measure == "perplexity" else ()
    said = ((section.title, order_note(part, paper)) for section, part in sections)
    return [f"{title}. {note}" if title else note for title, note in said if note]


def order_note(rows: Sequence[RowSummary], paper: Paper) -> str:
    """Say in which order the models stand by test perplexity, and how far that is the paper's order.

    Rows at several points of one curve stand as that curve, by their mean.
    """
    known = [(row, test) for row in rows if row.records and (test := paper.rows[row.row].reported.test_ppl)]
    if len(known) < 2:
        return ""
    measured, theirs = [row.perplexity("test").mean for row, _ in known], [test for _, test in known]
    agree, pairs = concordance(measured, theirs)
    names = _names([paper.rows[row.row] for row, _ in known])
    return (
        f"Order by test perplexity, measured: {_ordered(names, measured)}. The paper's: {_ordered(names, theirs)}. "
        f"{agree} of {pairs} pairs of rows stand in the paper's order."
    )


def concordance(measured: Sequence[float], published: Sequence[float]) -> tuple[int, int]:
    """Count the pairs that both put in the same order, and the pairs that the paper puts in an order at all."""
    agree = pairs = 0
    for (a, x), (b, y) in combinations(zip(measured, published, strict=True), 2):
        if x != y:
            pairs += 1
            agree += (a - b) * (x - y) > 0
    return agree, pairs


def _names(rows: Sequence[Row]) -> list[str]:
    """Return what each row is called beside the others: its title, or its curve where several curves are shown."""
    curves = Counter(row.curve[0] for row in rows if row.curve)
    by_curve = len(curves) > 1 and max(curves.values()) > 1
    return [row.curve[0] if by_curve and row.curve else row.title for row in rows]


def _ordered(names: Sequence[str], values: Sequence[float]) -> str:
    """`a < b = c`, by the mean of each name's values."""
    means = {name: fmean(v for n, v in zip(names, values, strict=True) if n == name) for name in names}
    order = sorted(means, key=lambda name: (means[name], name))
    signs = ("=" if means[one] == means[other] else "<" for one, other in pairwise(order))
    return " ".join([order[0], *(f"{sign} {name}" for sign, name in zip(signs, order[1:], strict=True))])


def figure(plan: Plan, table: Table, outcomes: Sequence[Outcome]) -> Figure | None:
    """Draw a table; None while no run is finished."""
    rows = [row for row in summarise(outcomes, table.rows) if row.records]
    if not rows:
        return None
    if table.measure == "attention":
        return lag_comparison_figure(_measured_lags(rows))
    if table.x_label:
        return _curves(plan, table, rows)
    titles = list(dict.fromkeys(titled(plan.paper.rows[row.row]) for row in rows))
    panels = _accuracy_panels(rows) if table.measure == "cloze" else list(_panels(plan, table, rows, titles))
    published = "Squares: the paper, the real questions. " if table.measure == "cloze" else ""
    return rows_figure(f"{plan.paper.title}, {table.title}", titles, panels, published + _seed_note(rows))


def _panels(plan: Plan, table: Table, rows: Sequence[RowSummary], titles: Sequence[str]) -> Iterator[RowsPanel]:
    """Draw a dot a row: what does not compare, and what is published, has a scale of its own."""
    for section, part in parted(rows, plan.paper):
        found = {titled(plan.paper.rows[row.row]): row for row in part}
        measured = tuple(_value(found[name].perplexity("test")) if name in found else None for name in titles)
        tests = {name: plan.paper.rows[row.row].reported.test_ppl for name, row in found.items()}
        yield RowsPanel(f"{section.label}, {plan.corpus.name}, {plan.scale.name}", measured, (None,) * len(titles))
        if any(tests.values()):
            where = f"{section.label}, published: {table.home or 'Wikipedia'}"
            yield RowsPanel(where, (None,) * len(titles), tuple(map(tests.get, titles)))


def _accuracy_panels(rows: Sequence[RowSummary]) -> list[RowsPanel]:
    """Figure 2d: a dot a model and word class, beside the paper's on the real questions."""
    panels = []
    for number, (name, title) in enumerate(CLOZE_CLASSES.items()):
        with suppress(KeyError, TypeError):  # no such questions, or none that could be scored
            measured = tuple(_value(row.of("cloze", "classes", name, "sentence", "accuracy")) for row in rows)
            published = tuple(PUBLISHED_CLOZE[row.row][number] for row in rows)
            panels.append(RowsPanel(f"{title}: accuracy", measured, published, 3))
    return panels


def _curves(plan: Plan, table: Table, rows: Sequence[RowSummary]) -> Figure:
    """Draw test perplexity over windows or orders: measured and published in panels, since the corpora differ."""
    found, measured, published = {row.row: row for row in rows}, [], []
    points = [(*row.curve, row) for row in (plan.paper.rows[name] for name in table.rows) if row.curve]
    for name in dict.fromkeys(curve for curve, _, _ in points):
        mine = [(x, row) for curve, x, row in points if curve == name]
        here = tuple(_point(x, found[row.name].perplexity("test")) for x, row in mine if row.name in found)
        if here:
            measured.append(Series(name, here))
            theirs = ((x, row.reported.test_ppl) for x, row in mine)
            published.append(Series(name, tuple(Point(x, test) for x, test in theirs if test), published=True))
    panels = (
        Panel(f"measured on {plan.corpus.name}, scale {plan.scale.name}", tuple(measured)),
        Panel("the paper, Wikipedia", tuple(published)),
    )
    title = f"{plan.paper.title}, {table.title}"
    return sweep_figure(title, table.x_label, "test perplexity", panels, _seed_note(rows))


def _point(x: int, spread: Spread) -> Point:
    return Point(x, spread.mean) if spread.count == 1 else Point(x, spread.mean, spread.low, spread.high)


def _value(spread: Spread) -> Value:
    return Value(spread.mean, spread.low, spread.high)


def _seed_note(rows: Sequence[RowSummary]) -> str:
    most = max(len(row.records) for row in rows)
    return "One seed." if most == 1 else f"Means of up to {most} seeds; bars from the least to the greatest."


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


def write_tables(plan: Plan, outcomes: Sequence[Outcome]) -> list[Path]:
    """Write page and figures (`figure-2c.md`, `figure-2c.svg`) of every table of the plan; return what was written.

    A table with span buffers has a second figure, `table-1-by-epoch.svg`.

    Raises:
        InputError: not allowed to write there.
        RunError: the disk refused.
    """
    plan.out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for table in plan.tables:
        page, picture, by_epoch = (plan.out / f"{table.file}{end}" for end in (".md", ".svg", "-by-epoch.svg"))
        drawn = {picture: figure(plan, table, outcomes), by_epoch: use_by_epoch(plan, table, outcomes)}
        for path, one in drawn.items():
            if one is not None:
                write_whole(path, figure_bytes(one, ".svg"))
        names = (path.name if one is not None else None for path, one in drawn.items())
        write_whole(page, markdown_page(plan, table, outcomes, *names).encode())
        written += [page, *(path for path, one in drawn.items() if one is not None)]
    return written


def markdown_page(
    plan: Plan, table: Table, outcomes: Sequence[Outcome], figure: str | None, by_epoch: str | None = None
) -> str:
    """Return the page of a table.

    Args:
        plan: what was run.
        table: which table.
        outcomes: of all jobs that have ended so far.
        figure: the file of its figure, beside the page.
        by_epoch: the file of the figure of its span buffers' use.
    """
    rows = summarise(outcomes, table.rows)
    parts = [
        f"# {plan.paper.title}, {table.title}",
        _listed(protocol(plan, table, rows)),
        *map(markdown_grid, grids(table, rows, plan.paper)),
        *order_notes(table, rows, plan.paper),
        f"![{table.title}]({figure})" if figure else "",
        f"![Figure 4: use of the span buffer by epoch]({by_epoch})" if by_epoch else "",
        _missing(plan, table, rows),
        _listed(_origin(plan, table, rows)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)


def markdown_grid(grid: Grid) -> str:
    """Return a grid as a Markdown table under its caption."""
    table = markdown_table(grid.header, grid.rows)
    return f"**{grid.caption}**\n\n{table}" if grid.caption else table


def protocol(plan: Plan, table: Table, rows: Sequence[RowSummary]) -> list[str]:
    """Say what was run, on what, and how it was counted, in lines."""
    jobs, words = plan.jobs_of(table), len(plan.corpus.vocabulary)
    lines = [
        _corpus(plan, table),
        *dict.fromkeys(f"Corpus: {markdown(note)}." for text in plan.texts.values() for note in text.notes),
        *plan.scale.describe([job.config for job in jobs], words),
    ]
    # what a cache adds is said with it
    plain = (row for row in rows if row.records and isinstance(plan.paper.rows[row.row].how, Plain))
    if counted := dict.fromkeys(row.records[0]["test"]["protocol"] for row in plain):
        said = "; or: ".join(counted)
        lines.append(f"Perplexity: exp(NLL / token); {said}. The best epoch is that of the best validation.")
    seeds = sorted({seed for row in rows for seeds in row.seeds for seed in seeds})
    spread = any(len(row.records) > 1 for row in rows)
    lines.append(f"Seeds: {', '.join(map(str, seeds))}{'; means, with the least and the greatest' if spread else ''}.")
    starts = [start for row in rows for record in row.records for start in record["starts"]]
    if {start.get("precision", plan.scale.precision) for start in starts} - {plan.scale.precision}:
        lines.append("Not in bf16 throughout: a processor cannot train an LSTM in it, so fp32 was used.")
    lines += [f"Note: {table.remark}."] if table.remark else []
    return lines + (_remarks(plan, table) if plan.scale.remarks_hold(words) else [])


def _remarks(plan: Plan, table: Table) -> list[str]:
    """What is to be said of the rows' presets, each thing once."""
    titles: dict[str, dict[str, None]] = {}
    for job in plan.jobs_of(table):
        if job.preset.remark:
            titles.setdefault(job.preset.remark, {})[plan.paper.rows[job.row].title] = None
    return [f"{'; '.join(rows)}: {remark}." for remark, rows in titles.items()]


def _corpus(plan: Plan, table: Table) -> str:
    corpus = plan.corpus
    sizes = ", ".join(f"{split} {len(tokens):,}" for split, tokens in corpus.splits.items())
    said = f"Corpus: **{markdown(corpus.name)}** ({sizes} tokens; vocabulary {len(corpus.vocabulary):,})."
    if table.home == corpus.name and plan.scale.vocabulary_size is None:
        return f"{said} It is the paper's own."
    return f"{said} The paper's numbers are those of {table.published_on}: compare orders and differences, not values."


def _missing(plan: Plan, table: Table, rows: Sequence[RowSummary]) -> str:
    titles = {row: plan.paper.rows[row].title for row in table.rows}
    several_have = Counter(titles.values())  # they differ in how they are evaluated
    titles = {row: title if several_have[title] == 1 else f"{title} (`{row}`)" for row, title in titles.items()}
    lines = [f"{titles[row.row]}: **failed**: {markdown(error)}" for row in rows for error in row.errors]
    ended, asked = {row.row for row in rows}, {task.row for task in plan.tasks}
    lines += [f"{titles[row]}: not run yet" for row in table.rows if row in asked - ended]
    left_out = [row for row in table.rows if row in plan.left_out and row not in ended]
    lines += [f"{titles[row]}: left out: {plan.left_out[row]}" for row in left_out]
    others = [titles[row] for row in table.rows if row not in asked | ended | plan.left_out.keys()]
    lines += [f"not asked for: {', '.join(others)}"] if others else []
    return f"Missing:\n\n{_listed(lines)}" if lines else ""


def _origin(plan: Plan, table: Table, rows: Sequence[RowSummary]) -> list[str]:
    """Say what made the runs: command, time, commits, machines; the records have every start."""
    records = [record for row in rows for record in row.records]
    if not records:
        return []
    trained = [record["training_seconds"] for record in records if "training_seconds" in record]
    starts = [start for record in records for start in record["starts"]]
    commits = sorted({f"{s['commit'][:10]}{' (changed)' if s['changed'] else ''}" for s in starts if s["commit"]})
    machines = sorted(
        {f"{s['processor']}, {s['threads']} thread(s), {s['device']}, torch {s['torch']}" for s in starts}
    )
    return [
        f"Made again by {' and '.join(f'`{line}`' for line in _commands(plan, table, rows))}.",
        f"Training time of {several(len(trained), 'run')}: {timedelta(seconds=round(sum(trained)))}, validation left "
        "out.",
        f"Code: commit {', '.join(commits)}." if commits else "Code: not from a checkout; no commit known.",
        *([f"Machine: {'; '.join(machines)}."] if machines else []),
    ]


def _commands(plan: Plan, table: Table, rows: Sequence[RowSummary]) -> list[str]:
    """Return what makes the rows that are shown, each with the seeds that it has of those that were asked for."""
    asked = set(plan.request.seeds)
    alike: dict[tuple[int, ...], list[str]] = {}
    for row in rows:
        has = {seed for seeds in row.seeds for seed in seeds} & asked
        of_many = any(len(seeds) > 1 for seeds in row.seeds)  # an ensemble, which says itself what it needs
        alike.setdefault(tuple(sorted(asked if of_many or not has else has)), []).append(row.row)
    # rows are named only if the request named some, or not all have the same seeds
    name_rows = bool(plan.request.rows) or len(alike) > 1
    return [_command(plan, table, shown if name_rows else (), seeds) for seeds, shown in alike.items()]


def _command(plan: Plan, table: Table, shown: Collection[str], seeds: Sequence[int]) -> str:
    request = plan.request
    words = ["spanlm", "reproduce", request.paper, "--table", table.name]
    words += ["--corpus", Path(request.corpus or plan.corpus.name).name, "--scale", request.scale]
    words += ["--rows", *(row for row in table.rows if row in shown)] if shown else []
    words += ["--seeds", *map(str, seeds)] if tuple(seeds) != (1,) else []
    if request.questions and table.measure == "cloze":
        words += ["--questions", *(path.name for path in request.questions)]
    words += ["--precision", request.precision] if request.precision else []
    words += ["--device", request.device] if request.device != "auto" else []
    return shlex.join(words)
