"""What a table of a paper is: its rows, how each is measured, and its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from spanlm.data.config import Lines
from spanlm.presets import find_preset
from spanlm.presets.preset import Preset, Reported
from spanlm.reproduction.scales import Scale

Measure = Literal["perplexity", "cloze", "attention"]

BY_EPOCH = "PoU by epoch"
"""Stands for a column an epoch."""


@dataclass(frozen=True)
class Plain:
    """The trained model as it is."""


@dataclass(frozen=True)
class Cached:
    """The trained model with a neural cache of the last `window` words; θ and λ are tuned on valid."""

    window: int


@dataclass(frozen=True)
class Averaged:
    """The mixture, in equal parts, of models trained with the seeds 1 to `members`."""

    members: int


@dataclass(frozen=True)
class Dynamic:
    """The trained model with dynamic evaluation, whose settings are tuned on valid.

    Attributes:
        gate_temperature: of a span buffer's gate in evaluation; None: the one it was trained for.
    """

    gate_temperature: float | None = None


How = Plain | Cached | Averaged | Dynamic


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of a table: a trained model, and how its perplexity is measured.

    Attributes:
        name: what `--rows` takes; also that of its files.
        title: what the paper calls it.
        preset: of the training; every preset of a paper has one plain row.
        how: the model alone, with a cache, several averaged, or with dynamic evaluation.
        published: what the paper printed for this row; None: what its preset says.
        in_paper: the paper has this row; else it is a control of ours.
        control: the row under the same protocol that it is compared with; empty: none.
        curve: the curve of a figure that the row is a point of, and where: its window, or its order.
    """

    name: str
    title: str
    preset: str
    how: How = Plain()
    published: Reported | None = None
    in_paper: bool = True
    control: str = ""
    curve: tuple[str, int] | None = None

    @property
    def reported(self) -> Reported:
        """What was printed for this row."""
        if self.published is not None:
            return self.published
        found = self.trained.reported
        if isinstance(self.how, Dynamic):
            return replace(found, valid_ppl=found.dynamic_valid_ppl, test_ppl=found.dynamic_test_ppl)
        return found if isinstance(self.how, Plain) else Reported()

    @property
    def trained(self) -> Preset:
        """The preset."""
        return find_preset(self.preset)

    @property
    def by_sentence(self) -> bool:
        """The model was trained on sentences, and begins anew at each."""
        return self.trained.config.training.batching.kind == "sentences"

    @property
    def lines(self) -> Lines:
        """How the lines of the text are read."""
        return self.trained.config.data.lines


@dataclass(frozen=True, kw_only=True)
class Section:
    """Rows of a table that can be compared with each other, but not with the others.

    Attributes:
        holds: says which rows; the first section that holds a row has it.
        title: of the section's table.
        note: what stands beside the title.
        label: what figures call their perplexity.
    """

    holds: Callable[[Row], bool] = lambda row: True
    title: str = ""
    note: str = ""
    label: str = "test ppl"


@dataclass(frozen=True)
class Details:
    """Another table of the same rows; rows and columns that it has nothing of are left out.

    Attributes:
        caption: above it.
        columns: names of columns, see `spanlm.reproduction.table.COLUMNS`.
        notes: the caption ends with what was noted when each row was measured.
    """

    caption: str
    columns: tuple[str, ...]
    notes: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table or figure of a paper.

    Attributes:
        name: what `--table` takes.
        kind: what the paper calls it.
        title: what it shows.
        rows: their names, in the paper's order.
        measure: what is measured of every row: perplexity always, and this.
        columns: of its main table, see `spanlm.reproduction.table.COLUMNS`; none: `details` alone.
        details: tables that follow it.
        parts: rows that are taken apart, and what the paper printed of each part on test, if anything.
        x_label: rows are points of curves over this; empty: they are not.
        corpus: the only corpus it can run on; None: any.
        home: the corpus that the paper's numbers are of, where it can be had; the default.
        twin_of: tables with one name here differ in nothing but the corpus whose settings they have.
        published_on: the corpus of the paper's numbers, in words.
        remark: what the paper leaves open, and how it was read.
    """

    name: str
    kind: Literal["table", "figure"]
    title: str
    rows: tuple[str, ...]
    measure: Measure = "perplexity"
    columns: tuple[str, ...] = ()
    details: tuple[Details, ...] = ()
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    x_label: str = ""
    corpus: str | None = None
    home: str | None = None
    twin_of: str = ""
    published_on: str
    remark: str = ""

    @property
    def file(self) -> str:
        """What its files are called, without their endings."""
        return f"{self.kind}-{self.name}"


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper whose tables can be run again.

    Attributes:
        name: what `reproduce` takes.
        title: authors and year.
        rows: of all its tables, by name.
        tables: in its order.
        scales: smoke, small and paper.
        sections: of its tables.
        note: what must be known to read its tables, under each of them.
        digits: of perplexities, after the point.
    """

    name: str
    title: str
    rows: Mapping[str, Row]
    tables: tuple[Table, ...]
    scales: Mapping[str, Scale]
    sections: tuple[Section, ...] = (Section(),)
    note: str = ""
    digits: int = 1

    def plain(self, row: Row) -> Row:
        """Return the plain row of a row's preset: the one that its trainings belong to."""
        return next(r for r in self.rows.values() if r.preset == row.preset and isinstance(r.how, Plain))
