"""The scales of a reproduction: `Matched` for Daniluk et al., `Proportional` for tables of models of many papers.

A small reproduction means something only where its rows differ as the published ones do. In Daniluk et al. the softmax
has V·k parameters with V words and k units, V / k = 77,000 / 300 = 257; `small` keeps that ratio (16,000 / 64 = 250),
so that splitting the encoder's output costs each model the same share of its readout as in the paper.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, TypeVar

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.models.counting import lstm_budget, match_parameters
from spanlm.models.encoders import AWDLSTMConfig
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import SpanBufferConfig
from spanlm.options import Precision
from spanlm.scoring.options import DynamicConfig
from spanlm.training.config import TrainingConfig

_NEAR = 0.01  # published sizes are for vocabularies that differ from the paper's by at most this share

SPENT = 256.0  # a learning rate divided by this teaches nothing more: the schedules of Zaremba et al. end about there
Part = TypeVar("Part")
_RATES = re.compile("dropout|zoneout|weight_drop")


@dataclass(frozen=True, kw_only=True)
class DynamicSearch:
    """The search for the settings of dynamic evaluation on valid."""

    rates: tuple[float, ...] | None = None  # η; None: the published grid
    decays: tuple[float, ...] | None = None  # λ; None: the published grid
    first_tokens: int = 30_000  # of valid, read by every pair
    finalists: int = 4  # pairs that then read all of valid, more if none of them helps; 0: the first tokens decide
    statistics: int | None = None  # segments of train for the mean squares of gradients; None: all

    def own_point(self, published: DynamicConfig | None) -> list[DynamicConfig]:
        return [published] if published is not None and self.rates is None and self.decays is None else []


@dataclass(frozen=True, kw_only=True)
class Matched:
    """All models have as many parameters as one LSTM.

    The paper's initial range of ±0.1 at 300 units is ±0.1 · sqrt(300 / units) at fewer, for sums of the same variance.
    """

    about: ClassVar = "hidden sizes with which θ_M, the parameters without word representations, is that of one LSTM"

    units: int  # of that LSTM, and of the embedding
    training_tokens: int | None = None  # read in training, to the nearest whole epoch and at least one; None: no end
    max_epochs: int | None = None  # None: those of the preset
    init_range: float = 0.1  # initial weights are uniform in plus or minus this
    # None: as in the paper, it has the LSTM's units and so three times its size
    recurrent_memory_too: bool | None = None
    published_vocabulary: int | None = field(default=None, repr=False)  # with which the presets are matched already

    def model(self, preset: RunConfig, vocabulary_size: int) -> ModelConfig:
        model = replace(preset.model, embedding_size=self.units, init_range=self.init_range)
        if self.published_vocabulary and abs(vocabulary_size / self.published_vocabulary - 1) <= _NEAR:
            return model
        if not self.recurrent_memory_too and preset.model.memory.kind == "recurrent_memory":
            return replace(model, encoder=model.encoder.resized(self.units))
        return match_parameters(model, vocabulary_size, lstm_budget(self.units, model, vocabulary_size))

    def training(self, preset: RunConfig, tokens: int) -> TrainingConfig:
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
        """Shorten a published recipe; what is not named above stays, also ε and noise of finetuning.

        But the one stage of finetuning shuffles as the main training does, and has no rate of latent dropout of its
        own, where the presets of `wang2019` have both.
        """
        optimizer = replace(training.optimizer, lr=self.lr, switch_after=self.switch_after)
        batching = replace(training.batching, batch_size=self.batch_size, length=self.length, group_size=None)
        stage = replace(training.finetune, stages=1, lr=None, epochs=self.finetune_epochs)
        finetune = replace(stage, last_latent_dropout=None, partial_shuffle=None)
        return replace(training, optimizer=optimizer, batching=batching, epochs=self.epochs, finetune=finetune)


@dataclass(frozen=True, kw_only=True)
class Proportional:
    """All widths are a share of the published ones.

    The initial range grows with sqrt(1 / width), for sums of the same variance. Dropout that suits a wide layer starves
    a narrow one, so it has a share of its own.
    """

    about: ClassVar = "each row's size and recipe as `spanlm presets` lists them, but these shares and bounds"

    width: float = 1.0  # that share
    dropout: float = 1.0  # share of the published dropout rates and zoneouts
    max_epochs: int | None = None  # None: as the preset has
    # most words of a step on running text: rows that read more have fewer streams, or they had fewer steps than others
    update_words: int | None = None
    experts: int | None = None  # most K of a mixture of softmaxes
    buffer_size: int | None = None  # most B of a span buffer
    recipe: Shortened | None = None  # of all rows, where each is compared with the one below; None: each row's own

    def training(self, preset: RunConfig, tokens: int) -> TrainingConfig:
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
        model, memory, head, encoder = preset.model, preset.model.memory, preset.model.head, preset.model.encoder
        if self.width == 1:
            return model
        if isinstance(memory, SpanBufferConfig):
            size = min(memory.buffer_size, self.buffer_size or memory.buffer_size)
            memory = replace(self._drier(memory), buffer_size=size)
        if isinstance(head, MixtureOfSoftmaxesConfig):
            head = replace(self._drier(head), experts=min(head.experts, self.experts or head.experts))
        if isinstance(encoder, AWDLSTMConfig):  # its last layer is not as wide as the others
            encoder = replace(encoder, hidden_size=self._units(encoder.hidden_size))
        wider = math.sqrt(1 / self.width)
        return replace(
            self._drier(model),
            embedding_size=self._units(model.embedding_size),
            init_range=model.init_range * wider,
            bias_range=model.bias_range and model.bias_range * wider,
            encoder=self._drier(encoder.resized(self._units(encoder.output_size))),
            memory=memory,
            head=head,
        )

    def _units(self, published: int) -> int:
        return max(1, round(published * self.width))

    def _drier(self, part: Part) -> Part:
        """Scale each rate of dropout and zoneout of a configuration."""
        config: Any = part
        names = [one.name for one in fields(config) if one.type == "float" and _RATES.search(one.name)]
        dry: Part = replace(config, **{name: getattr(config, name) * self.dropout for name in names})
        return dry


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The size of a reproduction."""

    name: str  # for `--scale`
    purpose: str  # a line for people
    sizes: Matched | Proportional  # of models and trainings
    corpus: str | None = None  # the default; None: the table's own
    vocabulary_size: int | None = None  # at most; None: all words of the corpus
    most_members: int | None = None  # of an ensemble, unless more seeds are asked for; None: any number
    precision: Precision = "fp32"  # of the products
    dynamic: DynamicSearch = DynamicSearch()

    def describe(self, adapting: bool = False) -> list[str]:
        sizes = "; ".join([self.sizes.about, *_settings(self.sizes)])
        lines = [f"Scale {self.name}: {sizes}; products in {self.precision} where the device can."]
        return lines + ([f"Dynamic evaluation: {'; '.join(_settings(self.dynamic))}."] if adapting else [])


def smoke_scale(sizes: Matched | Proportional, lasts: str = "minutes", **more: Any) -> Scale:
    """Return the scale of a run that only checks the code."""
    purpose = f"does everything run? {lasts} on the embedded corpus; the numbers mean nothing"
    return Scale(name="smoke", purpose=purpose, corpus="demo", vocabulary_size=2_000, sizes=sizes, **more)


def _settings(config: Any) -> list[str]:
    found: list[str] = []
    for one in fields(config):
        value = getattr(config, one.name) if one.repr else None
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


def compressed(training: TrainingConfig, most: int) -> TrainingConfig:
    """Return a recipe of at most `most` epochs whose learning rate takes the published course in less time.

    With E the published epochs, F of them at the full rate and E − F at a rate divided by f once more each, and n
    epochs here: F' = F n / E, rounded and at least 1, and f' = f^((E − F) / (n − F')), so that the last rate is the
    published one. With patience, E is where the rate was divided by `SPENT`. Schedules that follow the validation loss
    are only cut, and a warm-up keeps its steps.
    """
    schedule, length = training.schedule, training.epochs
    stepwise = schedule.kind == "step"
    if training.patience is not None and stepwise and schedule.factor != 1:
        length = min(length, schedule.full_epochs + math.ceil(math.log(SPENT) / math.log(schedule.factor)))
    if most >= length:
        return replace(training, epochs=min(most, training.epochs))
    if stepwise and schedule.full_epochs < length and most > 1:
        full = min(most - 1, max(1, round(schedule.full_epochs * most / length)))
        factor = schedule.factor ** ((length - schedule.full_epochs) / (most - full))
        schedule = replace(schedule, full_epochs=full, factor=factor)
    return replace(training, epochs=most, schedule=schedule)
