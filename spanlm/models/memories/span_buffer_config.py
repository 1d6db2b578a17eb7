"""What a span buffer can be: the readings of Li et al. (2020); see `spanlm.models.memories.span_buffer`."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

from spanlm.errors import InputError, require, require_defaults
from spanlm.models.interfaces import Init, Memory
from spanlm.models.span_mixture import GateRule, NegativeReward, Rewarded, RewardGate, require_temperature

SpanOffset = Literal["literal", "length"]
GridKind = Literal["sliding", "fixed"]
SpanScore = Literal["tanh", "literal"]
RewardTeaches = Literal["all", "gate"]
Kept = Literal["raw", "dropped"]
Newest = Literal["before", "current"]
BeforeStream = Literal["masked", "zero"]


@dataclass(frozen=True, kw_only=True)
class SpanBufferConfig:
    """Attention over spans of the past and a gate that shares the prediction with it (Li et al., 2020).

    Attributes:
        kind: which memory: none, key_value, ngram, recurrent_memory, attentive, pointer_sentinel or span_buffer.
            Another kind has other fields.
        buffer_size: B, how many steps back the buffer reaches; it holds B / L spans.
        span_length: L.
        span_offset: what a span is: literal (h_i − h_{i−L+1}, as printed) or length (h_i − h_{i−L}).
        words: the outputs themselves in place of spans, all B of them (the paper's "w/o RNN-minus"); span_length then
            means nothing.
        grid: sliding (the newest span ends at the step before) or fixed (spans end at multiples of L of the stream's
            steps, so that only every L-th is projected).
        newest: the last step that a span of step t may end at: before (t − 1, as printed) or current (t, so that what
            is read can hold h_t).
        before_stream: what becomes of a span that begins before its stream does: masked (it is not there) or zero (as
            if the outputs of before were zeros: the span is h_i itself). One that ends there is never there.
        attention_size: units of the attention; null: as wide as the encoder's output.
        score: tanh (v · tanh(W_h h_t + W_s s_i)) or literal (as printed, without the tanh: then h_t adds the same to
            all scores and the attention does not depend on it, so that W_h is left out).
        biases: of Eq. 7, within the tanh (without which it would mean nothing), and of Eq. 10; printed are none.
        gate_range: W_g starts in plus or minus this; null: in the range of all weights. The smaller, the nearer is λ to
            ½ at first.
        kept: of each output: raw (as the encoder gave it) or dropped (with the mask of its segment; what is read meets
            no other one then).
        own_segment_gradients: teach the encoder through the spans of the segment at hand, too.
        dropout: of h_t, for the query, the gate and the head, and of what is read, with one mask for a segment; it
            takes the place of model.output_dropout.
        penalised: training.activation_penalty and training.temporal_penalty hold for what is read, too.
        training_temperature: of the gate in the likelihood that is trained.
        annealed_temperature: what training_temperature becomes, changed by the same factor after each epoch; null: it
            stays what it is, as the paper's two constants have it.
        annealing_epochs: after so many epochs, finetuning's counted on, it is annealed_temperature; null where that is
            null. A model that is loaded has that one wherever it is asked for a temperature of training.
        evaluation_temperature: of the gate in evaluation.
        reward: η, weight of the reward in the loss; 0: the gate learns from the likelihood alone.
        reward_power: κ, power of the ratio of the two probabilities.
        reward_most: a, the largest power that counts.
        reward_base: b, what is taken off.
        reward_slope: β, how much more a negative reward counts.
        negative_reward: what a reward r < 0 adds to the loss: literal (−η r log λ, as printed, without a bound) or
            complement (−η |r| log(1 − λ)).
        reward_teaches: all that λ depends on, the encoder included, as Eq. 11 has it; or gate: W_g alone, so that the
            encoder learns from the likelihood only.
        rewarded: which probabilities the reward compares where the softmax is adversarial: adversarial (those of the
            loss, with margins) or clean (without, as in evaluation).
        reward_gate: the λ that the reward teaches: plain (without a temperature) or tempered (with
            training_temperature, as in the likelihood).
        reward_constant: r is a number to the gradient; false: both predictions learn from it, too, and since log λ < 0
            it is the encoder's that learns to be the better one. Goes with the literal negative_reward.
    """

    kind: Literal["span_buffer"] = "span_buffer"
    parts = 1  # the encoder's output stays whole
    buffer_size: int = 2048
    span_length: int = 8
    span_offset: SpanOffset = "literal"
    words: bool = False
    grid: GridKind = "sliding"
    newest: Newest = "before"
    before_stream: BeforeStream = "masked"
    attention_size: int | None = None
    score: SpanScore = "tanh"
    biases: bool = False
    gate_range: float | None = None
    kept: Kept = "raw"
    own_segment_gradients: bool = True
    dropout: float = 0.4
    penalised: bool = False
    training_temperature: float = 100.0
    annealed_temperature: float | None = None
    annealing_epochs: int | None = None
    evaluation_temperature: float = 0.1
    reward: float = 0.1
    reward_power: float = 5.0
    reward_most: float = 10.0
    reward_base: float = 1.0
    reward_slope: float = 3.0
    negative_reward: NegativeReward = "literal"
    rewarded: Rewarded = "adversarial"
    reward_teaches: RewardTeaches = "all"
    reward_gate: RewardGate = "plain"
    reward_constant: bool = True

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            require(value in choices, f"model.memory.{name}", value, " or ".join(choices))
        require(self.buffer_size >= 1, "model.memory.buffer_size", self.buffer_size, "at least 1")
        if self.words:
            # but for the length, which other fields are read beside
            nowhere = "with model.memory.words=true: there are no spans"
            require_defaults(self, "model.memory", ["span_offset", "grid", "before_stream"], nowhere)
        else:
            _require_spans(self.buffer_size, self.span_length, self.span_offset)
        size = self.attention_size
        require(size is None or size >= 1, "model.memory.attention_size", size, "at least 1, or null")
        limit = self.gate_range
        require(limit is None or 0 <= limit < math.inf, "model.memory.gate_range", limit, "0 or positive, or null")
        require(0 <= self.dropout < 1, "model.memory.dropout", self.dropout, "in [0, 1)")
        for name in ("training_temperature", "evaluation_temperature"):
            require_temperature(getattr(self, name), f"model.memory.{name}")
        self._check_annealing()
        for name in ("reward_power", "reward_most", "reward_slope"):
            value = getattr(self, name)
            require(0 < value < math.inf, f"model.memory.{name}", value, "above 0 and finite")
        require(0 <= self.reward < math.inf, "model.memory.reward", self.reward, "0 or positive, and finite")
        base, most = self.reward_base, self.reward_most
        require(0 <= base < most, "model.memory.reward_base", base, f"in [0, model.memory.reward_most={most})")
        if not self.reward:
            unpaid = "with model.memory.reward=0: no reward is in the loss"
            require_defaults(self, "model.memory", _OF_REWARDS, unpaid)
        if not self.dropout:
            undropped = "with model.memory.dropout=0: nothing is dropped"
            require_defaults(self, "model.memory", ["kept"], undropped)
        if not self.reward_constant:
            learned = "with model.memory.reward_constant=false: what r compares learns from it, and so does the encoder"
            require_defaults(self, "model.memory", ["rewarded", "reward_teaches", "negative_reward"], learned)
        if self.training_temperature == 1 and self.annealed_temperature is None:
            plain = "with model.memory.training_temperature=1: the λ of the likelihood is the plain one"
            require_defaults(self, "model.memory", ["reward_gate"], plain)

    def _check_annealing(self) -> None:
        last, epochs = self.annealed_temperature, self.annealing_epochs
        if last is not None:
            require_temperature(last, "model.memory.annealed_temperature")
            other = f"another than model.memory.training_temperature={self.training_temperature:g}, or null"
            require(last != self.training_temperature, "model.memory.annealed_temperature", last, other)
            beside = f"at least 1 beside model.memory.annealed_temperature={last:g}"
            require(epochs is not None and epochs >= 1, "model.memory.annealing_epochs", epochs, beside)
        else:
            unless = "null unless model.memory.annealed_temperature is a temperature"
            require(epochs is None, "model.memory.annealing_epochs", epochs, unless)

    def temperature_after(self, epochs: int) -> float:
        """Return T of training after so many epochs: T₀^(1 − s) T₁^s, s = min(1, epochs / annealing_epochs)."""
        if self.annealed_temperature is None or self.annealing_epochs is None:
            return self.training_temperature
        share = min(1.0, epochs / self.annealing_epochs)
        return float(self.training_temperature ** (1 - share) * self.annealed_temperature**share)

    @property
    def stride(self) -> int:
        """How many steps lie between the ends of one span and the next."""
        return 1 if self.words else self.span_length

    @property
    def reach(self) -> int:
        """How many steps lie between the two ends of a span."""
        if self.words:
            return 0
        return self.span_length - 1 if self.span_offset == "literal" else self.span_length

    @property
    def nearest_lag(self) -> int:
        """How many steps back the newest span ends, where the grid slides."""
        return 1 if self.newest == "before" else 0

    @property
    def rule(self) -> GateRule:
        """How the two predictions are mixed and the gate is taught, with the last T of training."""
        rule = GateRule(**{field.name: getattr(self, field.name) for field in fields(GateRule)})
        return replace(rule, training_temperature=self.temperature_after(self.annealing_epochs or 0))

    @property
    def description(self) -> str:
        """What it is, in a few words."""
        held = "words" if self.words else f"spans of {self.span_length}"
        return f"span buffer, {held}, {self.buffer_size} steps back"

    def build(self, hidden_size: int, vocabulary_size: int, init: Init) -> Memory:
        """Make the memory."""
        from spanlm.models.memories.span_buffer import SpanBufferMemory

        return SpanBufferMemory(self, hidden_size, init)


_CHOICES = {
    "span_offset": get_args(SpanOffset),
    "grid": get_args(GridKind),
    "newest": get_args(Newest),
    "before_stream": get_args(BeforeStream),
    "score": get_args(SpanScore),
    "kept": get_args(Kept),
    "negative_reward": get_args(NegativeReward),
    "rewarded": get_args(Rewarded),
    "reward_teaches": get_args(RewardTeaches),
    "reward_gate": get_args(RewardGate),
}
_OF_REWARDS = ["negative_reward", "reward_teaches", "rewarded", "reward_gate", "reward_constant"]


def _require_spans(buffer_size: int, length: int, offset: SpanOffset) -> None:
    """Refuse spans of nothing, and buffers that hold no whole number of them."""
    require(length >= 1, "model.memory.span_length", length, "at least 1")
    require(
        length >= 2 or offset == "length",
        "model.memory.span_length",
        length,
        "at least 2 with span_offset=literal: h_i − h_i is zero. Use model.memory.span_offset=length, or "
        "model.memory.words=true for the outputs themselves",
    )
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
