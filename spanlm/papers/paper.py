"""What a file of a paper is made of: presets, rows with their published numbers, tables, and scales.

A preset is a whole configuration. A row is a preset and how its trained model is evaluated. A table is rows, each
trained and evaluated in one way, with named columns (`spanlm.papers.table`). A scale is the size of a reproduction
(`spanlm.papers.scales`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from spanlm.config import RunConfig
from spanlm.papers.scales import Scale, changed
from spanlm.scoring.ngram.config import NgramRunConfig
from spanlm.scoring.options import DynamicConfig

if TYPE_CHECKING:
    from spanlm.analysis.figures import Series

Unit = Literal["words", "characters", "bytes"]
Measure = Literal["perplexity", "cloze", "attention", "excess", "article", "sentences", "buffer"]

WORD_CLASSES = {"NE": "named entities", "CN": "common nouns", "V": "verbs", "P": "prepositions"}
"""Of the questions of the Children's Book Test."""

BY_EPOCH = "PoU by epoch"  # stands for a column an epoch
BY_LAG = "excess by lag"  # stands for a column for each range of lags


@dataclass(frozen=True)
class Reported:
    """The numbers printed for a row: perplexities, static and with dynamic evaluation, sizes, and the corpus.

    On characters and bytes, bits per character (bpc) are printed in place of perplexities.
    """

    valid_ppl: float | None = None
    test_ppl: float | None = None
    all_parameters: float | None = None  # θ_{W+M} in millions, of papers that count the word representations in
    dynamic_valid_ppl: float | None = None
    dynamic_test_ppl: float | None = None
    model_parameters: float | None = field(default=None, kw_only=True)  # θ_M in millions, without them
    corpus: str = field(default="", kw_only=True)
    vocabulary_size: int = field(default=0, kw_only=True)
    unit: Unit = field(default="words", kw_only=True)
    valid_bpc: float | None = field(default=None, kw_only=True)
    test_bpc: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, kw_only=True)
class PublishedText:
    """A text that papers report numbers on."""

    name: str  # what `data.corpus` calls it, if it is registered
    title: str
    vocabulary_size: int  # with <eos>, and of words with <unk>
    unit: Unit = "words"  # that it is a sequence of
    registered: bool = True  # False: it is no longer available
    described: str = ""  # under tables; empty: its title and vocabulary

    def reported(self, *printed: float | None, **more: float) -> Reported:
        """Return the numbers of a row, in the order of `Reported`."""
        return Reported(*printed, corpus=self.title, vocabulary_size=self.vocabulary_size, unit=self.unit, **more)


PENN_TREEBANK = PublishedText(name="ptb", title="Penn Treebank", vocabulary_size=10_000)
WIKITEXT_2 = PublishedText(name="wikitext-2", title="WikiText-2", vocabulary_size=33_278)
PENN_CHARACTERS = PublishedText(
    name="ptb-char",
    title="Penn Treebank in characters",
    vocabulary_size=50,
    unit="characters",
    described="Penn Treebank with 50 characters",
)
ENWIK8 = PublishedText(name="enwik8", title="enwik8", vocabulary_size=205, unit="bytes")
TEXTS = {"ptb": PENN_TREEBANK, "wt2": WIKITEXT_2}
"""By their label in the names of presets."""
TABLES = {"ptb": "Table 1", "wt2": "Table 2"}
"""Of Salton et al. (2017) and Li et al. (2020), by the same."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A configuration with its provenance."""

    name: str
    paper: str
    sources: tuple[str, ...]  # the table rows it is
    title: str = ""  # the paper's name for the row
    config: RunConfig  # the corpus is the user's to choose
    reported: Reported = field(default_factory=Reported)
    remark: str = ""  # where the paper contradicts itself, or this entry departs from it
    dynamic: DynamicConfig | None = None  # settings of dynamic evaluation that were published with it
    own_size: bool = False  # where models have as many parameters as one LSTM, it has as many units, as in its paper


@dataclass(frozen=True, kw_only=True)
class NgramPreset:
    """The configuration of an n-gram run with its provenance."""

    name: str
    paper: str
    sources: tuple[str, ...]
    title: str = ""
    config: NgramRunConfig
    reported: Reported = Reported()
    remark: str = ""


def preset_on(text: PublishedText, config: RunConfig, *printed: float | None, **more: Any) -> Preset:
    """Return the preset of a row on a registered corpus; `printed` are the first numbers of `Reported`."""
    return Preset(config=changed(config, {"data.corpus": text.name}), reported=text.reported(*printed), **more)


def rung(label: str, name: str, title: str, config: RunConfig, *printed: float, **more: Any) -> Preset:
    """Return a model without a span buffer, which Li et al. (2020) print by this title on the corpus of a label."""
    sources = (f"{title}, finetuned", f"Li et al. 2020, {TABLES[label]}, {title}")
    return preset_on(TEXTS[label], config, *printed, name=f"{name}-{label}", title=title, sources=sources, **more)


@dataclass(frozen=True)
class Plain:
    """The trained model as it is."""


@dataclass(frozen=True)
class Cached:
    """The trained model with a neural cache; θ and λ are tuned on valid."""

    window: int


@dataclass(frozen=True)
class Nearest:
    """The trained model with the k nearest neighbours of its states in the training text, tuned on valid."""

    k: int


@dataclass(frozen=True)
class Averaged:
    """The ensemble, in equal parts, of models trained with the seeds 1 to `members`."""

    members: int


@dataclass(frozen=True)
class Dynamic:
    """The trained model with dynamic evaluation; η and λ are tuned on valid."""

    gate_temperature: float | None = None  # of a span buffer's gate in evaluation; None: as trained


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table: a trained model, and how it is evaluated."""

    name: str  # for `--rows` and file names
    title: str  # the paper's name for it
    preset: Preset | NgramPreset  # of the training; every preset of a paper has one plain row
    evaluation: Plain | Cached | Nearest | Averaged | Dynamic = Plain()
    published: Reported | None = None  # what the paper printed for this row; None: the preset has it
    accuracies: tuple[float, ...] = ()  # that it printed for the `WORD_CLASSES`
    quoted_from: str = ""  # the paper that its published numbers are quoted from
    in_paper: bool = True  # False: a control of ours
    control: str = ""  # the row that it is compared with, under the same protocol
    figures: tuple[str, ...] = ()  # of the paper that it is in
    curve: tuple[str, int] = ("", 0)  # in a figure of curves: the curve's name, and this point's x

    @property
    def reported(self) -> Reported:
        if self.published is not None:
            return self.published
        printed = self.preset.reported
        if isinstance(self.evaluation, Dynamic):
            return replace(printed, valid_ppl=printed.dynamic_valid_ppl, test_ppl=printed.dynamic_test_ppl)
        return printed if isinstance(self.evaluation, Plain) else Reported()

    @property
    def dynamic(self) -> DynamicConfig | None:
        """The settings of dynamic evaluation that were published with the trained model."""
        return self.preset.dynamic if isinstance(self.preset, Preset) else None

    @property
    def by_sentence(self) -> bool:
        config = self.preset.config
        return isinstance(config, RunConfig) and config.training.batching.kind == "sentences"


@dataclass(frozen=True, kw_only=True)
class Quoted:
    """A row of a table that a paper quotes from another: its numbers stand in the table, and nothing of it runs."""

    title: str
    quoted_from: str
    accuracies: tuple[float | None, ...]  # for the `WORD_CLASSES`


def row_of(preset: Preset | NgramPreset, title: str = "", control: str = "", **more: Any) -> Row:
    """Return the plain row of a preset, which has its name."""
    return Row(name=preset.name.partition("/")[2], title=title or preset.title, preset=preset, control=control, **more)


def by_name(*rows: Row) -> dict[str, Row]:
    return {row.name: row for row in rows}


@dataclass(frozen=True, kw_only=True)
class Section:
    """Rows of a table that can be compared with each other, but not with other rows."""

    adapting: bool | None = None  # only rows with dynamic evaluation, or only those without
    by_sentence: bool | None = None  # only models trained on sentences, or only the others
    title: str = ""
    note: str = ""
    label: str = "test ppl"  # of the perplexity that figures show
    counted: str = "perplexity"  # path in a record's `test` of the perplexity counted as in the paper

    def holds(self, row: Row) -> bool:
        """Whether a row can be here; it belongs to the first section that holds it."""
        adapting = isinstance(row.evaluation, Dynamic)
        return self.adapting in (None, adapting) and self.by_sentence in (None, row.by_sentence)


@dataclass(frozen=True)
class Column:
    """Where the facts of a row have a number (`spanlm.papers.table`), and how it is written.

    Without a form it is the mean over the seeds, with the least and the greatest.
    """

    path: str
    form: str = ""
    scale: float = 1
    digits: int | None = None  # None: those of the paper's perplexities
    seeds: Literal["mean", "first", "each"] = "mean"
    interval: str = ""  # path of the interval that one seed has in place of a range


@dataclass(frozen=True)
class Details:
    """Another table of the same rows; rows and columns without a value are left out."""

    caption: str
    columns: tuple[str, ...]  # by name, as those of `Table`
    notes: bool = False  # the caption ends with the notes of the measurements
    quoted: bool = False  # the table's quoted rows follow


class Component(NamedTuple):
    """A component of a model that a table shows in a line of its own."""

    key: str  # in a record's `parts`
    title: str
    test_ppl: float | None = None  # that was printed
    expected: str = ""  # the most probable words that were printed


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table or figure of a paper."""

    name: str  # what `--table` takes
    kind: Literal["table", "figure"] = "table"
    label: str = ""  # what the paper calls it; empty: its kind and name
    about: str  # equal for tables that differ only in their text
    rows: Mapping[str, Row]  # by name, in the paper's order
    measure: Measure = "perplexity"  # taken of every row beside perplexity
    columns: tuple[str, ...] = ()  # names of the paper's, or in `spanlm.papers.table.COLUMNS`; none: `details` alone
    details: tuple[Details, ...] = ()  # tables that follow it
    parts: Mapping[str, tuple[Component, ...]] = field(default_factory=dict)  # of rows
    quoted: tuple[Quoted, ...] = ()
    x_label: str = ""  # of a figure of curves
    y_label: str = "test perplexity"
    equation: Callable[[], Sequence[Series]] | None = None  # the curves of a figure without rows: nothing is trained
    texts: tuple[str, ...] = ()  # what its measure reads: sentences, or the words before a prediction
    corpus: str | None = None  # the only corpus it can run on
    text: PublishedText | None = None  # of the published numbers; if it is registered, the default
    remark: str = ""  # what the paper leaves open, and how it was read

    @property
    def home(self) -> str | None:
        return self.text.name if self.text and self.text.registered else None

    @property
    def subject(self) -> str:
        return self.about + (f" on {self.text.title}" if self.text and self.text.registered else "")

    @property
    def title(self) -> str:
        return f"{self.label or f'{self.kind.title()} {self.name}'}: {self.subject}"

    @property
    def file(self) -> str:
        return f"{self.kind}-{self.name.removeprefix(f'{self.kind}-')}"


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper whose tables can be run again."""

    name: str  # what `reproduce` takes
    title: str  # authors and year
    tables: tuple[Table, ...]
    scales: tuple[Scale, ...]
    columns: Mapping[str, Column] = field(default_factory=dict)  # those that only this paper has, by heading
    sections: tuple[Section, ...] = (Section(),)
    note: str = ""  # how to read its tables; printed under each of them
    overview: str = ""  # of a paper whose tables have a corpus each: the column that one more table shows of them all
    by_epoch: str = ""  # what it calls its figure of the use of a span buffer by epoch
    digits: int = 1  # of perplexities, after the point

    @cached_property
    def rows(self) -> dict[str, Row]:
        """Return those of all its tables, by name."""
        return {name: row for table in self.tables for name, row in table.rows.items()}

    def texts(self, measure: Measure) -> tuple[str, ...]:
        """Return what a measure reads, for all tables."""
        return tuple(dict.fromkeys(text for table in self.tables if table.measure == measure for text in table.texts))

    def plain(self, row: Row) -> Row:
        return next(r for r in self.rows.values() if r.preset is row.preset and isinstance(r.evaluation, Plain))
