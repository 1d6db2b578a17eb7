"""A table as rows with named columns, measured and published: in Markdown, on the terminal and as a figure."""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, partial, reduce
from itertools import chain, combinations
from operator import getitem
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from spanlm.analysis import figures
from spanlm.analysis.export import write_whole
from spanlm.analysis.figures import Panel, Point, RowsPanel, Series, Value
from spanlm.analysis.lags import PUBLISHED, LagProfile, MeasuredLags, lag_columns, notes
from spanlm.analysis.utilisation import Utilisation, spread_epochs
from spanlm.papers.certainty import NONE, Certainty, certainty
from spanlm.papers.paper import (
    BY_EPOCH,
    BY_LAG,
    WORD_CLASSES,
    Averaged,
    Dynamic,
    Paper,
    Plain,
    Reported,
    Row,
    Section,
    Table,
)
from spanlm.papers.plan import Plan, Request
from spanlm.papers.run import Outcome
from spanlm.scoring.tally import shown
from spanlm.store.plain import markdown, markdown_table, several

_MOST_EPOCHS = 12  # columns of PoU by epoch


class Grid(NamedTuple):
    """Cells of text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


def spread(values: Iterable[float]) -> Value:
    """Summarise a number over several seeds."""
    numbers = list(values)
    return Value(fmean(numbers), min(numbers), max(numbers))


def in_words(value: Value, digits: int = 1) -> str:
    """`81.2`, or over several seeds `81.2 (80.9–81.6)`."""
    mean, low, high = (shown(number, digits) for number in (value.value, value.low, value.high))
    return mean if value.low == value.high else f"{mean} ({low}–{high})"


def _seeds(record: Mapping[str, Any]) -> tuple[int, ...]:
    return (record["seed"],) if "seed" in record else tuple(member["seed"] for member in record["members"])


@dataclass(frozen=True, eq=False)
class Line:
    """A row of a table with the records of all its finished runs."""

    row: Row
    table: Table
    paper: Paper
    records: tuple[dict[str, Any], ...]  # in the order of their seeds
    done: Mapping[str, Line] = field(default_factory=dict, repr=False)  # the table's lines with a finished run

    @property
    def first(self) -> dict[str, Any]:
        return self.records[0]

    @property
    def title(self) -> str:
        return self.row.title + ("" if self.row.in_paper else " †")

    def of(self, path: str, scale: float = 1) -> Value:
        """Summarise what the records have at a path (`test.perplexity`): a number, or several."""
        values: Iterable[Any] = (reduce(getitem, path.split("."), record) for record in self.records)
        return spread(scale * float(number) for value in values for number in np.ravel(value))

    def ppl(self, value: float | None) -> str:
        return NONE if value is None else shown(value, self.paper.digits)

    def by(self, difference: float) -> str:
        return f"{'−' if difference < 0 else '+'}{self.ppl(abs(difference))}"

    def parts(self) -> Iterator[Line]:
        """Yield a line for each component that the table lists of the row, with the whole row as its control."""
        for part in self.table.parts.get(self.row.name, ()):
            published = Reported(test_ppl=part.test_ppl)
            row = replace(self.row, title=part.title, how=Plain(), published=published, control=self.row.name)
            with suppress(KeyError, TypeError):  # a buffer that never held anything
                yield replace(self, row=row, records=tuple(_of_part(one, part.key) for one in self.records))


def _of_part(record: dict[str, Any], key: str) -> dict[str, Any]:
    return record | {split: {"perplexity": record[split]["parts"][key]} for split in ("valid", "test")}


Cell = Callable[[Line], str]  # raises one of `_NOTHING` if the line has nothing for the column
_NOTHING = (KeyError, TypeError, ValueError, IndexError, AttributeError)


@dataclass(frozen=True)
class Number:
    """Writes a number of the records: its mean over the seeds, with the least and the greatest; by a form, the mean."""

    path: str
    form: str = ""
    scale: float = 1
    digits: int | None = None  # None: those of the paper's perplexities

    def __call__(self, line: Line) -> str:
        value = line.of(self.path, self.scale)
        digits = line.paper.digits if self.digits is None else self.digits
        return self.form.format(value.value) if self.form else in_words(value, digits)


@dataclass(frozen=True)
class Form:
    """Writes fields of the first seed's record, or of each seed's, and of `published`, what the paper printed."""

    form: str
    each: bool = False

    def __call__(self, line: Line) -> str:
        more = {"published": line.row.reported, "accuracies": line.row.accuracies, "digits": line.paper.digits}
        records = line.records if self.each else line.records[:1]
        return "; ".join(self.form.format(**record | more) for record in records)


def _count(line: Line) -> str:
    return f"1–{line.row.how.members}" if isinstance(line.row.how, Averaged) else str(len(line.records))


def _over(line: Line) -> str:
    """`−3.2 (medium)`: less its control's at the seeds that both have; an ensemble's, less the mean of its members'."""
    if isinstance(line.row.how, Averaged):
        return f"{line.by(line.of('test.perplexity').value - line.of('details.test.members').value)} (its members)"
    both = (line, line.done[line.row.control])
    mine, theirs = ({_seeds(one): one["test"]["perplexity"] for one in each.records} for each in both)
    return f"{line.by(fmean(mine[seeds] - theirs[seeds] for seeds in mine.keys() & theirs))} ({line.row.control})"


def _published_over(line: Line) -> str:
    control = line.row.control if line.row.control in line.table.rows else ""
    ours, theirs = line.row.reported.test_ppl, line.paper.rows[control].reported.test_ppl
    return line.by(ours - theirs) if ours and theirs else NONE


def _accuracy(name: str, score: str, line: Line) -> str:
    if len(line.records) > 1:
        return in_words(line.of(f"cloze.classes.{name}.{score}.accuracy"), 3)
    found = line.first["cloze"]["classes"][name][score]
    low, high = found["interval"]
    return f"{found['accuracy']:.3f} [{low:.3f}, {high:.3f}]"


def excess(line: Line) -> Value:
    """Return how many bits a target the model needs above the law of the text."""
    return spread(math.log2(one["test"]["perplexity"]) - float(one["law"]["test"]) for one in line.records)


def _excess(line: Line) -> str:
    return in_words(excess(line), 3)


def _excess_by_lag(lags: Sequence[int], line: Line) -> str:
    return in_words(spread(one["excess"] for one in line.first["excess"] if one["lags"] == lags), 3)


def _use_by_epoch(epoch: int, line: Line) -> str:
    return f"{100 * line.first['utilisation_by_epoch'][epoch]:.1f}"


def _lambda(line: Line) -> str:
    if "dynamic" in line.first["details"]:
        return Form("{details[dynamic][decay]:.2g}", each=True)(line)
    return Form("{details[cache][lambda]:.2g}", each=True)(line)


def _whole_trials(line: Line) -> str:
    return str(sum(trial["whole"] for trial in line.first["details"]["grid"]))


def _gathered(line: Line) -> str:
    statistics = line.first["details"]["statistics"]
    return "all of train" if statistics["whole"] else f"{statistics['tokens']:,}"


def _of_split(split: str) -> dict[str, Cell]:
    return {
        f"{split} ppl": Number(f"{split}.perplexity"),
        f"their count: {split}": Number(f"{split}.salton2017.perplexity"),
        f"per predicted word: {split}": Number(f"{split}.salton2017.perplexity_per_predicted"),
        f"{split}: without": Number(f"{split}.without_cache.perplexity"),
        f"members: {split}": Number(f"details.{split}.members"),
        f"oracle bound: {split}": Number(f"details.{split}.oracle_bound"),
        f"{split}: RNN": Number(f"{split}.parts.encoder"),
        f"{split}: buffer": Number(f"{split}.parts.buffer"),
        f"{split}: oracle": Number(f"{split}.parts.oracle"),
        f"paper: {split}": Form(f"{{published.{split}_ppl:,.{{digits}}f}}"),
    }


COLUMNS: dict[str, Cell] = {
    "units": Form("{units:,}"),
    "readout": Form("{readout:,}"),
    "θ_M": Number("model_parameters", "{:.2f}M", 1e-6),
    "parameters": Number("all_parameters", "{:.2f}M", 1e-6),
    "seeds": _count,
    **_of_split("valid"),
    **_of_split("test"),
    "over": _over,
    "excess": _excess,
    "law": Number("law.test", digits=3),
    "paper: parameters": Form("{published.all_parameters:g}M"),
    "paper: over": _published_over,
    "PoU": Number("test.parts.utilisation", scale=100, digits=1),
    "oracle PoU": Number("test.parts.oracle_utilisation", scale=100, digits=1),
    "best epoch": Form("{best_epoch} of {epochs}", each=True),
    "train ppl": Number("train_perplexity_at_best", digits=1),
    "tokens/s": Number("tokens_per_second", "{:,.0f}"),
    "minutes": Number("training_seconds", "{:.1f}", 1 / 60),
    "measured in minutes": Number("seconds", "{:.1f}", 1 / 60),
    "words": Form("{how[window]:,}"),
    "θ": Form("{details[cache][theta]:.2g}", each=True),
    "λ": _lambda,
    "η": Form("{details[dynamic][rate]:.2g}", each=True),
    "ε": Form("{details[dynamic][epsilon]:.2g}", each=True),
    "pairs tried": Form("{details[tried]}"),
    "on all of valid": _whole_trials,
    "MS over words": _gathered,
    **{f"sentence: {title}": partial(_accuracy, name, "sentence") for name, title in WORD_CLASSES.items()},
    **{f"candidate: {title}": partial(_accuracy, name, "candidate") for name, title in WORD_CLASSES.items()},
    **{f"paper: {title}": Form(f"{{accuracies[{number}]:.3f}}") for number, title in enumerate(WORD_CLASSES.values())},
}
"""The columns of all tables by their headings."""


def _cell(line: Line, cell: Cell) -> str:
    """Return a cell, or a dash where the line has nothing for it."""
    try:
        return cell(line)
    except _NOTHING:
        return NONE


def _grid(lines: Sequence[Line], columns: Mapping[str, Cell], caption: str) -> Grid:
    by_column = {name: [_cell(line, cell) for line in lines] for name, cell in columns.items()}
    kept = {name: cells for name, cells in by_column.items() if set(cells) != {NONE}}
    rows = zip((line.title for line in lines), *kept.values(), strict=True)
    return Grid(("model", *kept), tuple(rows), caption)


class Group(NamedTuple):
    """The finished rows of a section."""

    section: Section
    lines: list[Line]
    trained: list[Line]  # those that are evaluated as they are, where their records' blocks count as the section does
    sure: Certainty | None  # how sure the differences of the trained ones are


class Page:
    """A table of a plan with its outcomes; `done` are the rows with a finished run."""

    def __init__(self, plan: Plan, table: Table, outcomes: Sequence[Outcome]) -> None:
        self.plan, self.paper, self.table = plan, plan.paper, table
        self.outcomes = [outcome for outcome in outcomes if outcome.task.row.name in table.rows]
        done = dict[str, Line]()
        for name in table.rows:
            mine = (outcome.record for outcome in self.outcomes if outcome.task.row.name == name)
            if records := sorted((record for record in mine if record is not None), key=_seeds):
                done[name] = Line(self.paper.rows[name], table, self.paper, tuple(records), done)
        self.done = list(done.values())
        self._records = [record for line in self.done for record in line.records]

    @cached_property
    def groups(self) -> list[Group]:
        found, left = list[Group](), self.done
        for section in self.paper.sections:
            mine = [line for line in left if section.holds(line.row)]
            left = [line for line in left if line not in mine]
            as_counted = self.table.measure in ("perplexity", "cloze") and section.counted == Section.counted
            trained = [line for line in mine if as_counted and isinstance(line.row.how, Plain)]
            sure = certainty({line.row.name: line.records for line in trained})
            found += [Group(section, mine, trained, sure)] if mine else []
        return found

    def grids(self) -> list[Grid]:
        if self.table.measure == "attention" and self.done:  # a line a lag, measured and published columns
            header, *lags = map(tuple, lag_columns(measured := self._lags()))
            return [Grid(header, tuple(lags), f"Mean attention in percent, first seed. {' '.join(notes(measured))}")]
        found = []
        for section, lines, _, _ in self.groups if self.table.columns else ():
            caption = ". ".join(text for text in (section.title, section.note, self.paper.note) if text)
            with_parts = [one for line in lines for one in (line, *line.parts())]
            found.append(_grid(with_parts, {name: COLUMNS[name] for name in self.table.columns}, caption))
        for details in self.table.details:
            columns = dict(chain.from_iterable(map(self._columns, details.columns)))
            first = next(iter(columns.values()), None)
            able = [line for line in self.done if first and _cell(line, first) != NONE]
            found += [_grid(able, columns, details.caption + (_noted(able) if details.notes else ""))] if able else []
        return [*found, *(_sure_grid(group.trained, group.sure) for group in self.groups if group.sure)]

    def _columns(self, name: str) -> Iterable[tuple[str, Cell]]:
        """Return the column of a name, or those that it stands for."""
        if name == BY_EPOCH:
            epochs = max((len(line.first.get("utilisation_by_epoch", ())) for line in self.done), default=0)
            shown = spread_epochs(epochs, _MOST_EPOCHS) if epochs else []
            return [(str(epoch + 1), partial(_use_by_epoch, epoch)) for epoch in shown]
        if name == BY_LAG:
            # the first is that of all lags
            ranges = [one["lags"] for one in self.done[0].first.get("excess", [])[1:]] if self.done else []
            return [
                (f"lag {'–'.join(map(str, dict.fromkeys(lags)))}", partial(_excess_by_lag, lags)) for lags in ranges
            ]
        return [(name, COLUMNS[name])]

    def _lags(self) -> list[MeasuredLags]:
        measured = []
        for line in self.done:
            found, (name, _) = line.first["attention"], line.row.preset.curve or ("", 0)
            profile = LagProfile(tuple(found["percent"]), found["positions"], found["left_out"], found["nearest_lag"])
            model = name if name in PUBLISHED else name.lower()
            measured.append(MeasuredLags(name, f"{line.first['corpus']} {found['split']}", profile, model))
        return measured

    def order(self) -> list[str]:
        """Say of each section how many pairs of rows stand in the paper's order."""
        found = []
        for section, lines, trained, sure in self.groups:
            settled = set[str]()
            if sure:
                published = {line.row.name: line.row.reported.test_ppl for line in trained}
                without = [line.title for line in trained if line.row.name not in sure.names]
                unordered = without or self.table.measure == "cloze"  # of which the papers have no perplexity
                text = sure.sentences([] if unordered else [published[name] for name in sure.names])
                text += f" Without blocks of this text in their records: {', '.join(without)}." if without else ""
                settled = set() if without else set(sure.names)
                found.append(text)
            if self.table.measure == "perplexity" and any(line.row.name not in settled for line in lines):
                tests = [(line.of(f"test.{section.counted}").value, line.row.reported.test_ppl) for line in lines]
                both = combinations([(ours, theirs) for ours, theirs in tests if theirs], 2)
                alike = [(a - b) * (x - y) > 0 for (a, x), (b, y) in both if x != y]
                title, pairs = f"{section.title}. " if section.title else "", f"{sum(alike)} of {len(alike)} pairs"
                text = f"{title}By test perplexity {pairs} of rows stand in the paper's order."
                found += [text] if alike else []
        return found

    def figures(self) -> dict[str, Figure]:
        if not self.done or self.table.measure == "excess":  # the overview has one of them all
            return {}
        heading, most = f"{self.paper.title}, {self.table.title}", max(len(line.records) for line in self.done)
        seeds = "One seed." if most == 1 else f"Means of up to {most} seeds."
        titles = list(dict.fromkeys(line.title for line in self.done))
        if self.table.measure == "attention":
            drawn = figures.lag_figure(self._lags())
        elif self.table.x_label:  # explains its own error bars
            drawn = figures.sweep_figure(heading, self.table.x_label, "test perplexity", self._curves(), seeds)
        else:
            cloze = self.table.measure == "cloze"
            caption = "Squares: the paper, the real questions. " * cloze + seeds
            caption += "" if most == 1 else " Bars go from the least to the greatest."
            caption += "" if cloze else " The axis is logarithmic."
            panels = list(self._accuracies() if cloze else self._perplexities(titles))
            drawn = figures.rows_figure(heading, titles, panels, caption, logarithmic=not cloze)
        found, names = {f"{self.table.file}.svg": drawn}, ("utilisation_by_epoch", "oracle_utilisation_by_epoch")
        if used := [line for line in self.done if names[0] in line.first]:
            use = [Utilisation(line.row.title, *(tuple(line.first[name]) for name in names)) for line in used]
            heading = f"{self.paper.title}, {self.paper.by_epoch}: use of the span buffer by epoch"
            caption = f"{self.plan.corpus.name}, scale {self.plan.scale.name}, first seed."
            found[f"{self.table.file}-by-epoch.svg"] = figures.utilisation_figure(heading, use, caption)
        return found

    def _perplexities(self, titles: Sequence[str]) -> Iterator[RowsPanel]:
        nothing = (None,) * len(titles)
        for section, lines, _, _ in self.groups:
            measured = {line.title: line.of(f"test.{section.counted}") for line in lines}
            printed = {line.title: line.row.reported.test_ppl for line in lines}
            here = f"{section.label}, {self.plan.corpus.name}, {self.plan.scale.name}"
            yield RowsPanel(here, tuple(map(measured.get, titles)), nothing, self.paper.digits)
            if self.table.text and any(printed.values()):
                where = f"{section.label}, published: {self.table.text.name}"
                yield RowsPanel(where, nothing, tuple(map(printed.get, titles)), self.paper.digits)

    def _accuracies(self) -> Iterator[RowsPanel]:
        for number, (name, title) in enumerate(WORD_CLASSES.items()):
            with suppress(KeyError, TypeError):  # no such questions, or none that could be scored
                measured = tuple(line.of(f"cloze.classes.{name}.sentence.accuracy") for line in self.done)
                published = tuple(line.row.accuracies[number] for line in self.done)
                yield RowsPanel(f"{title}: accuracy", measured, published, 3)

    def _curves(self) -> tuple[Panel, Panel]:
        measured, published = [], []
        tests = {line.row.name: line.of("test.perplexity") for line in self.done}
        curves = defaultdict[str, list[tuple[int, Row]]](list)
        for row in map(self.paper.rows.__getitem__, self.table.rows):
            if row.preset.curve:
                name, x = row.preset.curve
                curves[name].append((x, row))
        for name, rows in curves.items():
            if points := tuple(Point(x, *tests[row.name]) for x, row in rows if row.name in tests):
                measured.append(Series(name, points))
                theirs = (Point(x, ppl) for x, row in rows if (ppl := row.reported.test_ppl))
                published.append(Series(name, tuple(theirs), published=True))
        here = f"measured on {self.plan.corpus.name}, scale {self.plan.scale.name}"
        theirs_on = self.table.text.name if self.table.text else ""
        return Panel(here, tuple(measured)), Panel(f"the paper, {theirs_on}", tuple(published))

    def markdown(self, figures: Iterable[str] = ()) -> str:
        """Return the page; `figures` are files beside it."""
        title = self.table.title
        grids = [(one.caption and f"**{one.caption}**", markdown_table(one.header, one.rows)) for one in self.grids()]
        parts = [
            f"# {self.paper.title}, {title}",
            _listed(self.protocol(markdown)),
            *chain.from_iterable(grids),
            *self.order(),
            *(f"![{title}{', use of the span buffer' if 'epoch' in name else ''}]({name})" for name in figures),
            self._missing(),
            _listed(self._origin()),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def protocol(self, escape: Callable[[str], str] = str) -> list[str]:
        plan, corpus, of = self.plan, self.plan.corpus, self.table.text.described if self.table.text else ""
        sizes = ", ".join(f"{split} {len(tokens):,}" for split, tokens in corpus.splits.items())
        own = self.table.home == corpus.name and plan.scale.vocabulary_size is None
        theirs = f" The paper's numbers are those of {of}: compare orders and differences, not values." if of else ""
        lines = [
            f"Corpus: {escape(corpus.name)} ({sizes} tokens; vocabulary {len(corpus.vocabulary):,})."
            + (" It is the paper's own." if own else theirs),
            *dict.fromkeys(f"Corpus: {escape(note)}." for text in plan.texts.values() for note in text.notes),
            *plan.scale.describe(adapting=any(isinstance(self.paper.rows[n].how, Dynamic) for n in self.table.rows)),
            *(["What the published rows leave open: `spanlm presets`."] if of else []),
        ]
        # what a cache adds is in the notes on it
        plain = (line for line in self.done if isinstance(line.row.how, Plain))
        if counted := dict.fromkeys(line.first["test"]["protocol"] for line in plain):
            ways = "; or: ".join(counted)
            lines.append(f"Perplexity: exp(NLL / token); {ways}. The best epoch is that of the best validation.")
        seeds = sorted({seed for record in self._records for seed in _seeds(record)})
        spread = "; means, with the least and the greatest" * any(len(line.records) > 1 for line in self.done)
        lines.append(f"Seeds: {', '.join(map(str, seeds))}{spread}.")
        return lines + ([f"Note: {self.table.remark}."] if self.table.remark else [])

    def _missing(self) -> str:
        titles = {row: self.paper.rows[row].title for row in self.table.rows}
        alike = Counter(titles.values())  # rows with one title differ in how they are evaluated
        titles = {row: title if alike[title] == 1 else f"{title} (`{row}`)" for row, title in titles.items()}
        by_row = [(row, one) for row in self.table.rows for one in self.outcomes if one.task.row.name == row]
        lines = [f"{titles[row]}: **failed**: {markdown(one.error)}" for row, one in by_row if one.record is None]
        ended, reasons = {row for row, _ in by_row}, {task.row.name: "not run yet" for task in self.plan.tasks}
        reasons |= {row: f"left out: {why}" for row, why in self.plan.left_out.items()}
        lines += [f"{titles[row]}: {reasons.get(row, 'not asked for')}" for row in self.table.rows if row not in ended]
        return f"Missing:\n\n{_listed(lines)}" if lines else ""

    def _origin(self) -> list[str]:
        request = self.plan.request
        # an ensemble needs no --seeds
        seeds = sorted({seeds[0] for seeds in map(_seeds, self._records) if len(seeds) == 1})
        asked = replace(
            request,
            table=self.table.name,
            corpus=Path(request.corpus or self.plan.corpus.name).name,
            seeds=tuple(seeds) or request.seeds,
            rows=tuple(line.row.name for line in self.done) if request.rows else None,
            questions=tuple(Path(path.name) for path in request.questions),
            **{place: getattr(Request, place) for place in ("runs", "out", "data_dir")},
        )
        trained = [record["training_seconds"] for record in self._records if "training_seconds" in record]
        starts = [start for record in self._records for start in record["starts"]]
        commits = sorted({f"{s['commit'][:10]}{' (changed)' if s['changed'] else ''}" for s in starts if s["commit"]})
        machine = "{processor}, {threads} thread(s), {device}, torch {torch}"
        machines = sorted({machine.format_map(s) + (f", {s['precision']}" if "precision" in s else "") for s in starts})
        time = f"{several(len(trained), 'run')}: {timedelta(seconds=round(sum(trained)))}"
        lines = [
            f"Made again by `{shlex.join(['spanlm', *asked.words])}`.",
            f"Training time of {time}, validation left out.",
            f"Code: commit {', '.join(commits)}." if commits else "Code: not from a checkout; no commit known.",
            f"Machine: {'; '.join(machines)}.",
        ]
        return lines if self.done else []


def _sure_grid(lines: Sequence[Line], sure: Certainty) -> Grid:
    """Say of each row how sure its difference from its control is, and which place it may have."""
    by_name, rows = {line.row.name: line for line in lines}, list[tuple[str, ...]]()
    for number, name in enumerate(sure.names):
        control = by_name[name].row.control
        there = control in sure.names
        bits, *cells = sure.cells(number, sure.names.index(control) if there else None)
        rows.append((by_name[name].title, bits, by_name[control].title if there else NONE, *cells))
    header = ("model", "bits", "control", "difference", "p", "place")
    return Grid(header, tuple(rows), "How sure differences are: bits a token on test, + is worse")


def _noted(lines: Sequence[Line]) -> str:
    records = [(line.title, record) for line in lines for record in line.records]
    found = [f"{title}: {note}" for title, record in records for note in record.get("details", {}).get("notes", ())]
    if any(record.get("cloze", {}).get("cbt_like") for _, record in records):
        found.append("CBT-like questions, which are not comparable with the published ones.")
    return ". " + " ".join(found) if found else ""


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)


class Overview:
    """One column of several tables, a table each, for the rows that have a finished run in any of them."""

    def __init__(self, pages: Sequence[Page]) -> None:
        self.paper, self.pages = pages[0].paper, pages
        done = [line for page in pages for line in page.done]
        titles = {line.title for line in done}
        self.rows = [row for row in self.paper.rows.values() if row.title in titles]
        several_seeds = max((len(line.records) for line in done), default=0)
        means = f"Means of up to {several_seeds} seeds, with the least and the greatest"
        self.seeds = "One seed" if several_seeds == 1 else means

    def grid(self) -> Grid:
        column, by_page = COLUMNS[self.paper.overview], list[dict[str, str]]()
        for page in self.pages:
            by_page.append({line.title: _cell(line, column) for line in page.done})
        rows = tuple((row.title, *(cells.get(row.title, NONE) for cells in by_page)) for row in self.rows)
        return Grid(("model", *(page.table.name for page in self.pages)), rows, f"{self.paper.note}. {self.seeds}")

    def write(self, request: Request) -> list[Path]:
        """Write the page and its figure below the folder of all records; return the files."""
        titles, grid, panels = [row.title for row in self.rows], self.grid(), list[RowsPanel]()
        for page in (page for page in self.pages if page.done):
            values = {line.title: excess(line) for line in page.done}
            nothing = (None,) * len(titles)
            panels.append(RowsPanel(page.table.name, tuple(map(values.get, titles)), nothing, self.paper.digits))
        heading = f"{self.paper.title}: {self.paper.overview} in bits a target"
        drawn, name = figures.rows_figure(heading, titles, panels, f"{self.seeds}."), f"overview-{request.scale}"
        texts = [f"* {page.table.title}; {page.table.remark}" for page in self.pages]
        rows = tuple(row.name for row in self.rows) if request.rows else None
        again = f"Made again by `{shlex.join(['spanlm', *replace(request, table=None, rows=rows).words])}`."
        table = markdown_table(grid.header, grid.rows)
        parts = [f"# {heading}", grid.caption, table, "\n".join(texts), f"![{heading}]({name}.svg)", again]
        files = {f"{name}.md": ("\n\n".join(parts) + "\n").encode(), f"{name}.svg": figures.figure_bytes(drawn, ".svg")}
        return _written(request.out / self.paper.name, files)


def write_pages(plan: Plan, outcomes: Sequence[Outcome]) -> list[Path]:
    """Write page and figures (`figure-2c.md`, `figure-2c.svg`) of every table; return the files."""
    files = dict[str, bytes]()
    for page in (Page(plan, table, outcomes) for table in plan.tables):
        drawn = page.figures()
        files[f"{page.table.file}.md"] = page.markdown(drawn).encode(errors="backslashreplace")
        files |= {name: figures.figure_bytes(one, ".svg") for name, one in drawn.items()}
    return _written(plan.out, files)


def _written(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_whole(folder / name, content)
    return [folder / name for name in files]
