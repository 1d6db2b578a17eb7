"""How large a reproduction is. Numbers of a small one mean something only where rows stay as different as published.

Daniluk et al. compare models at equal parameters, of which the softmax takes V·k with V words and k units: their V / k
is 77,000 / 300 = 257. `small` keeps that ratio (16,000 / 64 = 250), so that splitting the encoder's output costs each
model the share of its readout that it cost in the paper.

Salton et al. and Li et al. compare models of many papers, each at its own size. Every published width is multiplied by
the same factor. A sum over k units has k times the variance of a term: at 0.2 of the units weights start in
sqrt(1 / 0.2) times the range, so that a unit's first input varies as at full size. Dropout that a wide layer bears
starves a narrow one: its rates are halved. The rows of Li et al. are rungs, each the one below with one thing more, and
what a rung adds is seen where all else is alike: small, all rows have one short recipe.
"""

from __future__ import annotations

import math
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


def several(count: int, what: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {what}{'s' * (count != 1)}"


@dataclass(frozen=True, kw_only=True)
class DynamicSearch:
    """How the settings of dynamic evaluation are looked for, on valid."""

    rates: tuple[float, ...] | None = None  # η that are tried; None: those of the published grid
    decays: tuple[float, ...] | None = None  # λ likewise
    first_tokens: int = 30_000  # of valid, that every pair reads
    finalists: int = 4  # pairs that then read all of it, more if none of them helps; 0: the first tokens decide
    statistics: int | None = None  # segments of train that tell how large gradients are; None: all

    def grid(self, published: DynamicConfig | None) -> list[DynamicConfig]:
        """Return every η with every λ, and where these are the published ones, what the model's authors had."""
        return [*dynamic_grid(self.rates, self.decays), *self.own_point(published)]

    def own_point(self, published: DynamicConfig | None) -> list[DynamicConfig]:
        """Return the published point of the model, where the grid is the published one."""
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

    def scaled(self, preset: RunConfig, vocabulary_size: int, tokens: int) -> tuple[ModelConfig, TrainingConfig]:
        """Return model and recipe of a row; the sizes are the paper's own where its units and vocabulary are."""
        model = replace(preset.model, embedding_size=self.units, init_range=self.init_range)
        if self.units != PAPER_UNITS or abs(vocabulary_size / VOCABULARY_SIZE - 1) > _NEAR:
            if preset.model.memory.kind == "recurrent_memory":
                # the paper gives it the units of the LSTM and three times the parameters
                model = replace(model, encoder=model.encoder.resized(self.units))
            else:
                model = match_parameters(model, vocabulary_size, lstm_budget(self.units, model, vocabulary_size))
        epochs = preset.training.epochs if self.max_epochs is None else self.max_epochs
        if self.training_tokens is not None:
            epochs = max(1, min(epochs, math.floor(self.training_tokens / tokens + 0.5)))
        return model, replace(preset.training, epochs=epochs)


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
        """Return a published recipe made short: what is not named above stays, ε and noise of finetuning included."""
        finetune = replace(
            training.finetune,
            stages=1,
            lr=None,
            epochs=self.finetune_epochs,
            last_latent_dropout=None,
            partial_shuffle=None,
        )
        return replace(
            training,
            optimizer=replace(training.optimizer, lr=self.lr, switch_after=self.switch_after),
            batching=replace(training.batching, batch_size=self.batch_size, length=self.length, group_size=None),
            epochs=self.epochs,
            finetune=finetune,
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
    recipe: Shortened | None = None  # of all rows; None: each row's own
    experts: int | None = None  # most K of a mixture of softmaxes
    buffer_size: int | None = None  # most B of a span buffer

    def scaled(self, preset: RunConfig, vocabulary_size: int, tokens: int) -> tuple[ModelConfig, TrainingConfig]:
        """Return model and recipe of a row."""
        training = preset.training
        if self.recipe is not None:
            training = self.recipe.of(training)
        elif self.max_epochs is not None:
            training = compressed(self._in_smaller_steps(training), self.max_epochs)
        return preset.model if self.width == 1 else self._narrowed(preset.model), training

    def _in_smaller_steps(self, training: TrainingConfig) -> TrainingConfig:
        batching = training.batching
        if self.update_words is None or batching.kind == "sentences":
            return training
        streams = min(batching.batch_size, max(1, self.update_words // batching.length))
        return replace(training, batching=replace(batching, batch_size=streams))

    def _narrowed(self, model: ModelConfig) -> ModelConfig:
        memory, head, encoder = model.memory, model.head, model.encoder
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
        rates = {
            one.name: getattr(config, one.name) * self.dropout
            for one in fields(config)
            if one.type == "float" and any(word in one.name for word in ("dropout", "zoneout", "weight_drop"))
        }
        dry: Part = replace(config, **rates)
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

    def data(self, data: DataConfig) -> DataConfig:
        """Return `data` with this scale's vocabulary."""
        if self.vocabulary_size is None:
            return data
        return replace(data, max_size=_at_most(data.max_size, self.vocabulary_size))

    def describe(self, adapting: bool = False) -> list[str]:
        """Say in lines what differs from the published sizes and recipes, and how rows that adapt are tuned."""
        sizes = "; ".join([self.sizes.about, *_settings(self.sizes)])
        said = [f"Scale {self.name}: {sizes}; products in {self.precision} where the device can."]
        return said + ([f"Dynamic evaluation: {'; '.join(_settings(self.dynamic))}."] if adapting else [])


def _settings(config: Any) -> list[str]:
    """Return `name value` of what is set in a configuration, and in those in it."""
    found = {one.name.replace("_", " "): getattr(config, one.name) for one in fields(config)}
    found = {name: ", ".join(map(str, value)) if isinstance(value, tuple) else value for name, value in found.items()}
    plain = [f"{name} {value}" for name, value in found.items() if value is not None and not is_dataclass(value)]
    return [*plain, *(one for value in found.values() if is_dataclass(value) for one in _settings(value))]


def scaled(scale: Scale, preset: RunConfig, data: DataConfig, vocabulary_size: int, tokens: int) -> RunConfig:
    """Return the configuration of a row at a scale.

    Args:
        scale: that one.
        preset: the published configuration.
        data: of the corpus, already at this scale.
        vocabulary_size: of the corpus, at this scale.
        tokens: of its training part.
    """
    model, training = scale.sizes.scaled(preset, vocabulary_size, tokens)
    return RunConfig(data=data, model=model, training=replace(training, precision=scale.precision))


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


def _named(*scales: Scale) -> dict[str, Scale]:
    return {scale.name: scale for scale in scales}


_SMOKE = "does everything run? minutes on the embedded corpus; the numbers mean nothing"
_PAPERS = "the papers' sizes and recipes; for a GPU"

MATCHED = _named(
    Scale(
        name="smoke",
        purpose="does everything run? a minute or two on the embedded corpus; the numbers mean nothing",
        corpus="demo",
        vocabulary_size=2_000,
        sizes=Matched(units=16, max_epochs=1, init_range=0.4),
    ),
    Scale(
        name="small",
        purpose="the paper's proportions at 64 units; a row takes 10 to 20 minutes of one CPU core",
        corpus="wikitext-2",
        vocabulary_size=16_000,
        precision="bf16",
        sizes=Matched(units=64, training_tokens=12_500_000, max_epochs=8, init_range=0.2),
    ),
    Scale(
        name="paper", purpose="the paper's sizes; for a GPU", corpus="wikipedia", sizes=Matched(units=PAPER_UNITS)
    ),
)  # fmt: skip
"""The scales of Daniluk et al. (2017)."""

PROPORTIONAL = _named(
    Scale(
        name="smoke",
        purpose=_SMOKE,
        corpus="demo",
        vocabulary_size=2_000,
        most_members=3,
        sizes=Proportional(width=0.025, dropout=0.5, max_epochs=1),
    ),
    Scale(
        name="small",
        purpose="a fifth of every width; hours of one CPU core",
        vocabulary_size=16_000,
        most_members=3,
        precision="bf16",
        sizes=Proportional(width=0.2, dropout=0.5, max_epochs=8, update_words=800),
    ),
    Scale(name="paper", purpose=_PAPERS, sizes=Proportional()),
)
"""The scales of Salton et al. (2017)."""

LADDER = _named(
    Scale(
        name="smoke",
        purpose=_SMOKE,
        corpus="demo",
        vocabulary_size=2_000,
        sizes=Proportional(
            width=0.025,
            dropout=0.5,
            recipe=Shortened(lr=10.0, epochs=2, switch_after=1, finetune_epochs=1),
            experts=2,
            buffer_size=64,
        ),
        dynamic=DynamicSearch(rates=(5e-5, 2e-4), decays=(0.002,), first_tokens=500, finalists=0, statistics=5),
    ),
    Scale(
        name="small",
        purpose="a fifth of every width; hours of two CPU cores (see --dry-run)",
        precision="bf16",
        sizes=Proportional(
            width=0.2,
            dropout=0.5,
            recipe=Shortened(lr=20.0, epochs=6, switch_after=4, finetune_epochs=2),
            experts=3,
            buffer_size=256,
        ),
        dynamic=DynamicSearch(
            rates=(5e-5, 1e-4, 2e-4, 4e-4),
            decays=(0.0005, 0.002, 0.008, 0.032),
            first_tokens=5_000,
            finalists=3,
            statistics=200,
        ),
    ),
    Scale(name="paper", purpose=_PAPERS, sizes=Proportional()),
)
"""The scales of Li et al. (2020)."""
