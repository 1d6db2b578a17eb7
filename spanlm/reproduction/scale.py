"""How large a reproduction is: the paper's sizes, or smaller ones that keep its proportions.

What the paper compares at equal parameters is decided by how much of them the softmax takes: with V words and k units
V·k. Its models have V / k = 77,000 / 300 = 257. `small` keeps that ratio (16,000 / 64 = 250), so that splitting the
encoder's output costs each model the share of its readout that it cost in the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.evaluation.scoring import Precision
from spanlm.models.counting import lstm_budget, match_parameters
from spanlm.presets.daniluk2017 import VOCABULARY_SIZE

PAPER_UNITS = 300
_NEAR = 0.01
"""A vocabulary within this share of the paper's has the paper's sizes."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A size of reproduction.

    Attributes:
        name: what `--scale` takes.
        purpose: for people.
        corpus: the corpus unless another is asked for.
        units: of the LSTM whose parameters the other models match; also the embedding's size.
        vocabulary_size: largest vocabulary; None: all words of the corpus.
        training_tokens: how many tokens a model reads in training, in whole epochs and at least one; None: as many
            epochs as the preset allows.
        max_epochs: at most so many epochs; None: as the preset has.
        init_range: weights start uniform in plus or minus this. The paper's 0.1 at 300 units is
            0.1 · sqrt(300 / units) at fewer: the same variance of a sum over all units. With 0.1 at 64 units the
            attention models did not leave the unigram distribution in three epochs.
        precision: of the products.
    """

    name: str
    purpose: str
    corpus: str
    units: int
    vocabulary_size: int | None = None
    training_tokens: int | None = None
    max_epochs: int | None = None
    init_range: float = 0.1
    precision: Precision = "fp32"

    def data(self, data: DataConfig) -> DataConfig:
        """Return `data` with this scale's vocabulary."""
        if self.vocabulary_size is None:
            return data
        sizes = [size for size in (data.max_size, self.vocabulary_size) if size is not None]
        return replace(data, max_size=min(sizes))

    def configure(self, preset: RunConfig, data: DataConfig, vocabulary_size: int, tokens: int) -> RunConfig:
        """Return the configuration of a row at this scale.

        Args:
            preset: the published one.
            data: of the corpus, already at this scale.
            vocabulary_size: of the corpus, at this scale.
            tokens: of its training part.
        """
        model = replace(preset.model, embedding_size=self.units, init_range=self.init_range)
        if not self.as_published(vocabulary_size):
            if preset.model.memory.kind == "recurrent_memory":
                # the paper gives it the units of the LSTM and three times the parameters
                model = replace(model, encoder=model.encoder.resized(self.units))
            else:
                budget = lstm_budget(self.units, model, vocabulary_size)
                model = match_parameters(model, vocabulary_size, budget)
        training = replace(preset.training, precision=self.precision, epochs=self.epochs(preset, tokens))
        return RunConfig(data=data, model=model, training=training)

    def as_published(self, vocabulary_size: int) -> bool:
        """Say whether the sizes are the paper's own, which fit its vocabulary alone."""
        return self.units == PAPER_UNITS and abs(vocabulary_size / VOCABULARY_SIZE - 1) <= _NEAR

    def epochs(self, preset: RunConfig, tokens: int) -> int:
        """Return how many epochs over `tokens` training tokens."""
        most = preset.training.epochs if self.max_epochs is None else self.max_epochs
        if self.training_tokens is None:
            return most
        return max(1, min(most, math.floor(self.training_tokens / tokens + 0.5)))


SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            name="smoke",
            purpose="does everything run? a minute or two on the embedded corpus; the numbers mean nothing",
            corpus="demo",
            units=16,
            vocabulary_size=2_000,
            max_epochs=1,
            init_range=0.4,
        ),
        Scale(
            name="small",
            purpose="the paper's proportions at 64 units; a row takes 10 to 20 minutes of one CPU core",
            corpus="wikitext-2",
            units=64,
            vocabulary_size=16_000,
            training_tokens=12_500_000,
            max_epochs=8,
            init_range=0.2,
            precision="bf16",
        ),
        Scale(
            name="paper",
            purpose="the paper's sizes; for a GPU",
            corpus="wikipedia",
            units=PAPER_UNITS,
        ),
    )
}
