"""What a preset is: a whole configuration, the table rows it stands for, and what was printed there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.evaluation.dynamic.update import DynamicConfig
from spanlm.models.language_model import ModelConfig
from spanlm.training.config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Reported:
    """What the paper printed for this row: perplexities, plain and with dynamic evaluation, and sizes.

    Attributes:
        model_parameters: θ_M in millions, without word representations.
        all_parameters: θ_{W+M} in millions, of papers that count the word representations in.
        corpus: what it was measured on.
        vocabulary_size: of that corpus.
    """

    valid_ppl: float | None = None
    test_ppl: float | None = None
    model_parameters: float | None = None
    all_parameters: float | None = None
    dynamic_valid_ppl: float | None = None
    dynamic_test_ppl: float | None = None
    corpus: str = ""
    vocabulary_size: int = 0


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A published corpus that rows were measured on.

    Attributes:
        corpus: what `data.corpus` calls it.
        title: what people call it.
        vocabulary_size: V, with <eos> and <unk>.
    """

    corpus: str
    title: str
    vocabulary_size: int


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
    """Return what a paper printed for a row measured on a published corpus."""
    printed = Reported(valid_ppl=valid_ppl, test_ppl=test_ppl, all_parameters=all_parameters)
    dynamic = replace(printed, dynamic_valid_ppl=dynamic_valid_ppl, dynamic_test_ppl=dynamic_test_ppl)
    return replace(dynamic, corpus=measured.title, vocabulary_size=measured.vocabulary_size)


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A configuration with its provenance.

    Attributes:
        name: what `spanlm train` takes.
        paper: who published it.
        sources: the table rows it is.
        config: the whole run's configuration; the corpus is the user's to choose.
        reported: the published numbers.
        remark: where the paper contradicts itself, or this entry departs from it.
        dynamic: settings of dynamic evaluation that were published with it.
    """

    name: str
    paper: str
    sources: tuple[str, ...]
    config: RunConfig
    reported: Reported = field(default_factory=Reported)
    remark: str = ""
    dynamic: DynamicConfig | None = None


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
    """Return the preset of a row that was measured on a published corpus; `printed` is for `reported_on`."""
    config = RunConfig(data=DataConfig(corpus=measured.corpus), model=model, training=training)
    reported = reported_on(measured, *printed)
    return Preset(name=name, paper=paper, sources=sources, config=config, reported=reported, remark=remark)


TABLES = {"ptb": "Table 1", "wt2": "Table 2"}
"""Of Li et al. (2020), who print all rungs, by corpus."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A model without a span buffer, on two corpora; each rung of the ladder adds one thing to the one below.

    Attributes:
        name: of its presets, without the corpus.
        paper: who published it.
        title: what Li et al. (2020) call it.
        configs: by corpus.
        dynamic: settings of dynamic evaluation that its authors published, by corpus.
    """

    name: str
    paper: str
    title: str
    configs: dict[str, RunConfig]
    dynamic: Mapping[str, DynamicConfig] = field(default_factory=dict)

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
