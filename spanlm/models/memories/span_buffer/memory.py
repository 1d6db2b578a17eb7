"""The span-based neural buffer (Li et al., 2020).

    s_i     = h_i − h_{i−L+1}                                                     a span of L steps
    C_t     = [s_{t−1−(m−1)L} … s_{t−1−L}, s_{t−1}],  m = B / L                   (4)
    γ_{t,i} = v · tanh(W_h h_t + W_s s_i)                                         (7)
    α_t     = softmax(γ_t),  ξ_t = C_tᵀ α_t                                       (6, 5)
    g_t     = W_g h_t                                                             (10)

The head predicts from h_t and from ξ_t with the same weights, and g_t mixes the predictions: see `mixture`. Choices
where the paper is unclear: Eq. 7 has no tanh, but without it the attention would not depend on h_t. The distances in
Eq. 4 differ at its ends, so spans are counted from the newest state before t. h_t has read the word of its step and
belongs to no span of step t. But C_t is also "the prefix for word x_t", which h_{t−1} predicts, so that the newest span
ends with the state that predicts: `newest=current` is as printed, too. A span needs both its ends in the stream;
without any span p̃ = p. States are stored without dropout: differences between states under different masks mean
nothing. The mask of a segment acts on ξ_t, and on h_t as query, in the gate and in the prediction. There are no biases
but the head's, which p and q share. Gradients end where a segment begins, as for every memory.

By Eq. 8, q is predicted from ξ_t alone, so it knows the past only through the spans read. Our variant `reads=merge`
predicts it from tanh(W [h_t; ξ_t]), both under the mask of the segment; W is (d, 2d), d as wide as h.

The attention is over every L-th slot of the past. Steps of one phase (t mod L) look only at slots of one phase, at m of
them; the window moves by one slot from one of these steps to the next. With the phases side by side, as L · B streams
of T / L steps, this is the plain window of m slots of `spanlm.models.ops.attention`. So the only tensors of
(T, B, m, D) are the tanh activations for the gradients, at most `KEPT_ELEMENTS` (128 MB; larger ones are computed
again), and a segment shorter than L touches only the slots of its phases. A grid arranges T steps as F phases of Q
steps, and the slots as m + Q per phase; step q looks at the slots q … q + m − 1. The last slot is never read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from spanlm.errors import require
from spanlm.models.interfaces import Attention, Init, Memory, MemoryConfig, Readout, Tensors
from spanlm.models.memories.span_buffer.mixture import GateConfig, RewardConfig, SpanMixture
from spanlm.models.ops.attention import additive_scores, band_sum, cleared, masked_softmax, with_steps
from spanlm.models.ops.dropout import dropout_mask
from spanlm.models.ops.precision import no_autocast, wide
from spanlm.options import RATE, at_least, option, options

Newest = Literal["before", "current"]
Reads = Literal["spans", "merge"]
_SEEN = {"spans": "ξ_t", "merge": "tanh(W [h_t; ξ_t])"}


@options()
class SpanBufferConfig(MemoryConfig):
    """Attention over spans of the past and a gate that shares the prediction with it (Li et al., 2020)."""

    kind: Literal["span_buffer"] = "span_buffer"
    paper: ClassVar[str] = "Li et al., 2020"
    drops_output: ClassVar[bool] = True
    mixes: ClassVar[bool] = True
    buffer_size: int = option(
        "B, how many steps back the buffer reaches; it holds B / L spans", default=2048, limit=at_least(1)
    )
    span_length: int = option("L; a span is h_i − h_{i−L+1}", default=8)
    words: bool = option(
        'attend to the B outputs themselves instead of spans (the paper\'s "w/o RNN-minus"); span_length is then '
        "ignored",
        default=False,
    )
    newest: Newest = option(
        "the last step at which a span for step t may end: before (t − 1, Eq. 4) or current (t, so that the reading "
        "can contain h_t: the paper's prefix C_t for the predicted word x_t)",
        default="before",
    )
    reads: Reads = option(
        "input of q: spans (ξ_t, as printed) or, a variant of ours, merge (tanh(W [h_t; ξ_t]), which adds 2 d² "
        "parameters)",
        default="spans",
    )
    dropout: float = option(
        "dropout on the reading and on h_t in query, gate and head, with one mask for a segment; it replaces "
        "model.output_dropout",
        default=0.4,
        limit=RATE,
    )
    gate: GateConfig = option("temperatures of the gate", default_factory=GateConfig)
    reward: RewardConfig = option("reward of the gate beside the likelihood", default_factory=RewardConfig)

    def __post_init__(self) -> None:
        if self.words:
            return
        length, size = self.span_length, self.buffer_size
        limit = "at least 2: h_i − h_i is zero. Use model.memory.words=true for the outputs themselves"
        require(length >= 2, "model.memory.span_length", length, limit)
        limit = f"at least model.memory.span_length={length}, to hold a span. Use {length} or more, or a smaller "
        require(size >= length, "model.memory.buffer_size", size, f"{limit}span_length")
        below = size // length * length
        limit = f"a multiple of model.memory.span_length={length}. Use {below} or {below + length}."
        require(size == below, "model.memory.buffer_size", size, limit)

    @property
    def stride(self) -> int:
        return 1 if self.words else self.span_length

    @property
    def slots(self) -> int:
        """m, how many spans there are to look at."""
        return self.buffer_size // self.stride

    def nearest(self, slots: int) -> Self:
        return replace(self, buffer_size=slots * self.stride)

    @property
    def reach(self) -> int:
        """Steps between the two ends of a span; 0 for single outputs."""
        return self.stride - 1

    @property
    def nearest_lag(self) -> int:
        """How many steps back the newest span ends."""
        return 1 if self.newest == "before" else 0

    def at_temperature(self, temperature: float) -> SpanBufferConfig:
        return replace(self, gate=replace(self.gate, evaluation_temperature=temperature))

    @property
    def seen(self) -> str:
        """The input of q's prediction, in symbols."""
        return _SEEN[self.reads]

    @property
    def mixing(self) -> str:
        return f"p̃ = λ̂ q({self.seen}) + (1 − λ̂) p(h_t)   (9),  each of them  "

    @property
    def equation(self) -> str:
        span = "s_i = h_i" if self.words else "s_i = h_i − h_{i−L+1}"
        read = "α_t = softmax(v · tanh(W_h h_t + W_s s_i)),  ξ_t = Σ_i α_{t,i} s_i"
        return f"{span},  {read},  g_t = W_g h_t   (5–7, 10)"

    @property
    def description(self) -> str:
        held = "words" if self.words else f"spans of {self.span_length}"
        seen = "" if self.reads == "spans" else f", q of {self.seen}"
        newest = "" if self.newest == "before" else ", newest at t"
        return f"span buffer, {held}, {self.buffer_size} steps back{newest}{seen}"

    def build(self, hidden_size: int, vocabulary_size: int, init: Init) -> SpanBufferMemory:
        return SpanBufferMemory(self, hidden_size, init)


@dataclass(frozen=True)
class Grid:
    """The places of the spans of T steps in the states (P + T, B, H), of which P are carried.

    The newest span ends at the step before, the others 1, 2, … m − 1 times L before that.
    """

    stride: int  # L
    count: int  # m
    steps: int  # T
    reach: int  # distance between the two ends of a span

    @property
    def carried(self) -> int:
        """P, the number of states that the farthest span needs."""
        return (self.count - 1) * self.stride + self.reach + 1

    def spans(self, states: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
        """Compute a segment's spans: a state minus the one `reach` before it or, if that is 0, the state itself.

        Reads states (P + T, B, H), zero where not `filled` (P + T, B). Returns the spans (m + Q, F B, H), and
        (m + Q, F B) bool, where both ends are states of the stream.
        """
        slots = (self.count + -(-self.steps // self.stride)) * self.stride
        states, filled = (_padded(x, slots + self.reach) for x in (states, filled))
        first = self._cut(states[:slots])
        values = self._cut(states[self.reach : self.reach + slots]) - first if self.reach else first
        return values, self._cut(filled[:slots])

    def of_steps(self, x: Tensor) -> Tensor:
        """(T, B, ...) -> (Q, F B, ...): put the phases side by side."""
        x = _padded(x, -(-self.steps // self._phases) * self._phases)
        return torch.unflatten(x, 0, (-1, self._phases)).flatten(1, 2)

    def in_steps(self, x: Tensor) -> Tensor:
        """(Q, F B, ...) -> (T, B, ...): undo `of_steps`."""
        return torch.unflatten(x, 1, (self._phases, -1)).flatten(0, 1)[: self.steps]

    def _cut(self, slots: Tensor) -> Tensor:
        """Take every L-th slot, for each phase that has a step; if T >= L this copies nothing."""
        return torch.unflatten(slots, 0, (-1, self.stride))[:, : self._phases].flatten(1, 2)

    @property
    def _phases(self) -> int:
        return min(self.steps, self.stride)


def _padded(x: Tensor, length: int) -> Tensor:
    return pad(x, (0, 0) * (x.dim() - 1) + (0, length - len(x))) if len(x) < length else x


def span_attention(
    query: Tensor, keys: Tensor, values: Tensor, weight: Tensor, filled: Tensor, grid: Grid
) -> tuple[Tensor, Tensor, Tensor]:
    """Attend over the m spans that the grid gives each step.

        α_t = softmax_j(w · tanh(key_j + query_t)),    r_t = Σ_j α_{t,j} value_j

    query (T, B, D) and keys (m + Q, F B, D) are projected; values and `filled` come from `Grid.spans`; w is (D,).

    Returns:
        In float32 or float64 the reads (T, B, H), zero without a span, and the weights (T, B, m), oldest first; and
        (T, B) bool, where any span exists.
    """
    may_read = filled.unfold(0, grid.count, 1)[:-1]
    with no_autocast(keys.device):
        scores = additive_scores(grid.of_steps(query), keys, weight, grid.count)
        weights = masked_softmax(scores, may_read)
        read = band_sum(weights, values.to(weights.dtype)[:-1])
    return grid.in_steps(read), grid.in_steps(weights), grid.in_steps(may_read[..., -1])


class SpanBufferMemory(Memory):
    """h (T, B, H) -> features h (T, B, H), attention (T, B, m), a mixture with gate and what q sees (T, B, H).

    State: the last outputs as `states` (P, B, H) and which of them are `filled` (P, B). States are projected again in
    every segment, since training and dynamic evaluation change the weights between segments.
    """

    def __init__(self, config: SpanBufferConfig, hidden_size: int, init: Init) -> None:
        super().__init__()
        self.readout_size: int = hidden_size
        self.config: SpanBufferConfig = config
        self.gate_temperature: float = config.gate.evaluation_temperature
        # if spans may end at the current step, they lie one step later, and one state less is carried
        self.carried: int = self._grid(1).carried - (1 - config.nearest_lag)
        self.span_key: nn.Linear = nn.Linear(hidden_size, hidden_size, bias=False)  # W_s
        self.query: nn.Linear = nn.Linear(hidden_size, hidden_size, bias=False)  # W_h
        self.score: nn.Parameter = nn.Parameter(torch.empty(hidden_size))  # v
        self.gate: nn.Linear = nn.Linear(hidden_size, 2, bias=False)  # W_g
        merges, size = config.reads == "merge", hidden_size
        self.read: nn.Linear | None = nn.Linear(2 * size, size, bias=False) if merges else None  # W
        init.start_all(self)

    def init_state(self, batch_size: int) -> Tensors:
        states = self.score.new_zeros(self.carried, batch_size, self.readout_size)
        return {"states": states, "filled": torch.zeros(states.shape[:2], dtype=torch.bool, device=states.device)}

    def equalise(self) -> None:
        """Set all scores to zero; the gate stays."""
        nn.init.zeros_(self.score)

    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        config = self.config
        mask = dropout_mask(h.shape[1:], config.dropout, h, 0) if self.training and config.dropout else None
        asking = h if mask is None else (h * mask).to(h.dtype)
        states = torch.cat([cleared(state["states"], state["filled"]).to(h.dtype), h])
        filled, grid = with_steps(state["filled"], len(h)), self._grid(len(h))
        values, span_filled = grid.spans(wide(states), filled)
        keys = self.span_key(values)
        read, weights, any_span = span_attention(self.query(asking), keys, values, self.score, span_filled, grid)
        read = read if mask is None else read * mask
        with no_autocast(h.device):
            gate = linear(wide(asking), self.gate.weight)
        seen = read
        if self.read is not None:
            seen = torch.tanh(self.read(torch.cat([asking.to(read.dtype), read], -1)))
        mixture = SpanMixture(seen, gate, any_span, config.gate, config.reward, self.training)
        attention = Attention(weights, config.nearest_lag, config.stride, config.reach)
        after = {"states": states[len(h) :], "filled": filled[len(h) :]}
        return Readout(asking, attention, mixture), after

    def _grid(self, steps: int) -> Grid:
        return Grid(self.config.stride, self.config.slots, steps, self.config.reach)
