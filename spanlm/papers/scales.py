"""The scales of a reproduction: `Matched` for Daniluk et al., `Proportional` for tables of models of many papers.

A small reproduction means something only where its rows differ as the published ones do. In Daniluk et al. the softmax
has V·k parameters with V words and k units, V / k = 77,000 / 300 = 257; `small` keeps that ratio (16,000 / 64 = 250),
so that splitting the encoder's output costs each model the same share of its readout as in the paper.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar

from spanlm.config import RunConfig
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
_RATES = re.compile("dropout|zoneout|weight_drop")
Part = TypeVar("Part")


def changed(part: Part, changes: Mapping[str, Any]) -> Part:
    """Return a configuration with other values, by the full names of their fields: `training.batching.length`."""
    groups = defaultdict[str, dict[str, Any]](dict)
    for name, value in changes.items():
        group, _, field_name = name.partition(".")
        groups[group][field_name] = value
    config: Any = part
    inner = {name: new[""] if "" in new else changed(getattr(config, name), new) for name, new in groups.items()}
    new_part: Part = replace(config, **inner)
    return new_part


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

    about: ClassVar[str] = (
        "hidden sizes with which θ_M, the parameters without word representations, is that of one LSTM"
    )

    units: int  # of that LSTM, and of the embedding
    training_tokens: int | None = None  # read in training, to the nearest whole epoch and at least one; None: no end
    max_epochs: int | None = None  # None: those of the preset
    init_range: float = 0.1  # initial weights are uniform in plus or minus this
    dropout: float = 0.0  # on the embedded words and on the head's input
    published_vocabulary: int | None = field(default=None, repr=False)  # with which the presets are matched already

    def model(self, published: ModelConfig, vocabulary_size: int, *, own_size: bool) -> ModelConfig:
        model = replace(published, embedding_size=self.units, init_range=self.init_range)
        if self.dropout:
            output = "memory.dropout" if model.memory.drops_output else "output_dropout"
            model = changed(model, {"input_dropout": self.dropout, output: self.dropout})
        if self.published_vocabulary and abs(vocabulary_size / self.published_vocabulary - 1) <= _NEAR:
            return model
        if own_size:
            return replace(model, encoder=model.encoder.resized(self.units))
        return match_parameters(model, vocabulary_size, lstm_budget(self.units, model, vocabulary_size))

    def training(self, published: TrainingConfig, tokens: int) -> TrainingConfig:
        epochs = published.epochs if self.max_epochs is None else self.max_epochs
        if self.training_tokens is not None:
            epochs = max(1, min(epochs, math.floor(self.training_tokens / tokens + 0.5)))
        return replace(published, epochs=epochs)


@dataclass(frozen=True, kw_only=True)
class Proportional:
    """All widths are a share of the published ones.

    The initial range grows with sqrt(1 / width), for sums of the same variance. Dropout that suits a wide layer starves
    a narrow one, so it has a share of its own.
    """

    about: ClassVar[str] = "each row's size and recipe as `spanlm presets` lists them, but these shares and bounds"

    width: float = 1.0  # that share
    dropout: float = 1.0  # share of the published dropout rates and zoneouts
    max_epochs: int | None = None  # None: as the preset has
    # most words of a step on running text: rows that read more have fewer streams, or they had fewer steps than others
    update_words: int | None = None
    experts: int | None = None  # most K of a mixture of softmaxes
    buffer_size: int | None = None  # most B of a span buffer
    # fields of the training of all rows, where each is compared with the one below; None: each row has its own
    recipe: Mapping[str, Any] | None = None

    def training(self, published: TrainingConfig, tokens: int) -> TrainingConfig:
        training, batching = published, published.batching
        if self.recipe is not None:
            return changed(training, self.recipe)
        if self.max_epochs is None:
            return training
        if self.update_words is not None and batching.kind != "sentences":
            streams = min(batching.batch_size, max(1, self.update_words // batching.length))
            training = replace(training, batching=replace(batching, batch_size=streams))
        return compressed(training, self.max_epochs)

    def model(self, published: ModelConfig, vocabulary_size: int, *, own_size: bool) -> ModelConfig:
        memory, head, encoder = published.memory, published.head, published.encoder
        if self.width == 1:
            return published
        if isinstance(memory, SpanBufferConfig):
            size = min(memory.buffer_size, self.buffer_size or memory.buffer_size)
            memory = replace(self._drier(memory), buffer_size=size)
        if isinstance(head, MixtureOfSoftmaxesConfig):
            head = replace(self._drier(head), experts=min(head.experts, self.experts or head.experts))
        if isinstance(encoder, AWDLSTMConfig):  # its last layer is not as wide as the others
            encoder = replace(encoder, hidden_size=self._units(encoder.hidden_size))
        wider = math.sqrt(1 / self.width)
        return replace(
            self._drier(published),
            embedding_size=self._units(published.embedding_size),
            init_range=published.init_range * wider,
            bias_range=published.bias_range and published.bias_range * wider,
            encoder=self._drier(encoder.resized(self._units(encoder.output_size))),
            memory=memory,
            head=head,
        )

    def _units(self, published: int) -> int:
        return max(1, round(published * self.width))

    def _drier(self, part: Part) -> Part:
        """Scale each rate of dropout and zoneout of a configuration."""
        config: Any = part
        names = [item.name for item in fields(config) if item.type == "float" and _RATES.search(item.name)]
        return changed(part, {name: getattr(config, name) * self.dropout for name in names})


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
    settings = {item.name: getattr(config, item.name) for item in fields(config) if item.repr}
    settings |= settings.pop("recipe", None) or {}
    lines = []
    for name, value in settings.items():
        if value is not None:
            shown = ", ".join(map(str, value)) if isinstance(value, tuple) else value
            lines.append(f"{re.sub('[._]', ' ', name)} {shown}")
    return lines


def scaled(
    scale: Scale, published: RunConfig, vocabulary_size: int, tokens: int, *, own_size: bool = False
) -> RunConfig:
    """Return a preset's configuration on a corpus with this vocabulary and these training tokens."""
    training = replace(scale.sizes.training(published.training, tokens), precision=scale.precision)
    model = scale.sizes.model(published.model, vocabulary_size, own_size=own_size)
    return replace(published, model=model, training=training)


def compressed(training: TrainingConfig, most: int) -> TrainingConfig:
    """Return a recipe of at most `most` epochs whose learning rate takes the published course in less time.

    With E the published epochs, F of them at the full rate and E − F at a rate divided by f once more each, and n
    epochs here: F' = F n / E, rounded and at least 1, and f' = f^((E − F) / (n − F')), so that the last rate is the
    published one. With patience, E is where the rate was divided by `SPENT`. Other schedules are only cut, and a
    warm-up keeps its steps.
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
