"""The published tables, run again. A table is rows, each trained and evaluated in one way, with named columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from spanlm.papers import find_preset
from spanlm.papers.preset import Measured, Preset, Reported
from spanlm.papers.scales import Scale

Measure = Literal["perplexity", "cloze", "attention", "excess"]

BY_EPOCH = "PoU by epoch"  # stands for a column an epoch
BY_LAG = "excess by lag"  # stands for a column for each range of lags


@dataclass(frozen=True)
class Plain:
    """The trained model as it is."""


@dataclass(frozen=True)
class Cached:
    """The trained model with a neural cache; θ and λ are tuned on valid."""

    window: int


@dataclass(frozen=True)
class Averaged:
    """The ensemble, in equal parts, of models trained with the seeds 1 to `members`."""

    members: int


@dataclass(frozen=True)
class Dynamic:
    """The trained model with dynamic evaluation; η and λ are tuned on valid."""

    gate_temperature: float | None = None  # of a span buffer's gate in evaluation; None: as trained


How = Plain | Cached | Averaged | Dynamic


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table: a trained model, and how it is evaluated."""

    name: str  # for `--rows` and file names
    title: str  # the paper's name for it
    preset: str  # of the training; every preset of a paper has one plain row
    how: How = Plain()
    published: Reported | None = None  # what the paper printed for this row; None: the preset has it
    in_paper: bool = True  # False: a control of ours
    control: str = ""  # the row that it is compared with, under the same protocol
    curve: tuple[str, int] | None = None  # in a figure of curves: the curve's name, and this point's x

    @property
    def trained(self) -> Preset:
        return find_preset(self.preset)

    @property
    def reported(self) -> Reported:
        if self.published is not None:
            return self.published
        found = self.trained.reported
        if isinstance(self.how, Dynamic):
            return replace(found, valid_ppl=found.dynamic_valid_ppl, test_ppl=found.dynamic_test_ppl)
        return found if isinstance(self.how, Plain) else Reported()

    @property
    def by_sentence(self) -> bool:
        return self.trained.config.training.batching.kind == "sentences"


@dataclass(frozen=True, kw_only=True)
class Section:
    """Rows of a table that can be compared with each other, but not with other rows."""

    adapting: bool | None = None  # only rows with dynamic evaluation, or only those without
    by_sentence: bool | None = None  # only models trained on sentences, or only the others
    title: str = ""
    note: str = ""
    label: str = "test ppl"  # of the perplexity that figures show
    counted: tuple[str, ...] = ("perplexity",)  # path in a record's `test` of the perplexity counted as in the paper

    def holds(self, row: Row) -> bool:
        """Whether a row can be here; it belongs to the first section that holds it."""
        adapting = isinstance(row.how, Dynamic)
        return self.adapting in (None, adapting) and self.by_sentence in (None, row.by_sentence)


@dataclass(frozen=True)
class Details:
    """Another table of the same rows; rows and columns without a value are left out."""

    caption: str
    columns: tuple[str, ...]  # names in `spanlm.papers.table.COLUMNS`
    notes: bool = False  # the caption ends with the notes of the measurements


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table or figure of a paper."""

    name: str  # what `--table` takes
    kind: Literal["table", "figure"] = "table"
    title: str
    rows: tuple[str, ...]  # in the paper's order
    measure: Measure = "perplexity"  # taken of every row beside perplexity
    columns: tuple[str, ...] = ()  # names in `spanlm.papers.table.COLUMNS`; none: `details` alone
    details: tuple[Details, ...] = ()  # tables that follow it
    # rows that are followed by one line a component, with the component's published test perplexity, if any
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    x_label: str = ""  # of a figure of curves
    corpus: str | None = None  # the only corpus it can run on
    home: str | None = None  # the corpus of the published numbers, if it is available; the default
    twin_of: str = ""  # equal for tables that differ only in their `home`
    published_on: str = ""  # `home` in words; empty: nothing is published
    remark: str = ""  # what the paper leaves open, and how it was read

    @property
    def file(self) -> str:
        return f"{self.kind}-{self.name}"


def perplexity_table(name: str, on: Measured, twin_of: str, about: str = "perplexity", **more: Any) -> Table:
    """Return a table whose numbers are published on a registered corpus."""
    title, corpus = f"Table {name}: {about} on {on.title}", f"{on.title} with {on.vocabulary_size:,} words"
    return Table(name=name, title=title, home=on.corpus, twin_of=twin_of, published_on=corpus, **more)


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper whose tables can be run again."""

    name: str  # what `reproduce` takes
    title: str  # authors and year
    rows: Mapping[str, Row]  # of all its tables, by name
    tables: tuple[Table, ...]
    scales: tuple[Scale, ...]
    sections: tuple[Section, ...] = (Section(),)
    note: str = ""  # how to read its tables; printed under each of them
    overview: str = ""  # of a paper whose tables have a corpus each: the column that one more table shows of them all
    digits: int = 1  # of perplexities, after the point

    def plain(self, row: Row) -> Row:
        return next(r for r in self.rows.values() if r.preset == row.preset and isinstance(r.how, Plain))
