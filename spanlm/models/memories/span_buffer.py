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
ends in the stream (`before_stream`), and where there is none p̃ = p. States are kept as the encoder gave them: those
that met different dropout masks have no meaningful difference (`kept`). The mask of a segment is put on h_t where it
asks, gates and predicts, and on ξ_t. There are no biases (`biases`); W_g starts as small as all weights do, so that λ
is near ½ (`gate_range`). The temperatures of training and of evaluation are two constants (`annealed_temperature`), and
what penalties of activations hold for is the encoder alone (`penalised`). Gradients end where a segment begins, as for
every memory.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from spanlm.models.dropout import dropout_mask
from spanlm.models.interfaces import Init, Memory, Readout
from spanlm.models.memories.slots import cleared, with_steps
from spanlm.models.memories.span_buffer_config import SpanBufferConfig
from spanlm.models.ops.precision import wide
from spanlm.models.ops.span_attention import FixedGrid, Grid, SlidingGrid, span_attention, spans
from spanlm.models.span_mixture import Buffered
from spanlm.models.state import Tensors


class SpanBufferMemory(Memory):
    """h (T, B, H) -> features h (T, B, H), buffer with ξ (T, B, H) and gate, attention (T, B, m).

    State: the last outputs as `states` (P, B, H) and which of them are `filled` (P, B); with a fixed grid how many
    steps of its block each stream has read, `phase` (1, B). States are projected anew in every segment: the weights
    change between segments, and dynamic evaluation changes them, too.
    """

    def __init__(self, config: SpanBufferConfig, hidden_size: int, init: Init) -> None:
        super().__init__()
        self.readout_size, self.config, self.rule = hidden_size, config, config.rule
        self.fixed = config.grid == "fixed"
        self.count = config.buffer_size // config.stride
        # a step whose spans may end at itself looks at what the next one's end at before it
        self.ahead = 1 - config.nearest_lag
        grid = FixedGrid if self.fixed else SlidingGrid
        self.carried = grid.carried(config.stride, self.count, config.reach) - self.ahead
        size = hidden_size if config.attention_size is None else config.attention_size
        self.span_key = nn.Linear(hidden_size, size, bias=False)  # W_s
        # without the tanh a bias, too, adds the same to all scores
        self.query = None if config.score == "literal" else nn.Linear(hidden_size, size, bias=config.biases)  # W_h
        self.score = nn.Parameter(torch.empty(size))  # v
        self.gate = nn.Linear(hidden_size, 2, bias=config.biases)  # W_g
        init.start_all(self)
        if config.gate_range is not None:
            Init(config.gate_range, init.biases).start(self.gate.weight)

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
        values, there = spans(held, filled, self.config.reach, grid, begins_there=self._begins_there)
        query = None if self.query is None else self.query(asking)
        read, weights, any_span = span_attention(query, self.span_key(values), values, self.score, there, grid)
        unmasked, read = read, read * mask if raw and mask is not None else read
        policy = self._gate(asking.detach()) if self.config.reward_teaches == "gate" else None
        buffer = Buffered(read, self._gate(asking), any_span, self.rule, policy)
        after = {"states": states[len(h) :], "filled": filled[len(h) :]}
        if self.fixed:
            after["phase"] = (state["phase"] + len(h)) % self.config.stride
        attention = partial(_at_their_lags, weights, grid, self.config.buffer_size)
        readout = Readout(
            asking,
            attention,
            nearest_lag=self.config.nearest_lag,
            span=self.config.stride,
            reach=self.config.reach if self._begins_there else 0,
            fixed=self.fixed,
            buffer=buffer,
            penalised=(read, unmasked) if self.config.penalised else None,
        )
        return readout, after

    def begin_epoch(self, epochs: int) -> None:
        """Set T of training to what it is after so many epochs."""
        self.rule = replace(self.config.rule, training_temperature=self.config.temperature_after(epochs))

    @property
    def _begins_there(self) -> bool:
        return self.config.before_stream == "masked"

    def _grid(self, steps: int, state: Tensors) -> SlidingGrid | FixedGrid:
        layout = self.config.stride, self.count, steps
        if not self.fixed:
            return SlidingGrid(*layout)
        return FixedGrid(*layout, (state["phase"][0] + self.ahead) % self.config.stride)

    def _gate(self, h: Tensor) -> Tensor:
        with torch.autocast(h.device.type, enabled=False):
            return linear(wide(h), self.gate.weight, self.gate.bias)


def _at_their_lags(weights: Tensor, grid: Grid, farthest: int) -> Tensor:
    """(T, B, m) -> (T, B, farthest), where every lag has a column."""
    columns = (farthest - grid.lags()).to(weights.device).expand_as(weights)
    return weights.new_zeros(*weights.shape[:2], farthest).scatter(-1, columns, weights)
