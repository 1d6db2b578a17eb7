"""A table as rows with named columns, measured and published: in Markdown, on the terminal and as a figure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from spanlm.analysis.export import write_whole
from spanlm.analysis.figures import (
    Panel,
    Point,
    RowsPanel,
    Series,
    Value,
    figure_bytes,
    lag_figure,
    rows_figure,
    sweep_figure,
    utilisation_figure,
)
from spanlm.analysis.lags import PUBLISHED, LagProfile, MeasuredLags, lag_columns, notes
from spanlm.analysis.utilisation import Utilisation, spread_epochs
from spanlm.evaluation.scoring import shown
from spanlm.presets.preset import Reported
from spanlm.reproduction.papers import BY_EPOCH, Averaged, Cached, Dynamic, Paper, Plain, Row, Section, Table
from spanlm.reproduction.papers.daniluk2017 import CLOZE_CLASSES, PUBLISHED_CLOZE
from spanlm.reproduction.papers.li2020 import PARTS
from spanlm.reproduction.plan import Plan, Request
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


def _seeds(record: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the seed of what was trained for a record, or those of an ensemble's members."""
    return (record["seed"],) if "seed" in record else tuple(member["seed"] for member in record["members"])


@dataclass(frozen=True, eq=False)
class Line:
    """A line of a table, before it is text: a row with all its finished runs, and why others failed."""

    row: Row
    table: Table
    paper: Paper
    records: tuple[dict[str, Any], ...]
    errors: tuple[str, ...] = ()
    found: Mapping[str, Line] = field(default_factory=dict, repr=False)  # the table's lines with a finished run

    @property
    def first(self) -> dict[str, Any]:
        """The record of the first seed."""
        return self.records[0]

    @property
    def title(self) -> str:
        """The row's title, marked if the paper does not have it."""
        return self.row.title + ("" if self.row.in_paper else " †")

    @property
    def test(self) -> Spread:
        """Test perplexity over the seeds."""
        return self.of("test", "perplexity")

    @property
    def published(self) -> float | None:
        """What the paper printed for test."""
        return self.row.reported.test_ppl

    def each(self, *path: str) -> list[Any]:
        """Return what is at `path` of every record.

        Raises:
            KeyError, TypeError: a record has none.
        """
        values: list[Any] = list(self.records)
        for name in path:
            values = [value[name] for value in values]
        return values

    def of(self, *path: str, scale: float = 1) -> Spread:
        """Summarise the number at `path` of every record; see `each`."""
        return Spread.of(scale * float(value) for value in self.each(*path))

    def ppl(self, value: float | None) -> str:
        """Show a perplexity, or a dash."""
        return NONE if value is None else shown(value, self.paper.digits)

    def by(self, difference: float) -> str:
        """Show a difference: `−3.2`, `+0.5`."""
        return f"{'−' if difference < 0 else '+'}{self.ppl(abs(difference))}"

    def over(self, other: Line) -> float:
        """How much test perplexity is above another row's at the seeds that both have; a ValueError without one."""
        mine, theirs = ({_seeds(one): one["test"]["perplexity"] for one in line.records} for line in (self, other))
        return fmean(mine[seeds] - theirs[seeds] for seeds in mine.keys() & theirs.keys())

    def parts(self) -> Iterator[Line]:
        """Yield a line for each part that the table takes the row apart into, compared with the whole."""
        printed = self.table.parts.get(self.row.name)
        for part, title in PARTS.values() if printed is not None else ():
            reported = Reported(test_ppl=(printed or {}).get(part))
            row = replace(self.row, title=title, how=Plain(), published=reported, control=self.row.name)
            with suppress(KeyError, TypeError):  # a buffer that never held anything
                records = []
                for record in self.records:
                    alone = {split: {"perplexity": record[split]["parts"][part]} for split in ("valid", "test")}
                    records.append(record | alone)
                yield replace(self, row=row, records=tuple(records))


def summarise(outcomes: Sequence[Outcome], table: Table, paper: Paper) -> list[Line]:
    """Group outcomes by row, in the table's order; rows that were not run are left out."""
    lines, found = [], dict[str, Line]()
    for name in table.rows:
        mine = [outcome for outcome in outcomes if outcome.job.row == name]
        records = tuple(outcome.record for outcome in mine if outcome.record is not None)
        errors = tuple(outcome.error for outcome in mine if outcome.record is None)
        line = Line(paper.rows[name], table, paper, records, errors, found)
        lines += [line] if mine else []
        found |= {name: line} if records else {}
    return lines


# --- columns ---

Cell = Callable[[Line], str]
"""Raises KeyError, TypeError or ValueError where the line has nothing for it."""


def _ppl(*path: str) -> Cell:
    return lambda line: line.of(*path).show(line.paper.digits)


def _mean(form: str, name: str, scale: float = 1) -> Cell:
    return lambda line: form.format(line.of(name, scale=scale).mean)


def _setting(*names: tuple[str, str]) -> Cell:
    """A setting that was chosen for each seed, of the first kind that the line has."""

    def cell(line: Line) -> str:
        (kind, name) = next(pair for pair in names if pair[0] in line.first["details"])
        return "; ".join(f"{value:.2g}" for value in line.each("details", kind, name))

    return cell


def _over(line: Line) -> str:
    """`−3.2 (medium)`: what a row adds to its control; an ensemble, to the mean of its own members."""
    if isinstance(line.row.how, Averaged):
        return f"{line.by(line.test.mean - fmean(line.first['details']['test']['members']))} (its members)"
    return f"{line.by(line.over(line.found[line.row.control]))} ({line.row.control})"


def _published_over(line: Line) -> str:
    control = line.row.control if line.row.control in line.table.rows else ""
    ours, theirs = line.published, line.paper.rows[control].reported.test_ppl
    return NONE if ours is None or theirs is None else line.by(ours - theirs)


def _accuracy(name: str, score: str) -> Cell:
    def cell(line: Line) -> str:
        found = [accuracies[name][score] for accuracies in line.each("cloze", "classes")]
        if len(found) > 1:
            return line.of("cloze", "classes", name, score, "accuracy").show(3)
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
    return f"1–{how.members}" if isinstance(how, Averaged) else str(len(line.records))


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
    "paper: test": lambda line: line.ppl(line.published),
    "paper: parameters": lambda line: f"{line.row.reported.all_parameters:g}M",
    "paper: over": _published_over,
    "PoU": lambda line: line.of("test", "parts", "utilisation", scale=100).show(),
    "oracle PoU": lambda line: line.of("test", "parts", "oracle_utilisation", scale=100).show(),
    "best epoch": lambda line: "; ".join(f"{one['best_epoch']} of {one['epochs']}" for one in line.records),
    "train ppl": lambda line: line.of("train_perplexity_at_best").show(),
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


def grids(table: Table, lines: Sequence[Line], paper: Paper) -> list[Grid]:
    """Return the tables of a table; rows without a finished run are left out, and so are columns without a number."""
    lines = [line for line in lines if line.records]
    if table.measure == "attention":
        return _by_lag(lines)
    made = []
    for section, part in parted(lines, paper) if table.columns else ():
        caption = ". ".join(text for text in (section.title, section.note, paper.note) if text)
        made.append(_grid([one for line in part for one in (line, *line.parts())], table.columns, caption))
    for details in table.details:
        columns = _epochs(lines) if details.columns == (BY_EPOCH,) else details.columns
        able = [line for line in lines if columns and _cell(line, columns[0]) != NONE]
        caption = details.caption + (_noted(able) if details.notes else "")
        made += [_grid(able, columns, caption)] if able else []
    return made


def _grid(lines: Sequence[Line], columns: Sequence[str], caption: str) -> Grid:
    by_column = {name: [_cell(line, name) for line in lines] for name in columns}
    kept = {name: cells for name, cells in by_column.items() if set(cells) != {NONE}}
    rows = zip((line.title for line in lines), *kept.values(), strict=True)
    return Grid(("model", *kept), tuple(rows), caption)


def _cell(line: Line, column: str) -> str:
    try:
        if column.isdecimal():  # Figure 4: of an epoch
            epochs = line.first["utilisation_by_epoch"]
            return f"{100 * epochs[int(column) - 1]:.1f}" if int(column) <= len(epochs) else NONE
        return COLUMNS[column](line)
    except (KeyError, TypeError, ValueError, StopIteration):
        return NONE


def _epochs(lines: Sequence[Line]) -> list[str]:
    """Return at most so many of the epochs, the first and the last among them."""
    most = max((len(line.first.get("utilisation_by_epoch", ())) for line in lines), default=0)
    return [str(epoch + 1) for epoch in spread_epochs(most, _EPOCHS_SHOWN)] if most else []


def _noted(lines: Sequence[Line]) -> str:
    """Return what was noted when rows were measured."""
    records = [(line.title, record) for line in lines for record in line.records]
    found = [f"{title}: {note}" for title, record in records for note in record.get("details", {}).get("notes", ())]
    if any(record.get("cloze", {}).get("cbt_like") for _, record in records):
        found.append("CBT-like questions, which are not comparable with the published ones.")
    return ". " + " ".join(found) if found else ""


def _by_lag(lines: Sequence[Line]) -> list[Grid]:
    """Figure 3b: a line a lag, measured and published columns."""
    if not lines:
        return []
    measured = _measured_lags(lines)
    header, *rows = lag_columns(measured)
    caption = f"Mean attention in percent, first seed. {' '.join(notes(measured))}"
    return [Grid(tuple(header), tuple(map(tuple, rows)), caption)]


def _measured_lags(lines: Sequence[Line]) -> list[MeasuredLags]:
    """Return the attention by lag of each row's first seed, to stand beside the paper's."""
    measured = []
    for line in lines:
        found, (name, _) = line.first["attention"], line.row.curve or ("", 0)
        profile = LagProfile(tuple(found["percent"]), found["positions"], found["left_out"], found["nearest_lag"])
        model = name if name in PUBLISHED else name.lower()
        measured.append(MeasuredLags(name, f"{line.first['corpus']} {found['split']}", profile, model))
    return measured


def parted(lines: Sequence[Line], paper: Paper) -> Iterator[tuple[Section, list[Line]]]:
    """Part finished rows by what can be compared; sections without one are left out."""
    left = [line for line in lines if line.records]
    for section in paper.sections:
        mine = [line for line in left if section.holds(line.row)]
        left = [line for line in left if line not in mine]
        if mine:
            yield section, mine


def order_notes(table: Table, lines: Sequence[Line], paper: Paper) -> list[str]:
    """Say of each section how many pairs of its rows stand in the paper's order."""
    said = []
    for section, part in parted(lines, paper) if table.measure == "perplexity" else ():
        agree, pairs = concordance([(line.test.mean, line.published) for line in part if line.published])
        if pairs:
            title = f"{section.title}. " if section.title else ""
            said.append(f"{title}By test perplexity {agree} of {pairs} pairs of rows stand in the paper's order.")
    return said


def concordance(pairs: Iterable[tuple[float, float]]) -> tuple[int, int]:
    """Count the pairs that both numbers put in the same order, and those that the second puts in an order at all."""
    ordered = [((a - b) * (x - y) > 0) for (a, x), (b, y) in combinations(pairs, 2) if x != y]
    return sum(ordered), len(ordered)


# --- figures ---


def figure(plan: Plan, table: Table, lines: Sequence[Line]) -> Figure | None:
    """Draw a table; None while no run is finished."""
    lines = [line for line in lines if line.records]
    if not lines:
        return None
    if table.measure == "attention":
        return lag_figure(_measured_lags(lines))
    heading = f"{plan.paper.title}, {table.title}"
    most = max(len(line.records) for line in lines)
    seeds = "One seed." if most == 1 else f"Means of up to {most} seeds."
    if table.x_label:  # it says itself what bars are
        return sweep_figure(heading, table.x_label, "test perplexity", _curves(plan, lines), seeds)
    seeds += "" if most == 1 else " Bars go from the least to the greatest."
    titles = list(dict.fromkeys(line.title for line in lines))
    if table.measure == "cloze":
        return rows_figure(heading, titles, _accuracy_panels(lines), f"Squares: the paper, the real questions. {seeds}")
    return rows_figure(heading, titles, list(_panels(plan, table, lines, titles)), seeds)


def _panels(plan: Plan, table: Table, lines: Sequence[Line], titles: Sequence[str]) -> Iterator[RowsPanel]:
    """Draw a dot a row: what does not compare, and what is published, has a scale of its own."""
    for section, part in parted(lines, plan.paper):
        measured = {line.title: _value(line.test) for line in part}
        printed = {line.title: line.published for line in part}
        nothing = (None,) * len(titles)
        here = f"{section.label}, {plan.corpus.name}, {plan.scale.name}"
        yield RowsPanel(here, tuple(map(measured.get, titles)), nothing, plan.paper.digits)
        if any(printed.values()):
            where = f"{section.label}, published: {table.home or 'Wikipedia'}"
            yield RowsPanel(where, nothing, tuple(map(printed.get, titles)), plan.paper.digits)


def _accuracy_panels(lines: Sequence[Line]) -> list[RowsPanel]:
    """Figure 2d: a dot a model and word class, beside the paper's on the real questions."""
    panels = []
    for number, (name, title) in enumerate(CLOZE_CLASSES.items()):
        with suppress(KeyError, TypeError):  # no such questions, or none that could be scored
            measured = tuple(_value(line.of("cloze", "classes", name, "sentence", "accuracy")) for line in lines)
            published = tuple(PUBLISHED_CLOZE[line.row.name][number] for line in lines)
            panels.append(RowsPanel(f"{title}: accuracy", measured, published, 3))
    return panels


def _curves(plan: Plan, lines: Sequence[Line]) -> tuple[Panel, Panel]:
    """Draw test perplexity over windows or orders: measured and published in panels, since the corpora differ."""
    measured, published = [], []
    rows = [row for row in (plan.paper.rows[name] for name in lines[0].table.rows) if row.curve]
    found = lines[0].found
    for name in dict.fromkeys(row.curve[0] for row in rows if row.curve):
        mine = [(row.curve[1], row) for row in rows if row.curve and row.curve[0] == name]
        spreads = [(x, found[row.name].test) for x, row in mine if row.name in found]
        here = tuple(Point(x, spread.mean, spread.low, spread.high) for x, spread in spreads)
        if here:
            measured.append(Series(name, here))
            theirs = ((x, row.reported.test_ppl) for x, row in mine)
            published.append(Series(name, tuple(Point(x, test) for x, test in theirs if test), published=True))
    return (
        Panel(f"measured on {plan.corpus.name}, scale {plan.scale.name}", tuple(measured)),
        Panel("the paper, Wikipedia", tuple(published)),
    )


def _value(spread: Spread) -> Value:
    return Value(spread.mean, spread.low, spread.high)


def use_by_epoch(plan: Plan, lines: Sequence[Line]) -> Figure | None:
    """Li et al., Figure 4: how often each span buffer was used, of the first seed; None where there is none."""
    used = [line for line in lines if line.records and "utilisation_by_epoch" in line.first]
    if not used:
        return None
    learned, oracle = ([tuple(line.first[f"{what}utilisation_by_epoch"]) for line in used] for what in ("", "oracle_"))
    found = [Utilisation(line.row.title, *both) for line, *both in zip(used, learned, oracle, strict=True)]
    title = f"{plan.paper.title}, Figure 4: use of the span buffer by epoch"
    return utilisation_figure(title, found, f"{plan.corpus.name}, scale {plan.scale.name}, first seed.")


# --- pages ---


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
        lines = summarise(outcomes, table, plan.paper)
        drawn = {
            plan.out / f"{table.file}.svg": figure(plan, table, lines),
            plan.out / f"{table.file}-by-epoch.svg": use_by_epoch(plan, lines),
        }
        pictures = {path: figure_bytes(one, ".svg") for path, one in drawn.items() if one is not None}
        for path, content in pictures.items():
            write_whole(path, content)
        page = plan.out / f"{table.file}.md"
        write_whole(page, markdown_page(plan, table, lines, [path.name for path in pictures]).encode())
        written += [page, *pictures]
    return written


def markdown_page(plan: Plan, table: Table, lines: Sequence[Line], figures: Sequence[str] = ()) -> str:
    """Return the page of a table; `figures` are files beside it."""
    parts = [
        f"# {plan.paper.title}, {table.title}",
        _listed(protocol(plan, table, lines)),
        *map(markdown_grid, grids(table, lines, plan.paper)),
        *order_notes(table, lines, plan.paper),
        *(f"![{table.title}{', use of the span buffer' if 'epoch' in name else ''}]({name})" for name in figures),
        _missing(plan, table, lines),
        _listed(_origin(plan, table, lines)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)


def markdown_grid(grid: Grid) -> str:
    """Return a grid as a Markdown table under its caption."""
    table = markdown_table(grid.header, grid.rows)
    return f"**{grid.caption}**\n\n{table}" if grid.caption else table


def protocol(plan: Plan, table: Table, lines: Sequence[Line]) -> list[str]:
    """Say what was run, on what, and how it was counted, in lines."""
    said = [
        _corpus(plan, table),
        *dict.fromkeys(f"Corpus: {markdown(note)}." for text in plan.texts.values() for note in text.notes),
        *plan.scale.describe(adapting=any(isinstance(plan.paper.rows[name].how, Dynamic) for name in table.rows)),
        "What the published rows leave open: `spanlm presets`.",
    ]
    # what a cache adds is said with it
    plain = (line for line in lines if line.records and isinstance(line.row.how, Plain))
    if counted := dict.fromkeys(line.first["test"]["protocol"] for line in plain):
        ways = "; or: ".join(counted)
        said.append(f"Perplexity: exp(NLL / token); {ways}. The best epoch is that of the best validation.")
    seeds = sorted({seed for line in lines for record in line.records for seed in _seeds(record)})
    spread = any(len(line.records) > 1 for line in lines)
    said.append(f"Seeds: {', '.join(map(str, seeds))}{'; means, with the least and the greatest' if spread else ''}.")
    return said + ([f"Note: {table.remark}."] if table.remark else [])


def _corpus(plan: Plan, table: Table) -> str:
    corpus = plan.corpus
    sizes = ", ".join(f"{split} {len(tokens):,}" for split, tokens in corpus.splits.items())
    said = f"Corpus: **{markdown(corpus.name)}** ({sizes} tokens; vocabulary {len(corpus.vocabulary):,})."
    if table.home == corpus.name and plan.scale.vocabulary_size is None:
        return f"{said} It is the paper's own."
    return f"{said} The paper's numbers are those of {table.published_on}: compare orders and differences, not values."


def _missing(plan: Plan, table: Table, lines: Sequence[Line]) -> str:
    titles = {row: plan.paper.rows[row].title for row in table.rows}
    alike = Counter(titles.values())  # rows with one title differ in how they are evaluated
    titles = {row: title if alike[title] == 1 else f"{title} (`{row}`)" for row, title in titles.items()}
    said = [f"{titles[line.row.name]}: **failed**: {markdown(error)}" for line in lines for error in line.errors]
    ended, reasons = {line.row.name for line in lines}, {task.row: "not run yet" for task in plan.tasks}
    reasons |= {row: f"left out: {why}" for row, why in plan.left_out.items()}
    said += [f"{titles[row]}: {reasons.get(row, 'not asked for')}" for row in table.rows if row not in ended]
    return f"Missing:\n\n{_listed(said)}" if said else ""


def _origin(plan: Plan, table: Table, lines: Sequence[Line]) -> list[str]:
    """Say what made the runs: command, time, commits, machines; the records have every start."""
    records = [record for line in lines for record in line.records]
    if not records:
        return []
    trained = [record["training_seconds"] for record in records if "training_seconds" in record]
    starts = [start for record in records for start in record["starts"]]
    commits = sorted({f"{s['commit'][:10]}{' (changed)' if s['changed'] else ''}" for s in starts if s["commit"]})
    machines = sorted(
        {
            f"{s['processor']}, {s['threads']} thread(s), {s['device']}, torch {s['torch']}"
            + (f", {s['precision']}" if "precision" in s else "")
            for s in starts
        }
    )
    return [
        f"Made again by `{_command(plan, table, lines)}`.",
        f"Training time of {several(len(trained), 'run')}: {timedelta(seconds=round(sum(trained)))}, validation left "
        "out.",
        f"Code: commit {', '.join(commits)}." if commits else "Code: not from a checkout; no commit known.",
        *([f"Machine: {'; '.join(machines)}."] if machines else []),
    ]


def _command(plan: Plan, table: Table, lines: Sequence[Line]) -> str:
    """Return what makes all that is shown, wherever texts and runs are kept."""
    request = plan.request
    each = [_seeds(record) for line in lines for record in line.records]
    asked = replace(
        request,
        table=table.name,
        corpus=Path(request.corpus or plan.corpus.name).name,
        # an ensemble says itself which seeds it needs
        seeds=tuple(sorted({seeds[0] for seeds in each if len(seeds) == 1} or request.seeds)),
        rows=tuple(line.row.name for line in lines if line.records) if request.rows else None,
        questions=tuple(Path(path.name) for path in request.questions),
        **{name: getattr(Request(paper=""), name) for name in ("runs", "out", "data_dir")},
    )
    return shlex.join(["spanlm", *asked.words])
