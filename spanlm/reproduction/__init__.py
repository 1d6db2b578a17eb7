"""The published tables, run again: this file says what a table is: its rows, how each is measured, its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from spanlm.presets import find_preset
from spanlm.presets.preset import Preset, Reported
from spanlm.reproduction.scales import Scale

Measure = Literal["perplexity", "cloze", "attention"]

BY_EPOCH = "PoU by epoch"
"""In a list of columns: one column for each epoch."""


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

    gate_temperature: float | None = None  # of a span buffer's gate in evaluation; None: the run's own


How = Plain | Cached | Averaged | Dynamic


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of a table: a trained model, and how its perplexity is measured."""

    name: str  # what `--rows` takes; also the name of its files
    title: str  # what the paper calls it
    preset: str  # of the training; every preset of a paper has one plain row
    how: How = Plain()
    published: Reported | None = None  # what the paper printed for this row; None: what its preset says
    in_paper: bool = True  # False: a control of ours
    control: str = ""  # the row under the same protocol that it is compared with
    curve: tuple[str, int] | None = None  # the curve of a figure that it is a point of, and its window or order

    @property
    def reported(self) -> Reported:
        """What the paper printed for this row."""
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
        """Whether the model was trained on sentences, with a new state at each."""
        return self.trained.config.training.batching.kind == "sentences"


@dataclass(frozen=True, kw_only=True)
class Section:
    """Rows of a table that can be compared with each other, but not with the others."""

    holds: Callable[[Row], bool] = lambda row: True  # a row belongs to the first section that holds it
    title: str = ""
    note: str = ""
    label: str = "test ppl"  # what figures call the perplexity that they show
    counted: tuple[str, ...] = ("perplexity",)  # its place in a record's `test`, counted as the paper counts


@dataclass(frozen=True)
class Details:
    """Another table of the same rows; rows and columns without a value are left out."""

    caption: str
    columns: tuple[str, ...]  # names in `spanlm.reproduction.table.COLUMNS`
    notes: bool = False  # the caption ends with the notes of the measurements


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table or figure of a paper."""

    name: str  # what `--table` takes
    kind: Literal["table", "figure"] = "table"
    title: str
    rows: tuple[str, ...]  # in the paper's order
    measure: Measure = "perplexity"  # what is measured of every row beside perplexity
    columns: tuple[str, ...] = ()  # names in `spanlm.reproduction.table.COLUMNS`; none: `details` alone
    details: tuple[Details, ...] = ()  # tables that follow it
    # rows whose parts have lines of their own, and what the paper printed of each part on test, if anything
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    x_label: str = ""  # rows are points of curves over this
    corpus: str | None = None  # the only corpus it can run on
    home: str | None = None  # the corpus of the paper's numbers, where it is available; the default
    twin_of: str = ""  # tables with the same name here differ only in the corpus that their settings are for
    published_on: str  # the corpus of the paper's numbers, in words
    remark: str = ""  # what the paper leaves open, and how it was read

    @property
    def file(self) -> str:
        """The name of its files, without their endings."""
        return f"{self.kind}-{self.name}"


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
    digits: int = 1  # of perplexities, after the point

    def plain(self, row: Row) -> Row:
        """Return the plain row of a row's preset, which its trainings belong to."""
        return next(r for r in self.rows.values() if r.preset == row.preset and isinstance(r.how, Plain))
