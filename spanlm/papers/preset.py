"""A preset: a whole configuration, its rows in published tables, and the numbers printed there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.models.language_model import ModelConfig
from spanlm.scoring.dynamic.update import DynamicConfig
from spanlm.training.config import TrainingConfig


@dataclass(frozen=True)
class Reported:
    """The numbers printed for a row: perplexities, static and with dynamic evaluation, sizes, and the corpus."""

    valid_ppl: float | None = None
    test_ppl: float | None = None
    model_parameters: float | None = None  # θ_M in millions, without word representations
    all_parameters: float | None = None  # θ_{W+M} in millions, of papers that count the word representations in
    dynamic_valid_ppl: float | None = None
    dynamic_test_ppl: float | None = None
    corpus: str = ""
    vocabulary_size: int = 0


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A registered corpus that papers report numbers on."""

    corpus: str  # what `data.corpus` calls it
    title: str
    vocabulary_size: int  # with <eos> and <unk>


PENN_TREEBANK = Measured(corpus="ptb", title="Penn Treebank", vocabulary_size=10_000)
WIKITEXT_2 = Measured(corpus="wikitext-2", title="WikiText-2", vocabulary_size=33_278)
CORPORA = {"ptb": PENN_TREEBANK, "wt2": WIKITEXT_2}
"""By their label in the names of presets."""


def reported_on(
    measured: Measured,
    valid_ppl: float | None = None,
    test_ppl: float | None = None,
    all_parameters: float | None = None,
    dynamic_valid_ppl: float | None = None,
    dynamic_test_ppl: float | None = None,
) -> Reported:
    """Return the numbers printed for a row on a registered corpus."""
    printed = (valid_ppl, test_ppl, None, all_parameters, dynamic_valid_ppl, dynamic_test_ppl)
    return Reported(*printed, corpus=measured.title, vocabulary_size=measured.vocabulary_size)


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A configuration with its provenance."""

    name: str
    paper: str
    sources: tuple[str, ...]  # the table rows it is
    title: str = ""  # the paper's name for the row
    figures: tuple[str, ...] = ()  # of the paper that it is in
    curve: tuple[str, int] | None = None  # in a figure of curves: the curve's name, and this point's x
    config: RunConfig  # the corpus is the user's to choose
    reported: Reported = field(default_factory=Reported)
    remark: str = ""  # where the paper contradicts itself, or this entry departs from it
    dynamic: DynamicConfig | None = None  # settings of dynamic evaluation that were published with it


def row(
    name: str,
    paper: str,
    sources: tuple[str, ...],
    measured: Measured,
    model: ModelConfig,
    training: TrainingConfig,
    remark: str,
    *printed: float | None,
) -> Preset:
    """Return the preset of a row on a registered corpus; `printed` is for `reported_on`."""
    config = RunConfig(data=DataConfig(corpus=measured.corpus), model=model, training=training)
    reported = reported_on(measured, *printed)
    return Preset(name=name, paper=paper, sources=sources, config=config, reported=reported, remark=remark)


TABLES = {"ptb": "Table 1", "wt2": "Table 2"}
"""Of Li et al. (2020), who print all rungs, by corpus."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A model without a span buffer, on two corpora; each rung of the ladder adds one thing to the one below."""

    name: str  # of its presets, without the corpus
    paper: str
    title: str  # what Li et al. (2020) call it
    configs: dict[str, RunConfig]  # by corpus
    dynamic: Mapping[str, DynamicConfig] = field(default_factory=dict)  # published by its authors, by corpus

    def row(self, label: str, remark: str, *printed: float) -> Preset:
        """Return the preset of a corpus; `printed` is for `reported_on`."""
        return Preset(
            name=f"{self.name}-{label}",
            paper=self.paper,
            sources=(f"{self.title}, finetuned", f"Li et al. 2020, {TABLES[label]}, {self.title}"),
            config=self.configs[label],
            reported=reported_on(CORPORA[label], *printed),
            remark=remark,
            dynamic=self.dynamic.get(label),
        )
