"""The options of a span buffer; see `spanlm.models.memories.span_buffer.memory`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from spanlm.errors import InputError, require
from spanlm.models.interfaces import Init, MemoryConfig

if TYPE_CHECKING:
    from spanlm.models.memories.span_buffer.memory import SpanBufferMemory

SpanScore = Literal["tanh", "literal"]
Newest = Literal["before", "current"]

LEAST_TEMPERATURE = 1e-6
"""Of a gate. What is divided by it is float32, where smaller numbers overflow, and at last are 0 themselves."""


def require_temperature(temperature: float, name: str) -> None:
    """Refuse what is no temperature of a gate.

    Raises:
        InputError: it is below `LEAST_TEMPERATURE` or not finite.
    """
    limit = f"from {LEAST_TEMPERATURE:g} on and finite; 0 would be a gate that only chooses: 0.01 is nearly that"
    require(LEAST_TEMPERATURE <= temperature < math.inf, name, temperature, limit)


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """How soft the gate is (Li et al., 2020, Eq. 14).

    Attributes:
        training_temperature: of the gate in the likelihood that is trained.
        evaluation_temperature: of the gate in evaluation.
    """

    training_temperature: float = 100.0
    evaluation_temperature: float = 0.1

    def __post_init__(self) -> None:
        """Refuse what is no temperature."""
        require_temperature(self.training_temperature, "model.memory.gate.training_temperature")
        require_temperature(self.evaluation_temperature, "model.memory.gate.evaluation_temperature")


@dataclass(frozen=True, kw_only=True)
class RewardConfig:
    """What the gate is taught beside the likelihood (Li et al., 2020, Eq. 11-13).

    Attributes:
        weight: η, weight of the reward in the loss; 0: the gate learns from the likelihood alone.
        power: κ, power of the ratio of the two probabilities.
        most: a, the largest power that counts.
        base: b, what is taken off.
        slope: β, how much more a negative reward counts.
    """

    weight: float = 0.1
    power: float = 5.0
    most: float = 10.0
    base: float = 1.0
    slope: float = 3.0

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        for name in ("power", "most", "slope"):
            value = getattr(self, name)
            require(0 < value < math.inf, f"model.memory.reward.{name}", value, "above 0 and finite")
        require(0 <= self.weight < math.inf, "model.memory.reward.weight", self.weight, "0 or positive, and finite")
        limit = f"in [0, model.memory.reward.most={self.most})"
        require(0 <= self.base < self.most, "model.memory.reward.base", self.base, limit)


@dataclass(frozen=True, kw_only=True)
class SpanBufferConfig(MemoryConfig):
    """Attention over spans of the past and a gate that shares the prediction with it (Li et al., 2020).

    Attributes:
        kind: which memory: none, key_value, ngram, recurrent_memory, attentive, pointer_sentinel or span_buffer.
            Another kind has other fields.
        buffer_size: B, how many steps back the buffer reaches; it holds B / L spans.
        span_length: L; a span is h_i − h_{i−L+1}.
        words: the outputs themselves in place of spans, all B of them (the paper's "w/o RNN-minus"); span_length then
            means nothing.
        newest: the last step that a span of step t may end at: before (t − 1, as printed) or current (t, so that what
            is read can hold h_t).
        attention_size: units of the attention; null: as wide as the encoder's output.
        score: tanh (v · tanh(W_h h_t + W_s s_i)) or literal (as printed, without the tanh: then h_t adds the same to
            all scores and the attention does not depend on it, so that W_h is left out).
        dropout: of h_t, for the query, the gate and the head, and of what is read, with one mask for a segment; it
            takes the place of model.output_dropout.
        gate: how soft the gate is.
        reward: what the gate is taught beside the likelihood.
    """

    kind: Literal["span_buffer"] = "span_buffer"
    drops_output: ClassVar[bool] = True
    buffer_size: int = 2048
    span_length: int = 8
    words: bool = False
    newest: Newest = "before"
    attention_size: int | None = None
    score: SpanScore = "tanh"
    dropout: float = 0.4
    gate: GateConfig = field(default_factory=GateConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)

    RENAMED: ClassVar[Mapping[str, str]] = {
        "training_temperature": "gate.training_temperature",
        "evaluation_temperature": "gate.evaluation_temperature",
        "reward": "reward.weight",
        "reward_power": "reward.power",
        "reward_most": "reward.most",
        "reward_base": "reward.base",
        "reward_slope": "reward.slope",
    }
    """Fields as 0.1.0 called them; see `spanlm.config`."""

    REMOVED: ClassVar[Mapping[str, object]] = {
        "span_offset": "literal",
        "grid": "sliding",
        "before_stream": "masked",
        "biases": False,
        "gate_range": None,
        "kept": "raw",
        "own_segment_gradients": True,
        "penalised": False,
        "annealed_temperature": None,
        "annealing_epochs": None,
        "negative_reward": "literal",
        "rewarded": "adversarial",
        "reward_teaches": "all",
        "reward_gate": "plain",
        "reward_constant": True,
    }
    """Fields of 0.1.0 that are gone, with the value that is now the only one; see `spanlm.config`."""

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        for name, choices in (("newest", get_args(Newest)), ("score", get_args(SpanScore))):
            value = getattr(self, name)
            require(value in choices, f"model.memory.{name}", value, " or ".join(choices))
        require(self.buffer_size >= 1, "model.memory.buffer_size", self.buffer_size, "at least 1")
        if not self.words:
            _require_spans(self.buffer_size, self.span_length)
        size = self.attention_size
        require(size is None or size >= 1, "model.memory.attention_size", size, "at least 1, or null")
        require(0 <= self.dropout < 1, "model.memory.dropout", self.dropout, "in [0, 1)")

    @property
    def stride(self) -> int:
        """How many steps lie between the ends of one span and the next."""
        return 1 if self.words else self.span_length

    @property
    def count(self) -> int:
        """How many spans there are to look at: m."""
        return self.buffer_size // self.stride

    @property
    def reach(self) -> int:
        """How many steps lie between the two ends of a span; an output in place of one has a single end."""
        return self.stride - 1

    @property
    def nearest_lag(self) -> int:
        """How many steps back the newest span ends."""
        return 1 if self.newest == "before" else 0

    def at_temperature(self, temperature: float) -> SpanBufferConfig:
        """Return the same with another temperature of the gate in evaluation."""
        return replace(self, gate=replace(self.gate, evaluation_temperature=temperature))

    @property
    def description(self) -> str:
        """What it is, in a few words."""
        held = "words" if self.words else f"spans of {self.span_length}"
        return f"span buffer, {held}, {self.buffer_size} steps back"

    def build(self, hidden_size: int, vocabulary_size: int, init: Init) -> SpanBufferMemory:
        """Make the memory."""
        from spanlm.models.memories.span_buffer.memory import SpanBufferMemory

        return SpanBufferMemory(self, hidden_size, init)


def _require_spans(buffer_size: int, length: int) -> None:
    """Refuse spans of nothing, and buffers that hold no whole number of them."""
    limit = "at least 2: h_i − h_i is zero. Use model.memory.words=true for the outputs themselves"
    require(length >= 2, "model.memory.span_length", length, limit)
    require(
        buffer_size >= length,
        "model.memory.buffer_size",
        buffer_size,
        f"at least model.memory.span_length={length}, to hold a span. Use {length} or more, or a smaller span_length",
    )
    below = buffer_size // length * length
    if buffer_size != below:
        raise InputError(
            f"model.memory.buffer_size={buffer_size}: must be a multiple of model.memory.span_length={length}. "
            f"Use {below} or {below + length}."
        )
