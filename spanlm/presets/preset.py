"""What a preset is."""

from __future__ import annotations

from dataclasses import dataclass, field

from spanlm.config import RunConfig
from spanlm.evaluation.dynamic.update import DynamicConfig


@dataclass(frozen=True, kw_only=True)
class Reported:
    """What the paper printed for this row.

    Attributes:
        valid_ppl: validation perplexity, where given.
        test_ppl: test perplexity.
        model_parameters: θ_M in millions, without word representations, as printed.
        all_parameters: θ_{W+M} in millions, as printed by papers that count the word representations in.
        dynamic_valid_ppl: validation perplexity with dynamic evaluation.
        dynamic_test_ppl: test perplexity with dynamic evaluation.
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


def reported_on(
    measured: Measured,
    *,
    valid_ppl: float | None = None,
    test_ppl: float | None = None,
    all_parameters: float | None = None,
    dynamic_valid_ppl: float | None = None,
    dynamic_test_ppl: float | None = None,
) -> Reported:
    """Return what a paper printed for a row measured on a published corpus."""
    return Reported(
        valid_ppl=valid_ppl,
        test_ppl=test_ppl,
        all_parameters=all_parameters,
        dynamic_valid_ppl=dynamic_valid_ppl,
        dynamic_test_ppl=dynamic_test_ppl,
        corpus=measured.title,
        vocabulary_size=measured.vocabulary_size,
    )


def reported_twice(
    measured: Measured, millions: float, plain: tuple[float, float], dynamic: tuple[float, float]
) -> Reported:
    """Return what was printed for a row of `millions` of parameters: valid and test, without and with adaptation."""
    return reported_on(
        measured,
        valid_ppl=plain[0],
        test_ppl=plain[1],
        all_parameters=millions,
        dynamic_valid_ppl=dynamic[0],
        dynamic_test_ppl=dynamic[1],
    )


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
