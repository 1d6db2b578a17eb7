"""How large a reproduction is: what every paper's scales have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.evaluation.dynamic.tuning import dynamic_grid
from spanlm.evaluation.dynamic.update import DynamicConfig
from spanlm.evaluation.protocol import Precision
from spanlm.reproduction.wording import several


@dataclass(frozen=True, kw_only=True)
class DynamicSearch:
    """How the settings of dynamic evaluation are looked for, on valid.

    Attributes:
        rates: η that are tried; None: those of the published grid.
        decays: λ likewise.
        first_tokens: of valid, that every pair reads.
        finalists: pairs that then read all of it, more if none of them helps; 0: none, the first tokens decide.
        statistics: segments of train that tell how large gradients are; None: all.
    """

    rates: tuple[float, ...] | None = None
    decays: tuple[float, ...] | None = None
    first_tokens: int = 30_000
    finalists: int = 4
    statistics: int | None = None

    def grid(self, published: DynamicConfig | None) -> list[DynamicConfig]:
        """Return what is tried: every η with every λ, and where these are the published ones, the model's own point.

        Args:
            published: what the authors of the model had, its ε included; None: nothing.
        """
        return [*dynamic_grid(self.rates, self.decays), *self.own_point(published)]

    def own_point(self, published: DynamicConfig | None) -> list[DynamicConfig]:
        """Return the published point of the model, where the grid is the published one."""
        return [published] if published is not None and self.rates is None and self.decays is None else []

    def describe(self) -> str:
        """Say how settings are found."""
        points = len(dynamic_grid(self.rates, self.decays))
        first = f"by the first {self.first_tokens:,} words of valid"
        if self.finalists:
            first += f", the best {self.finalists} of them by all of it, and more, one by one, until one helps"
        over = "all of train" if self.statistics is None else f"{several(self.statistics, 'segment')} of train"
        return f"Dynamic evaluation: {several(points, 'pair')} of η and λ {first}; MS of the gradients over {over}."


@dataclass(frozen=True, kw_only=True)
class Scale(ABC):
    """A size of reproduction.

    Attributes:
        name: what `--scale` takes.
        purpose: for people.
        corpus: the corpus unless another is asked for; None: the table's own.
        vocabulary_size: largest vocabulary; None: all words of the corpus.
        max_epochs: at most so many epochs; None: as the preset has.
        most_members: of an ensemble, unless more seeds are asked for; None: as many as the paper has.
        precision: of the products.
        dynamic: how the settings of dynamic evaluation are found.
    """

    name: str
    purpose: str
    corpus: str | None = None
    vocabulary_size: int | None = None
    max_epochs: int | None = None
    most_members: int | None = None
    precision: Precision = "fp32"
    dynamic: DynamicSearch = DynamicSearch()

    def data(self, data: DataConfig) -> DataConfig:
        """Return `data` with this scale's vocabulary."""
        if self.vocabulary_size is None:
            return data
        sizes = [size for size in (data.max_size, self.vocabulary_size) if size is not None]
        return replace(data, max_size=min(sizes))

    @abstractmethod
    def configure(self, preset: RunConfig, data: DataConfig, vocabulary_size: int, tokens: int) -> RunConfig:
        """Return the configuration of a row at this scale.

        Args:
            preset: the published one.
            data: of the corpus, already at this scale.
            vocabulary_size: of the corpus, at this scale.
            tokens: of its training part.
        """

    def remarks_hold(self, vocabulary_size: int) -> bool:
        """Say whether what a preset's remark says is true of its row, or the page says what it is true of."""
        return True

    @abstractmethod
    def describe(self, configs: Sequence[RunConfig], vocabulary_size: int) -> list[str]:
        """Say of what size the models are and how they are trained, in lines; `configs` as `configure` gives them."""
