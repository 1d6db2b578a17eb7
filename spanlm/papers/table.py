"""A table of a paper filled with the records of its rows: cells by named columns, and how sure their order is.

A record is what a finished row left (`spanlm.papers.record`); the facts of a row are its records, what follows from
them, and what the paper printed. A column is a path into the facts and how the number there is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spanlm.analysis.curves import spread_epochs
from spanlm.analysis.figures import Value
from spanlm.analysis.lags import PUBLISHED, LagProfile, MeasuredLags, lag_columns, notes
from spanlm.config import RunConfig
from spanlm.papers.certainty import NONE, Certainty, certainty
from spanlm.papers.paper import (
    BY_EPOCH,
    BY_LAG,
    WORD_CLASSES,
    Averaged,
    Column,
    Component,
    Paper,
    Plain,
    Quoted,
    Reported,
    Row,
    Section,
    Table,
)
from spanlm.scoring.resampling import of_chance, signed
from spanlm.scoring.tally import shown

Record = Mapping[str, Any]
_MOST_EPOCHS = 12  # columns of PoU by epoch
_LAST_WORDS = 8  # before a prediction

COLLAPSED = "collapsed"
"""Stands in place of a perplexity that measures no more than that the training failed."""

FREQUENCIES = 0.95
"""A whole model with at least this share of the perplexity of word frequencies predicts as these do."""


_PARTS = "encoder", "buffer"


class Grid(NamedTuple):
    """Cells of text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


def at(record: Record, path: str) -> Any:
    """Follow a path with dots into a record; None where it ends before."""
    value: Any = record
    for key in path.split("."):
        if isinstance(value, list):
            value = value[int(key)] if int(key) < len(value) else None
        else:
            value = (value or {}).get(key)
    return value


def spread(values: Iterable[float]) -> Value:
    numbers = list(values)
    return Value(fmean(numbers), min(numbers), max(numbers))


def in_words(value: Value, digits: int = 1) -> str:
    """`81.2`, or over several seeds `81.2 (80.9–81.6)`."""
    mean, low, high = (shown(number, digits) for number in (value.value, value.low, value.high))
    return mean if value.low == value.high else f"{mean} ({low}–{high})"


def seeds_of(record: Record) -> tuple[int, ...]:
    """Return the seeds of its trainings: one, those of an ensemble, or none of an n-gram model."""
    return (record["seed"],) if "seed" in record else tuple(member["seed"] for member in record.get("members", ()))


def unigram_perplexity(train: npt.NDArray[np.integer], valid: npt.NDArray[np.integer]) -> float:
    """Return the perplexity on valid of the word frequencies of train; a word that train lacks counts once."""
    counts = np.maximum(np.bincount(train, minlength=int(valid.max()) + 1), 1)
    return float(np.exp(np.log(counts.sum()) - np.log(counts[valid]).mean()))


def cell(line: Line, column: Column) -> str:
    """Return the cell of a row; a dash where it has no such number."""
    return _cell(line.facts, column, line.paper.digits)


def _cell(facts: Sequence[Record], column: Column, digits: int) -> str:
    if column.path in ("valid.perplexity", "test.perplexity") and facts[0].get("collapsed"):
        return COLLAPSED
    facts = facts[:1] if column.seeds == "first" else facts
    values = [at(of_seed, column.path) for of_seed in facts]
    if any(value is None for value in values):
        return NONE
    if column.seeds != "mean" and column.form:
        return "; ".join(map(column.form.format, values))
    value = spread(column.scale * float(number) for value in values for number in np.ravel(value))
    if column.form:
        return column.form.format(value.value)
    if column.interval and len(facts) == 1:
        value = Value(value.value, *at(facts[0], column.interval))
        return "{:.{digits}f} [{:.{digits}f}, {:.{digits}f}]".format(*value, digits=column.digits)
    return in_words(value, digits if column.digits is None else column.digits)


def _of_split(split: str) -> dict[str, Column]:
    return {
        f"{split} ppl": Column(f"{split}.perplexity"),
        f"{split}: without": Column(f"{split}.without_cache.perplexity"),
        f"members: {split}": Column(f"details.{split}.members"),
        f"oracle bound: {split}": Column(f"details.{split}.oracle_bound"),
        f"paper: {split}": Column(f"published.{split}_ppl", seeds="first"),
    }


def _of_class(name: str, title: str) -> dict[str, Column]:
    scores = (("sentence", f"cloze.classes.{name}.sentence"), ("candidate", f"cloze.classes.{name}.candidate"))
    columns = {
        f"{score}: {title}": Column(f"{path}.accuracy", digits=3, interval=f"{path}.interval") for score, path in scores
    }
    return columns | {f"paper: {title}": Column(f"accuracies.{name}", digits=3, seeds="first")}


COLUMNS: dict[str, Column] = {
    "units": Column("units", "{:,}", seeds="first"),
    "readout": Column("readout", "{:,}", seeds="first"),
    "θ_M": Column("model_parameters", "{:.2f}M", 1e-6),
    "parameters": Column("all_parameters", "{:.2f}M", 1e-6),
    "seeds": Column("seeds", "{}", seeds="first"),
    **_of_split("valid"),
    **_of_split("test"),
    "over": Column("over", "{}", seeds="first"),
    "collapsed": Column("collapsed", "{}", seeds="first"),
    "paper: parameters": Column("published.all_parameters", "{:g}M", seeds="first"),
    "paper: θ_M": Column("published.model_parameters", "{:g}M", seeds="first"),
    "quoted from": Column("quoted_from", "{}", seeds="first"),
    "paper: over": Column("published_over", "{}", seeds="first"),
    "best epoch": Column("best_of_epochs", "{}", seeds="each"),
    "train ppl": Column("train_perplexity_at_best", digits=1),
    "tokens/s": Column("tokens_per_second", "{:,.0f}"),
    "minutes": Column("training_seconds", "{:.1f}", 1 / 60),
    "measured in minutes": Column("seconds", "{:.1f}", 1 / 60),
    "words": Column("how.window", "{:,}", seeds="first"),
    "θ": Column("details.cache.theta", "{:.2g}", seeds="each"),
    "λ": Column("lambda", "{:.2g}", seeds="each"),
    "η": Column("details.dynamic.rate", "{:.2g}", seeds="each"),
    "ε": Column("details.dynamic.epsilon", "{:.2g}", seeds="each"),
    "pairs tried": Column("details.tried", "{}", seeds="first"),
    "on all of valid": Column("whole_trials", "{}", seeds="first"),
    "MS over words": Column("gathered", "{}", seeds="first"),
    **{title: column for both in WORD_CLASSES.items() for title, column in _of_class(*both).items()},
}
"""Columns by their headings; a paper may have others of its own."""


def _derived(record: Record) -> dict[str, Any]:
    """Return what columns show of a record beside its fields."""
    details = record.get("details", {})
    facts: dict[str, Any] = {"lambda": at(details, "cache.lambda")}
    if "dynamic" in details:
        whole = [trial.get("whole") for trial in details["grid"]]
        statistics = details["statistics"]
        facts = {
            "lambda": details["dynamic"]["decay"],
            "whole_trials": None if None in whole else sum(whole),
            "gathered": "all of train" if statistics["whole"] else f"{statistics['tokens']:,}",
        }
    if "best_epoch" in record:
        facts["best_of_epochs"] = f"{record['best_epoch']} of {record['epochs']}"
    if "law" in record:
        facts["excess_bits"] = math.log2(record["test"]["perplexity"]) - record["law"]["test"]
    return facts


@dataclass(frozen=True, eq=False)
class Line:
    """A row of a table with the records of all its finished runs, in the order of their seeds."""

    row: Row
    filled: FilledTable
    records: tuple[Record, ...]

    @property
    def paper(self) -> Paper:
        return self.filled.paper

    @property
    def title(self) -> str:
        return self.row.title + ("" if self.row.in_paper else " †")

    @cached_property
    def facts(self) -> list[Record]:
        """Return the records with what follows from them and what the paper printed; columns are paths into these."""
        trained = len(seeds_of(self.records[0]))  # several are the members of an ensemble
        about = {
            "published": vars(self.row.reported),
            "accuracies": _by_class(self.row.accuracies),
            "quoted_from": self.row.quoted_from or None,
            "seeds": f"1–{trained}" if trained > 1 else str(len(self.records)) if trained else None,
            "over": self._over(),
            "collapsed": ", ".join(self.collapsed) or None,
            "published_over": self._published_over(),
        }
        return [
            {**record, **_derived(record), **about, "seconds_to_control": self._seconds_to_control(record)}
            for record in self.records
        ]

    @cached_property
    def collapsed(self) -> list[str]:
        """Which of several predictions of a model are on valid worse than word frequencies, or, as a whole, like them.

        A mixture hides it: its perplexity is then the other part's, and no measure of what the row is named after. If
        both parts are worse than frequencies and the mixture is not, they have divided the words between them.
        """
        worst, config = self.filled.frequencies, self.row.preset.config
        if worst is None or not isinstance(config, RunConfig) or not config.model.memory.mixes:
            return []
        control = self.filled.lines.get(self.row.control)
        if control and any(record["valid"]["perplexity"] > FREQUENCIES * worst for record in control.records):
            return []  # all are trained too little to tell
        failed = set[str]()
        for record in self.records:
            whole = record["valid"]["perplexity"] > FREQUENCIES * worst
            parts = {part for part in _PARTS if (at(record["valid"], f"parts.{part}") or 0) > worst}
            failed |= {"model"} | parts if whole else parts if parts != {*_PARTS} else set()
        return [name for name in ("model", *_PARTS) if name in failed]

    def value(self, path: str) -> Value | None:
        """Summarise a number of all seeds; None where one has none, or a prediction collapsed."""
        if self.collapsed:
            return None
        values = [at(of_seed, path) for of_seed in self.facts]
        return None if any(value is None for value in values) else spread(map(float, values))

    def signed(self, difference: float) -> str:
        return f"{'−' if difference < 0 else '+'}{shown(abs(difference), self.paper.digits)}"

    def _over(self) -> str | None:
        """`−3.2 (medium)`: less the control's at the seeds that both have; an ensemble's, less its members' mean."""
        tests = {seeds_of(record): record["test"]["perplexity"] for record in self.records}
        if isinstance(self.row.evaluation, Averaged):
            members = [ppl for record in self.records for ppl in record["details"]["test"]["members"]]
            return f"{self.signed(fmean(tests.values()) - fmean(members))} (its members)"
        control = self.filled.lines.get(self.row.control)
        if control is None or control.collapsed or self.collapsed:
            return None
        theirs = {seeds_of(record): record["test"]["perplexity"] for record in control.records}
        differences = [tests[seeds] - theirs[seeds] for seeds in tests.keys() & theirs]
        return f"{self.signed(fmean(differences))} ({self.row.control})" if differences else None

    def _seconds_to_control(self, record: Record) -> float | None:
        """Return the seconds of training until an epoch was at least as good as the control's best, with its seed."""
        control = self.filled.lines.get(self.row.control) if self.row.control else self
        losses, seed = record.get("valid_losses"), seeds_of(record)
        others = control.records if control else ()
        theirs = next((other.get("valid_losses") for other in others if seeds_of(other) == seed), None)
        if not losses or not theirs or min(losses) > min(theirs):
            return None
        first = next(number for number, loss in enumerate(losses, 1) if loss <= min(theirs))
        return float(record["training_seconds"] * first / len(losses))

    def _published_over(self) -> str | None:
        if (control := self.filled.table.rows.get(self.row.control)) is None:
            return None
        ours, theirs = self.row.reported.test_ppl, control.reported.test_ppl
        return self.signed(ours - theirs) if ours and theirs else None

    def parts(self) -> Iterator[Line]:
        """Yield a line for each component that the table lists of the row, with the whole row as its control."""
        for part in self.filled.table.parts.get(self.row.name, ()):
            if any(at(record, f"test.parts.{part.key}") is None for record in self.records):
                continue  # a buffer that never held anything
            published = Reported(test_ppl=part.test_ppl)
            row = replace(self.row, title=part.title, evaluation=Plain(), published=published, control=self.row.name)
            yield replace(self, row=row, records=tuple(_of_part(record, part.key) for record in self.records))


def _of_part(record: Record, key: str) -> Record:
    return {**record, **{split: {"perplexity": at(record, f"{split}.parts.{key}")} for split in ("valid", "test")}}


class Group(NamedTuple):
    """The finished rows of a section."""

    section: Section
    lines: list[Line]
    trained: list[Line]  # those that are evaluated as they are, where their records' blocks count as the section does
    sure: Certainty | None  # how sure the differences of the trained ones are


class FilledTable:
    """A table of a paper with its finished rows; `lines` has them by name, in the table's order.

    `frequencies` is the perplexity of word frequencies on valid; with None no row is called collapsed.
    """

    def __init__(self, paper: Paper, table: Table, records: Iterable[Record], frequencies: float | None = None) -> None:
        self.paper: Paper = paper
        self.table: Table = table
        self.frequencies: float | None = frequencies
        of_rows = (record for record in records if record["row"] in table.rows)
        with_cells = bool(table.columns or table.details)  # where what a record lacks is a dash
        self.records: list[Record] = [record for record in of_rows if with_cells or table.measure in record]
        self.lines: dict[str, Line] = dict[str, Line]()
        for name, row in table.rows.items():
            if runs := [record for record in self.records if record["row"] == name]:
                self.lines[name] = Line(row, self, tuple(sorted(runs, key=seeds_of)))

    @property
    def most_seeds(self) -> int:
        return max((len(line.records) for line in self.lines.values()), default=0)

    @cached_property
    def groups(self) -> list[Group]:
        groups, left = list[Group](), list(self.lines.values())
        for section in self.paper.sections:
            lines = [line for line in left if section.holds(line.row)]
            left = [line for line in left if line not in lines]
            as_counted = self.table.measure in ("perplexity", "cloze") and section.counted == Section.counted
            plain = [line for line in lines if isinstance(line.row.evaluation, Plain) and not line.collapsed]
            trained = plain if as_counted else []
            sure = certainty({line.row.name: line.records for line in trained})
            groups += [Group(section, lines, trained, sure)] if lines else []
        return groups

    def grids(self) -> list[Grid]:
        if self.table.measure == "attention" and self.lines:  # a line a lag, measured and published columns
            header, *rows = map(tuple, lag_columns(measured := self.lags()))
            return [Grid(header, tuple(rows), f"Mean attention in percent, first seed. {' '.join(notes(measured))}")]
        if self.table.measure == "buffer":
            shown = [(line, self.table.parts[name]) for name, line in self.lines.items() if name in self.table.parts]
            return [_expected_grid(*both) for both in shown]
        grids = []
        for group in self.groups if self.table.columns else ():
            caption = ". ".join(text for text in (group.section.title, group.section.note, self.paper.note) if text)
            with_parts = [line for whole in group.lines for line in (whole, *whole.parts())]
            grids.append(_grid(with_parts, {name: self.column(name) for name in self.table.columns}, caption))
        for details in self.table.details:
            columns = {title: column for name in details.columns for title, column in self._columns(name).items()}
            first = next(iter(columns.values()), None)
            if lines := [line for line in self.lines.values() if first and cell(line, first) != NONE]:
                caption = details.caption + (_noted(lines) if details.notes else "")
                grids.append(_grid(lines, columns, caption, self.table.quoted if details.quoted else ()))
        return [*grids, *(_sure_grid(group.trained, group.sure) for group in self.groups if group.sure)]

    def _columns(self, name: str) -> dict[str, Column]:
        """Return the column of a name, or those that it stands for."""
        if name == BY_EPOCH:
            most = max((len(record.get("utilisation_by_epoch", ())) for record in self.records), default=0)
            epochs = spread_epochs(most, _MOST_EPOCHS) if most else []
            path = "utilisation_by_epoch."
            return {str(n + 1): Column(f"{path}{n}", scale=100, digits=1, seeds="first") for n in epochs}
        if name == BY_LAG:
            items = next(iter(self.records), {}).get("excess", ())[1:]  # the first is that of all lags
            titles = [f"lag {'–'.join(map(str, dict.fromkeys(item['lags'])))}" for item in items]
            return {title: Column(f"excess.{n}.excess", digits=3, seeds="first") for n, title in enumerate(titles, 1)}
        return {name: self.column(name)}

    def column(self, name: str) -> Column:
        return self.paper.columns[name] if name in self.paper.columns else COLUMNS[name]

    def lags(self) -> list[MeasuredLags]:
        """Return the mean attention by lag of each row's first seed, beside the row of the paper's figure."""
        measured, published = [], {name.lower(): name for name in PUBLISHED}
        for line in self.lines.values():
            record, name = line.records[0], line.row.curve[0]
            lags, text = record["attention"], f"{record['corpus']} {record['attention']['split']}"
            profile = LagProfile(tuple(lags["percent"]), lags["positions"], lags["left_out"], lags["nearest_lag"])
            measured.append(MeasuredLags(name, text, profile, published[name.lower()]))
        return measured

    def order(self) -> list[str]:
        """Say of each section how many pairs of rows stand in the paper's order."""
        sentences = []
        for section, lines, trained, sure in self.groups:
            settled = set[str]()
            if sure:
                without = [line.title for line in trained if line.row.name not in sure.names]
                ordered = not without and self.table.measure != "cloze"  # of which the papers have no perplexity
                text = sure.sentences([line.row.reported.test_ppl for line in trained] if ordered else [])
                text += f" Without blocks of this text in their records: {', '.join(without)}." if without else ""
                settled = set() if without else set(sure.names)
                sentences.append(text)
            lines = [line for line in lines if not line.collapsed]
            if self.table.measure == "perplexity" and any(line.row.name not in settled for line in lines):
                sentences += _order_by_test(section, lines)
        return sentences


def _order_by_test(section: Section, lines: Sequence[Line]) -> list[str]:
    tests = [(line.value(f"test.{section.counted}"), line.row.reported.test_ppl) for line in lines]
    pairs = combinations([(ours.value, theirs) for ours, theirs in tests if ours and theirs], 2)
    agree = [(a - b) * (x - y) > 0 for (a, x), (b, y) in pairs if x != y]
    title, count = f"{section.title}. " if section.title else "", f"{sum(agree)} of {len(agree)} pairs"
    return [f"{title}By test perplexity {count} of rows stand in the paper's order."] if agree else []


def _grid(lines: Sequence[Line], columns: Mapping[str, Column], caption: str, quoted: Sequence[Quoted] = ()) -> Grid:
    """Return a row for each line, and below them one for each that the paper only quotes."""
    facts = [line.facts for line in lines]
    facts += [[{"accuracies": _by_class(row.accuracies), "quoted_from": row.quoted_from}] for row in quoted]
    digits = lines[0].paper.digits
    by_column = {name: [_cell(of_row, column, digits) for of_row in facts] for name, column in columns.items()}
    filled = {name: cells for name, cells in by_column.items() if set(cells) != {NONE}}
    titles = [*(line.title for line in lines), *(row.title for row in quoted)]
    rows = zip(titles, *filled.values(), strict=True)
    return Grid(("model", *filled), tuple(rows), caption)


def _by_class(accuracies: Sequence[float | None]) -> dict[str, float | None]:
    return dict(zip(WORD_CLASSES, accuracies, strict=False))


def _expected_grid(line: Line, parts: Sequence[Component]) -> Grid:
    """Show the most probable words of each part at one word of a text, beside those that the paper printed."""
    seen = line.records[0]["buffer"]
    rows = []
    for part in parts:
        words = (f"{word} {chance:.3f}" for word, chance in seen["expected"][part.key])
        rows.append((part.title, ", ".join(words), f"{seen['chance'][part.key]:.3f}", part.expected or NONE))
    read = " ".join(seen["words"][-_LAST_WORDS:])
    caption = f"{seen['source']}, after “… {read}”, where the next word is “{seen['target']}”"
    return Grid(("", "most probable, with p", "p of the next word", "paper: most probable"), tuple(rows), caption)


def _sure_grid(lines: Sequence[Line], sure: Certainty) -> Grid:
    """Say of each row how sure its difference from its control is, and which place it may have."""
    by_name, rows = {line.row.name: line for line in lines}, list[tuple[str, ...]]()
    for number, name in enumerate(sure.names):
        control = difference = p = NONE
        if (other := by_name[name].row.control) in sure.names:
            mean, (low, high), chance = sure.against(number, sure.names.index(other))
            control, p = by_name[other].title, of_chance(chance)
            difference = f"{signed(mean)} ({signed(low)} to {signed(high)})"
        place, best, last = sure.place(number)
        places = f"{place}" if best == last else f"{place} ({best}–{last})"
        rows.append((by_name[name].title, f"{sure.means[number]:.2f}", control, difference, p, places))
    header = ("model", "bits", "control", "difference", "p", "place")
    return Grid(header, tuple(rows), "How sure differences are: bits a token on test, + is worse")


def _noted(lines: Sequence[Line]) -> str:
    records = [(line.title, record) for line in lines for record in line.records]
    noted = [f"{title}: {note}" for title, record in records for note in at(record, "details.notes") or ()]
    if any(at(record, "cloze.cbt_like") for _, record in records):
        noted.append("CBT-like questions, which are not comparable with the published ones.")
    return ". " + " ".join(noted) if noted else ""


def overview(tables: Sequence[FilledTable]) -> Grid:
    """Return one column of several tables, a table each, for the rows that have a finished run in any of them."""
    paper = tables[0].paper
    column = paper.columns[paper.overview]
    names = [name for name in paper.rows if any(name in filled.lines for filled in tables)]
    rows = tuple(
        (
            paper.rows[name].title,
            *(cell(filled.lines[name], column) if name in filled.lines else NONE for filled in tables),
        )
        for name in names
    )
    most = max(filled.most_seeds for filled in tables)
    seeds = "One seed" if most == 1 else f"Means of up to {most} seeds, with the least and the greatest"
    return Grid(("model", *(filled.table.name for filled in tables)), rows, f"{paper.note}. {seeds}")
