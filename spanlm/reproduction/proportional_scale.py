"""The scales of Salton et al. (2017), whose tables compare models of many papers, each at its own size.

Every published width is multiplied by the same factor, so that what is larger in the paper is larger here. A sum over
k units has a variance of k times that of a term: at 0.2 of the units weights start in sqrt(1 / 0.2) times the range,
and a unit's first input varies as it does at full size. Dropout that a wide layer bears starves a narrow one: its
rates are halved. The schedule of the learning rate is compressed in time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.models.config import ModelConfig
from spanlm.models.encoders import AnyEncoderConfig, AWDLSTMConfig, HORNNConfig, VariationalLSTMConfig
from spanlm.reproduction.scale import Scale
from spanlm.reproduction.wording import several
from spanlm.training.config import TrainingConfig

SPENT = 256.0
"""A rate that was divided by this teaches nothing more: about what the schedules of Zaremba et al. end with."""


OF_PRESETS = "What is remarked on rows below is of their presets, which have the published sizes and recipes."


@dataclass(frozen=True, kw_only=True)
class ProportionalScale(Scale):
    """A size at which all widths are a share of the published ones.

    Attributes:
        width: that share.
        dropout: share of the published dropout rates and zoneouts.
        update_words: a training step on running text reads at most this many words: rows that read more have fewer
            streams, or they would be compared after a fraction of the others' steps; None: as published.
    """

    width: float = 1.0
    dropout: float = 1.0
    update_words: int | None = None

    def configure(self, preset: RunConfig, data: DataConfig, vocabulary_size: int, tokens: int) -> RunConfig:
        """Return the configuration of a row at this scale; see `Scale`."""
        training = replace(preset.training, precision=self.precision)
        if self.max_epochs is not None:
            training = compressed(self._in_smaller_steps(training), self.max_epochs)
        model = preset.model if self.width == 1 else self._narrowed(preset.model)
        return RunConfig(data=data, model=model, training=training)

    def _in_smaller_steps(self, training: TrainingConfig) -> TrainingConfig:
        """Return a recipe whose steps are at most `update_words` long."""
        batching = training.batching
        if self.update_words is None or batching.kind == "sentences":
            return training
        streams = min(batching.batch_size, max(1, self.update_words // batching.length))
        return replace(training, batching=replace(batching, batch_size=streams))

    def describe(self, configs: Sequence[RunConfig], vocabulary_size: int) -> list[str]:
        """Say how sizes and recipes differ from the published ones, which are not the same for all rows."""
        precision = f"products in {self.precision}"
        if self.width == 1:
            return [f"Sizes and recipes: each row's as published, as `spanlm presets` lists them; {precision}."]
        shorter = (
            ""
            if self.max_epochs is None
            else f" at most {several(self.max_epochs, 'epoch')}, where a schedule keeps its share of epochs at the "
            "full rate, and what the rate is divided by in all;"
        )
        if self.update_words is not None:
            shorter += f" at most {self.update_words} words a step of running text, by fewer streams;"
        return [
            f"Sizes (scale {self.name}): {self.width:g} of every published width; dropout {self.dropout:g} of the "
            f"published; weights start in {self._range:.2f} times the published range.",
            f"Recipes: each row's as published, as `spanlm presets` lists them, but:{shorter} {precision}.",
            OF_PRESETS,
        ]

    @property
    def _range(self) -> float:
        return math.sqrt(1 / self.width)

    def _narrowed(self, model: ModelConfig) -> ModelConfig:
        biases = None if model.bias_range is None else model.bias_range * self._range
        return replace(
            model,
            embedding_size=self._units(model.embedding_size),
            init_range=model.init_range * self._range,
            bias_range=biases,
            embedding_dropout=model.embedding_dropout * self.dropout,
            input_dropout=model.input_dropout * self.dropout,
            output_dropout=model.output_dropout * self.dropout,
            encoder=self._drier(self._narrower(model.encoder)),
        )

    def _units(self, published: int) -> int:
        return max(1, round(published * self.width))

    def _narrower(self, encoder: AnyEncoderConfig) -> AnyEncoderConfig:
        if isinstance(encoder, AWDLSTMConfig):  # its last layer is not as wide as the others
            encoder = replace(encoder, hidden_size=self._units(encoder.hidden_size))
        return encoder.resized(self._units(encoder.output_size))

    def _drier(self, encoder: AnyEncoderConfig) -> AnyEncoderConfig:
        """Return an encoder with this share of its dropout and zoneout."""
        share = self.dropout
        if isinstance(encoder, VariationalLSTMConfig):
            return replace(
                encoder,
                input_dropout=encoder.input_dropout * share,
                recurrent_dropout=encoder.recurrent_dropout * share,
                zoneout_h=encoder.zoneout_h * share,
                zoneout_c=encoder.zoneout_c * share,
            )
        if isinstance(encoder, AWDLSTMConfig):
            return replace(
                encoder, hidden_dropout=encoder.hidden_dropout * share, weight_drop=encoder.weight_drop * share
            )
        return encoder if isinstance(encoder, HORNNConfig) else replace(encoder, dropout=encoder.dropout * share)


def published_length(training: TrainingConfig) -> int:
    """Return how many epochs a recipe's schedule is made for.

    A run that stops when it no longer improves has only a bound that it never reaches: its schedule counts as ended
    once the rate was divided by `SPENT`.
    """
    schedule = training.schedule
    if training.patience is None or schedule.kind != "step" or schedule.factor == 1:
        return training.epochs
    return min(training.epochs, schedule.full_epochs + math.ceil(math.log(SPENT) / math.log(schedule.factor)))


def compressed(training: TrainingConfig, most: int) -> TrainingConfig:
    """Return a recipe for at most `most` epochs whose learning rate goes the same way in less time.

    With E the epochs the schedule is made for, of which F have the full rate and E − F a rate divided by f once more,
    and n epochs here: F' = F n / E, rounded and at least 1, and f' = f^((E − F) / (n − F')). The share of epochs at the
    full rate stays, but for rounding, and the rate of the last epoch exactly. A schedule that follows the
    validation loss needs no compressing, and a warm-up keeps its steps.
    """
    length, schedule = published_length(training), training.schedule
    if most >= length:
        return replace(training, epochs=min(most, training.epochs))
    shorter = replace(training, epochs=most)
    if schedule.kind != "step" or schedule.full_epochs >= length or most == 1:
        return shorter
    full = min(most - 1, max(1, round(schedule.full_epochs * most / length)))
    factor = schedule.factor ** ((length - schedule.full_epochs) / (most - full))
    return replace(shorter, schedule=replace(schedule, full_epochs=full, factor=factor))


SCALES = {
    scale.name: scale
    for scale in (
        ProportionalScale(
            name="smoke",
            purpose="does everything run? minutes on the embedded corpus; the numbers mean nothing",
            corpus="demo",
            vocabulary_size=2_000,
            width=0.025,
            dropout=0.5,
            max_epochs=1,
            most_members=3,
        ),
        ProportionalScale(
            name="small",
            purpose="a fifth of every width; hours of one CPU core",
            vocabulary_size=16_000,
            width=0.2,
            dropout=0.5,
            max_epochs=8,
            update_words=800,
            most_members=3,
            precision="bf16",
        ),
        ProportionalScale(name="paper", purpose="the papers' sizes and recipes; for a GPU"),
    )
}
