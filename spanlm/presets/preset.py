"""What a preset is."""

from __future__ import annotations

from dataclasses import dataclass, field

from spanlm.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Reported:
    """What the paper printed for this row.

    Attributes:
        valid_ppl: validation perplexity, where given.
        test_ppl: test perplexity.
        model_parameters: θ_M in millions, without word representations, as printed.
        corpus: what it was measured on.
        vocabulary_size: of that corpus.
    """

    valid_ppl: float | None = None
    test_ppl: float | None = None
    model_parameters: float | None = None
    corpus: str = ""
    vocabulary_size: int = 0


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
    """

    name: str
    paper: str
    sources: tuple[str, ...]
    config: RunConfig
    reported: Reported = field(default_factory=Reported)
    remark: str = ""
