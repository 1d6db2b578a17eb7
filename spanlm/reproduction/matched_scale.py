"""The scales of Daniluk et al. (2017), who compare models at equal parameters.

What the paper compares at equal parameters is decided by how much of them the softmax takes: with V words and k units
V·k. Its models have V / k = 77,000 / 300 = 257. `small` keeps that ratio (16,000 / 64 = 250), so that splitting the
encoder's output costs each model the share of its readout that it cost in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.models.counting import lstm_budget, match_parameters
from spanlm.presets.daniluk2017 import VOCABULARY_SIZE
from spanlm.reproduction.scale import Scale
from spanlm.reproduction.wording import several

PAPER_UNITS = 300
_NEAR = 0.01
"""A vocabulary within this share of the paper's has the paper's sizes."""


@dataclass(frozen=True, kw_only=True)
class MatchedScale(Scale):
    """A size at which all models have the parameters of one LSTM.

    Attributes:
        units: of the LSTM whose parameters the other models match; also the embedding's size.
        training_tokens: how many tokens a model reads in training, in whole epochs and at least one; None: as many
            epochs as the preset allows.
        init_range: weights start uniform in plus or minus this. The paper's 0.1 at 300 units is
            0.1 · sqrt(300 / units) at fewer: the same variance of a sum over all units. With 0.1 at 64 units the
            attention models did not leave the unigram distribution in three epochs.
    """

    units: int
    training_tokens: int | None = None
    init_range: float = 0.1

    def configure(self, preset: RunConfig, data: DataConfig, vocabulary_size: int, tokens: int) -> RunConfig:
        """Return the configuration of a row at this scale; see `Scale`."""
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

    def remarks_hold(self, vocabulary_size: int) -> bool:
        """Say so where the sizes are the paper's: the remarks are about these."""
        return self.as_published(vocabulary_size)

    def describe(self, configs: Sequence[RunConfig], vocabulary_size: int) -> list[str]:
        """Say the sizes, and the recipe that all rows share."""
        return [self._sizes(vocabulary_size), self._recipe(configs[0])]

    def _sizes(self, vocabulary_size: int) -> str:
        if self.as_published(vocabulary_size):
            return "Sizes: the paper's own."
        return (
            f"Sizes (scale {self.name}): embedding {self.units}; hidden sizes chosen so that θ_M, the parameters "
            f"without word representations, is that of a {self.units}-unit LSTM (RM: {self.units} units and, as in the "
            f"paper, more parameters). V / units is {vocabulary_size / self.units:.0f}; the paper's is 257."
        )

    def _recipe(self, config: RunConfig) -> str:
        training = config.training
        optimizer, batching = training.optimizer, training.batching
        return (
            f"Recipe: {optimizer.kind}, learning rate {optimizer.lr:g}, {batching.batch_size} streams × "
            f"{batching.length} steps, gradient norm at most {optimizer.clip:g}, weights start in "
            f"±{self.init_range:g}, no dropout, at most {several(training.epochs, 'epoch')}, patience "
            f"{training.patience}, products in {training.precision}."
        )


SCALES = {
    scale.name: scale
    for scale in (
        MatchedScale(
            name="smoke",
            purpose="does everything run? a minute or two on the embedded corpus; the numbers mean nothing",
            corpus="demo",
            units=16,
            vocabulary_size=2_000,
            max_epochs=1,
            init_range=0.4,
        ),
        MatchedScale(
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
        MatchedScale(
            name="paper",
            purpose="the paper's sizes; for a GPU",
            corpus="wikipedia",
            units=PAPER_UNITS,
        ),
    )
}
