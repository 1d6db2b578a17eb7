"""How large a reproduction is. Numbers of a small one mean something only where rows stay as different as published.

Daniluk et al. compare models at equal parameters, of which the softmax takes V·k with V words and k units: their V / k
is 77,000 / 300 = 257. `small` keeps that ratio (16,000 / 64 = 250), so that splitting the encoder's output costs each
model the share of its readout that it cost in the paper.

Salton et al. and Li et al. compare models of many papers, each at its own size. Every published width is multiplied by
the same factor. A sum over k units has k times the variance of a term: at 0.2 of the units weights start in
sqrt(1 / 0.2) times the range, so that a unit's first input varies as at full size. Dropout that suits a wide layer
starves a narrow one: its rates are halved. Li et al. compare each row with the one below it, which shows the effect of
one change only where all else is equal: small, all rows have one short recipe.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, TypeVar

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.evaluation.dynamic.tuning import dynamic_grid
from spanlm.evaluation.dynamic.update import DynamicConfig
from spanlm.models.counting import lstm_budget, match_parameters
from spanlm.models.encoders import AWDLSTMConfig
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import SpanBufferConfig
from spanlm.models.ops.precision import Precision
from spanlm.presets.daniluk2017 import VOCABULARY_SIZE
from spanlm.training.config import TrainingConfig

PAPER_UNITS = 300
_NEAR = 0.01
"""A vocabulary within this share of Daniluk et al.'s has the paper's sizes."""

SPENT = 256.0
"""A rate that was divided by this teaches nothing more: about what the schedules of Zaremba et al. end with."""

Part = TypeVar("Part")
_RATES = re.compile("dropout|zoneout|weight_drop")


@dataclass(frozen=True, kw_only=True)
class DynamicSearch:
    """How the settings of dynamic evaluation are searched, on valid."""

    rates: tuple[float, ...] | None = None  # η that are tried; None: those of the published grid
    decays: tuple[float, ...] | None = None  # λ likewise
    first_tokens: int = 30_000  # of valid, that every pair reads
    finalists: int = 4  # pairs that then read all of it, more if none of them helps; 0: the first tokens decide
    statistics: int | None = None  # segments of train whose gradients are averaged; None: all

    def grid(self, published: DynamicConfig | None) -> list[DynamicConfig]:
        """Return every η with every λ, and in the published grid also the settings of the model's authors."""
        return [*dynamic_grid(self.rates, self.decays), *self.own_point(published)]

    def own_point(self, published: DynamicConfig | None) -> list[DynamicConfig]:
        """Return the settings of the model's authors, if the grid is the published one."""
        return [published] if published is not None and self.rates is None and self.decays is None else []


@dataclass(frozen=True, kw_only=True)
class Matched:
    """All models have the parameters of one LSTM.

    The paper's range of ±0.1 at 300 units is 0.1 · sqrt(300 / units) at fewer: the same variance of a sum over all
    units. With 0.1 at 64 units the attention models did not leave the unigram distribution in three epochs.
    """

    about: ClassVar = "hidden sizes with which θ_M, the parameters without word representations, is that of one LSTM"

    units: int  # of that LSTM; also the embedding's size
    training_tokens: int | None = None  # read in training, in whole epochs and at least one; None: as many as allowed
    max_epochs: int | None = None  # None: as the preset has
    init_range: float = 0.1  # weights start uniform in plus or minus this

    def model(self, preset: RunConfig, vocabulary_size: int) -> ModelConfig:
        """Return the model of a row; its sizes are the paper's own where the units and the vocabulary are."""
        model = replace(preset.model, embedding_size=self.units, init_range=self.init_range)
        if self.units == PAPER_UNITS and abs(vocabulary_size / VOCABULARY_SIZE - 1) <= _NEAR:
            return model
        if preset.model.memory.kind == "recurrent_memory":
            # the paper gives it the units of the LSTM and three times the parameters
            return replace(model, encoder=model.encoder.resized(self.units))
        return match_parameters(model, vocabulary_size, lstm_budget(self.units, model, vocabulary_size))

    def training(self, preset: RunConfig, tokens: int) -> TrainingConfig:
        """Return the recipe of a row."""
        epochs = preset.training.epochs if self.max_epochs is None else self.max_epochs
        if self.training_tokens is not None:
            epochs = max(1, min(epochs, math.floor(self.training_tokens / tokens + 0.5)))
        return replace(preset.training, epochs=epochs)


@dataclass(frozen=True, kw_only=True)
class Shortened:
    """One recipe in few epochs for all rows of a table."""

    lr: float  # of all stages
    epochs: int  # of the main training
    switch_after: int  # epochs of SGD before averages begin
    finetune_epochs: int  # of the one stage after it
    batch_size: int = 12
    length: int = 35

    def of(self, training: TrainingConfig) -> TrainingConfig:
        """Shorten a published recipe; what is not named above stays, also ε and noise of finetuning."""
        epochs, streams = self.finetune_epochs, self.batch_size
        return replace(
            training,
            optimizer=replace(training.optimizer, lr=self.lr, switch_after=self.switch_after),
            batching=replace(training.batching, batch_size=streams, length=self.length, group_size=None),
            epochs=self.epochs,
            finetune=replace(
                training.finetune, stages=1, lr=None, epochs=epochs, last_latent_dropout=None, partial_shuffle=None
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Proportional:
    """All widths are a share of the published ones."""

    about: ClassVar = "each row's size and recipe as `spanlm presets` lists them, but these shares and bounds"

    width: float = 1.0  # that share
    dropout: float = 1.0  # share of the published dropout rates and zoneouts
    max_epochs: int | None = None  # None: as the preset has
    # a step on running text reads at most this many words: rows that read more have fewer streams, or they would be
    # compared after a fraction of the others' steps
    update_words: int | None = None
    experts: int | None = None  # most K of a mixture of softmaxes
    buffer_size: int | None = None  # most B of a span buffer
    recipe: Shortened | None = None  # of all rows; None: each row's own

    def training(self, preset: RunConfig, tokens: int) -> TrainingConfig:
        """Return the recipe of a row."""
        training, batching = preset.training, preset.training.batching
        if self.recipe is not None:
            return self.recipe.of(training)
        if self.max_epochs is None:
            return training
        if self.update_words is not None and batching.kind != "sentences":
            streams = min(batching.batch_size, max(1, self.update_words // batching.length))
            training = replace(training, batching=replace(batching, batch_size=streams))
        return compressed(training, self.max_epochs)

    def model(self, preset: RunConfig, vocabulary_size: int) -> ModelConfig:
        """Return the model of a row."""
        model, memory, head, encoder = preset.model, preset.model.memory, preset.model.head, preset.model.encoder
        if self.width == 1:
            return model
        if isinstance(memory, SpanBufferConfig):
            memory = replace(self._drier(memory), buffer_size=_at_most(self.buffer_size, memory.buffer_size))
        if isinstance(head, MixtureOfSoftmaxesConfig):
            head = replace(self._drier(head), experts=_at_most(self.experts, head.experts))
        if isinstance(encoder, AWDLSTMConfig):  # its last layer is not as wide as the others
            encoder = replace(encoder, hidden_size=self._units(encoder.hidden_size))
        wider = math.sqrt(1 / self.width)
        return replace(
            self._drier(model),
            embedding_size=self._units(model.embedding_size),
            init_range=model.init_range * wider,
            bias_range=None if model.bias_range is None else model.bias_range * wider,
            encoder=self._drier(encoder.resized(self._units(encoder.output_size))),
            memory=memory,
            head=head,
        )

    def _units(self, published: int) -> int:
        return max(1, round(published * self.width))

    def _drier(self, part: Part) -> Part:
        """Return a configuration with this share of each of its rates of dropout and zoneout."""
        config: Any = part
        names = [one.name for one in fields(config) if one.type == "float" and _RATES.search(one.name)]
        dry: Part = replace(config, **{name: getattr(config, name) * self.dropout for name in names})
        return dry


def _at_most(most: int | None, published: int) -> int:
    return published if most is None else min(most, published)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A size of reproduction."""

    name: str  # what `--scale` takes
    purpose: str  # for people
    sizes: Matched | Proportional  # how large models are, and how long they are trained
    corpus: str | None = None  # unless another is asked for; None: the table's own
    vocabulary_size: int | None = None  # largest vocabulary; None: all words of the corpus
    most_members: int | None = None  # of an ensemble, unless more seeds are asked for; None: as many as the paper has
    precision: Precision = "fp32"  # of the products
    dynamic: DynamicSearch = DynamicSearch()

    def describe(self, adapting: bool = False) -> list[str]:
        """Say in lines what differs from the published rows, and how the settings of dynamic evaluation are found."""
        sizes = "; ".join([self.sizes.about, *_settings(self.sizes)])
        lines = [f"Scale {self.name}: {sizes}; products in {self.precision} where the device can."]
        return lines + ([f"Dynamic evaluation: {'; '.join(_settings(self.dynamic))}."] if adapting else [])


def _settings(config: Any) -> list[str]:
    """Return `name value` of what is set in a configuration, and in those in it."""
    found: list[str] = []
    for one in fields(config):
        value = getattr(config, one.name)
        if is_dataclass(value):
            found += _settings(value)
        elif value is not None:
            shown = ", ".join(map(str, value)) if isinstance(value, tuple) else value
            found.append(f"{one.name.replace('_', ' ')} {shown}")
    return found


def scaled(scale: Scale, preset: RunConfig, data: DataConfig, vocabulary_size: int, tokens: int) -> RunConfig:
    """Return the configuration of a row on a corpus with this vocabulary and these training tokens."""
    training = replace(scale.sizes.training(preset, tokens), precision=scale.precision)
    return RunConfig(data=data, model=scale.sizes.model(preset, vocabulary_size), training=training)


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
    full rate stays, but for rounding, and the rate of the last epoch exactly. A schedule that follows the validation
    loss needs no compressing, and a warm-up keeps its steps.
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
