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
    """The trained model with dynamic evaluation, whose settings are tuned on valid."""

    gate_temperature: float | None = None  # of a span buffer's gate in evaluation; None: the one it was trained for


How = Plain | Cached | Averaged | Dynamic


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of a table: a trained model, and how its perplexity is measured."""

    name: str  # what `--rows` takes; also that of its files
    title: str  # what the paper calls it
    preset: str  # of the training; every preset of a paper has one plain row
    how: How = Plain()
    published: Reported | None = None  # what the paper printed for this row; None: what its preset says
    in_paper: bool = True  # else it is a control of ours
    control: str = ""  # the row under the same protocol that it is compared with
    curve: tuple[str, int] | None = None  # the curve of a figure that it is a point of, and its window or order

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
    """Rows of a table that can be compared with each other, but not with the others."""

    holds: Callable[[Row], bool] = lambda row: True  # the first section that holds a row has it
    title: str = ""
    note: str = ""
    label: str = "test ppl"  # what figures call their perplexity


@dataclass(frozen=True)
class Details:
    """Another table of the same rows; rows and columns that it has nothing of are left out."""

    caption: str
    columns: tuple[str, ...]  # names in `spanlm.reproduction.table.COLUMNS`
    notes: bool = False  # the caption ends with what was noted when each row was measured


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table or figure of a paper."""

    name: str  # what `--table` takes
    kind: Literal["table", "figure"]
    title: str
    rows: tuple[str, ...]  # in the paper's order
    measure: Measure = "perplexity"  # of every row; perplexity always
    columns: tuple[str, ...] = ()  # names in `spanlm.reproduction.table.COLUMNS`; none: `details` alone
    details: tuple[Details, ...] = ()  # tables that follow it
    # rows that are taken apart, and what the paper printed of each part on test, if anything
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    x_label: str = ""  # rows are points of curves over this
    corpus: str | None = None  # the only corpus it can run on
    home: str | None = None  # the corpus that the paper's numbers are of, where it can be had; the default
    twin_of: str = ""  # tables with one name here differ in nothing but the corpus whose settings they have
    published_on: str  # the corpus of the paper's numbers, in words
    remark: str = ""  # what the paper leaves open, and how it was read

    @property
    def file(self) -> str:
        """What its files are called, without their endings."""
        return f"{self.kind}-{self.name}"


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper whose tables can be run again."""

    name: str  # what `reproduce` takes
    title: str  # authors and year
    rows: Mapping[str, Row]  # of all its tables, by name
    tables: tuple[Table, ...]
    scales: Mapping[str, Scale]
    sections: tuple[Section, ...] = (Section(),)
    note: str = ""  # what must be known to read its tables, under each of them
    digits: int = 1  # of perplexities, after the point

    def plain(self, row: Row) -> Row:
        """Return the plain row of a row's preset: the one that its trainings belong to."""
        return next(r for r in self.rows.values() if r.preset == row.preset and isinstance(r.how, Plain))
