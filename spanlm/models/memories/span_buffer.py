"""The span-based neural buffer (Li et al., 2020).

    s_i     = h_i − h_{i−L+1}                                                     a span of L steps
    C_t     = [s_{t−1−(m−1)L} … s_{t−1−L}, s_{t−1}],  m = B / L                   (4)
    γ_{t,i} = v · tanh(W_h h_t + W_s s_i)                                         (7)
    α_t     = softmax(γ_t),  ξ_t = C_tᵀ α_t                                       (6, 5)
    g_t     = W_g h_t                                                             (10)

The head predicts from h_t and from ξ_t, with the same weights, and mixes both by g_t: see `spanlm.models.span_mixture`.
Where the paper leaves a choice: its Eq. 7 has no tanh, and without it all scores of a step grow by the same W_h h_t, so
that the attention does not depend on it (`score`); its Eq. 4 has other distances at its ends than within, so spans are
counted from the newest state before t (`grid`); h_t has read the word of its step and is no part of a span of step t,
which `newest` can change: the paper has h_t encode x_{1:t−1} and, in its Eq. 2 and 3, x_{1:t}. A span needs both its
ends in the stream, and where there is none p̃ = p. States are kept as the encoder gave them: those that met different
dropout masks have no meaningful difference (`kept`). The mask of a segment is put on h_t where it asks, gates and
predicts, and on ξ_t. There are no biases; W_g starts as small as all weights do, so that λ is near ½. Gradients end
where a segment begins, as for every memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from spanlm.errors import InputError, require, require_defaults
from spanlm.models.dropout import dropout_mask
from spanlm.models.interfaces import Init, Memory, Readout
from spanlm.models.memories.slots import cleared, with_steps
from spanlm.models.ops.precision import wide
from spanlm.models.ops.span_attention import FixedGrid, Grid, SlidingGrid, span_attention, spans
from spanlm.models.span_mixture import (
    Buffered,
    GateRule,
    NegativeReward,
    Rewarded,
    RewardGate,
    require_temperature,
)
from spanlm.models.state import Tensors

SpanOffset = Literal["literal", "length"]
GridKind = Literal["sliding", "fixed"]
SpanScore = Literal["tanh", "literal"]
RewardTeaches = Literal["all", "gate"]
Kept = Literal["raw", "dropped"]
Newest = Literal["before", "current"]


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
        attention_size: units of the attention; null: as wide as the encoder's output.
        score: tanh (v · tanh(W_h h_t + W_s s_i)) or literal (as printed, without the tanh: then h_t adds the same to
            all scores and the attention does not depend on it, so that W_h is left out).
        kept: of each output: raw (as the encoder gave it) or dropped (with the mask of its segment; what is read meets
            no other one then).
        own_segment_gradients: teach the encoder through the spans of the segment at hand, too.
        dropout: of h_t, for the query, the gate and the head, and of what is read, with one mask for a segment; it
            takes the place of model.output_dropout.
        training_temperature: of the gate in the likelihood that is trained.
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
    buffer_size: int = 2048
    span_length: int = 8
    span_offset: SpanOffset = "literal"
    words: bool = False
    grid: GridKind = "sliding"
    newest: Newest = "before"
    attention_size: int | None = None
    score: SpanScore = "tanh"
    kept: Kept = "raw"
    own_segment_gradients: bool = True
    dropout: float = 0.4
    training_temperature: float = 100.0
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
            require_defaults(self, "model.memory", ["span_offset", "grid"], nowhere)
        else:
            _require_spans(self.buffer_size, self.span_length, self.span_offset)
        size = self.attention_size
        require(size is None or size >= 1, "model.memory.attention_size", size, "at least 1, or null")
        require(0 <= self.dropout < 1, "model.memory.dropout", self.dropout, "in [0, 1)")
        for name in ("training_temperature", "evaluation_temperature"):
            require_temperature(getattr(self, name), f"model.memory.{name}")
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
        if self.training_temperature == 1:
            plain = "with model.memory.training_temperature=1: the λ of the likelihood is the plain one"
            require_defaults(self, "model.memory", ["reward_gate"], plain)

    @property
    def parts(self) -> int:
        """The encoder's output stays whole."""
        return 1

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
        """How the two predictions are mixed and the gate is taught."""
        return GateRule(
            training_temperature=self.training_temperature,
            evaluation_temperature=self.evaluation_temperature,
            reward=self.reward,
            reward_power=self.reward_power,
            reward_most=self.reward_most,
            reward_base=self.reward_base,
            reward_slope=self.reward_slope,
            negative_reward=self.negative_reward,
            rewarded=self.rewarded,
            reward_gate=self.reward_gate,
            reward_constant=self.reward_constant,
        )

    @property
    def description(self) -> str:
        """What it is, in a few words."""
        held = "words" if self.words else f"spans of {self.span_length}"
        return f"span buffer, {held}, {self.buffer_size} steps back"

    def build(self, hidden_size: int, vocabulary_size: int, init: Init) -> SpanBufferMemory:
        """Make the memory."""
        return SpanBufferMemory(self, hidden_size, init)


_CHOICES = {
    "span_offset": get_args(SpanOffset),
    "grid": get_args(GridKind),
    "newest": get_args(Newest),
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


class SpanBufferMemory(Memory):
    """h (T, B, H) -> features h (T, B, H), buffer with ξ (T, B, H) and gate, attention (T, B, m).

    State: the last outputs as `states` (P, B, H) and which of them are `filled` (P, B); with a fixed grid how many
    steps of its block each stream has read, `phase` (1, B). States are projected anew in every segment: the weights
    change between segments, and dynamic evaluation changes them, too.
    """

    def __init__(self, config: SpanBufferConfig, hidden_size: int, init: Init) -> None:
        super().__init__()
        self.readout_size, self.config = hidden_size, config
        self.fixed = config.grid == "fixed"
        self.count = config.buffer_size // config.stride
        # a step whose spans may end at itself looks at what the next one's end at before it
        self.ahead = 1 - config.nearest_lag
        grid = FixedGrid if self.fixed else SlidingGrid
        self.carried = grid.carried(config.stride, self.count, config.reach) - self.ahead
        size = hidden_size if config.attention_size is None else config.attention_size
        self.span_key = nn.Linear(hidden_size, size, bias=False)  # W_s
        self.query = None if config.score == "literal" else nn.Linear(hidden_size, size, bias=False)  # W_h
        self.score = nn.Parameter(torch.empty(size))  # v
        self.gate = nn.Linear(hidden_size, 2, bias=False)  # W_g
        init.start_all(self)

    def init_state(self, batch_size: int) -> Tensors:
        """No span."""
        states = self.score.new_zeros(self.carried, batch_size, self.readout_size)
        filled = torch.zeros(states.shape[:2], dtype=torch.bool, device=states.device)
        phase = {"phase": torch.zeros(1, batch_size, dtype=torch.int64, device=states.device)} if self.fixed else {}
        return {"states": states, "filled": filled, **phase}

    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        """Look back from every step of h (T, B, H)."""
        mask = dropout_mask(h.shape[1:], self.config.dropout, h) if self.training and self.config.dropout else None
        asking = h if mask is None else h * mask
        raw = self.config.kept == "raw"
        states = torch.cat([cleared(state["states"], state["filled"]).to(h.dtype), h if raw else asking])
        filled = with_steps(state["filled"], len(h))
        grid = self._grid(len(h), state)
        held = wide(states if self.config.own_segment_gradients else states.detach())
        values, there = spans(held, filled, self.config.reach, grid)
        query = None if self.query is None else self.query(asking)
        read, weights, any_span = span_attention(query, self.span_key(values), values, self.score, there, grid)
        read = read * mask if raw and mask is not None else read
        policy = self._gate(asking.detach()) if self.config.reward_teaches == "gate" else None
        buffer = Buffered(read, self._gate(asking), any_span, self.config.rule, policy)
        after = {"states": states[len(h) :], "filled": filled[len(h) :]}
        if self.fixed:
            after["phase"] = (state["phase"] + len(h)) % self.config.stride
        attention = partial(_at_their_lags, weights, grid, self.config.buffer_size)
        readout = Readout(
            asking,
            attention,
            nearest_lag=self.config.nearest_lag,
            span=self.config.stride,
            reach=self.config.reach,
            fixed=self.fixed,
            buffer=buffer,
        )
        return readout, after

    def _grid(self, steps: int, state: Tensors) -> SlidingGrid | FixedGrid:
        layout = self.config.stride, self.count, steps
        if not self.fixed:
            return SlidingGrid(*layout)
        return FixedGrid(*layout, (state["phase"][0] + self.ahead) % self.config.stride)

    def _gate(self, h: Tensor) -> Tensor:
        with torch.autocast(h.device.type, enabled=False):
            return linear(wide(h), self.gate.weight)


def _at_their_lags(weights: Tensor, grid: Grid, farthest: int) -> Tensor:
    """(T, B, m) -> (T, B, farthest), where every lag has a column."""
    columns = (farthest - grid.lags()).to(weights.device).expand_as(weights)
    return weights.new_zeros(*weights.shape[:2], farthest).scatter(-1, columns, weights)
