"""The span-based neural buffer (Li et al., 2020).

    s_i     = h_i − h_{i−L+1}                                                     a span of L steps
    C_t     = [s_{t−1−(m−1)L} … s_{t−1−L}, s_{t−1}],  m = B / L                   (4)
    γ_{t,i} = v · tanh(W_h h_t + W_s s_i)                                         (7)
    α_t     = softmax(γ_t),  ξ_t = C_tᵀ α_t                                       (6, 5)
    g_t     = W_g h_t                                                             (10)

The head predicts from h_t and from ξ_t, with the same weights, and both are mixed by g_t: see `mixture`. Where the
paper leaves a choice: its Eq. 7 has no tanh, and without it all scores of a step grow by the same W_h h_t, so that the
attention does not depend on it (`score`); its Eq. 4 has other distances at its ends than within, so spans are counted
from the newest state before t; h_t has read the word of its step and is no part of a span of step t, which `newest` can
change: the paper has h_t encode x_{1:t−1} and, in its Eq. 2 and 3, x_{1:t}. A span needs both its ends in the stream,
and where there is none p̃ = p. States are kept as the encoder gave them: those that met different dropout masks have no
meaningful difference. The mask of a segment is put on h_t where it asks, gates and predicts, and on ξ_t. There are no
biases. Gradients end where a segment begins, as for every memory.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from spanlm.models.dropout import dropout_mask
from spanlm.models.interfaces import Attention, Init, Memory, Readout
from spanlm.models.memories.slots import cleared, with_steps
from spanlm.models.memories.span_buffer.attention import Grid, span_attention
from spanlm.models.memories.span_buffer.config import SpanBufferConfig
from spanlm.models.memories.span_buffer.mixture import SpanMixture
from spanlm.models.ops.precision import wide
from spanlm.models.state import Tensors


class SpanBufferMemory(Memory):
    """h (T, B, H) -> features h (T, B, H), a mixture with ξ (T, B, H) and gate, attention (T, B, m).

    State: the last outputs as `states` (P, B, H) and which of them are `filled` (P, B). States are projected anew in
    every segment: the weights change between segments, and dynamic evaluation changes them, too.
    """

    def __init__(self, config: SpanBufferConfig, hidden_size: int, init: Init) -> None:
        super().__init__()
        self.readout_size, self.config = hidden_size, config
        self.gate_temperature = config.gate.evaluation_temperature
        # a step whose spans may end at itself looks at what the next one's end at before it
        self.carried = self._grid(1).carried - (1 - config.nearest_lag)
        size = hidden_size if config.attention_size is None else config.attention_size
        self.span_key = nn.Linear(hidden_size, size, bias=False)  # W_s
        self.query = None if config.score == "literal" else nn.Linear(hidden_size, size, bias=False)  # W_h
        self.score = nn.Parameter(torch.empty(size))  # v
        self.gate = nn.Linear(hidden_size, 2, bias=False)  # W_g
        init.start_all(self)

    def init_state(self, batch_size: int) -> Tensors:
        """No span."""
        states = self.score.new_zeros(self.carried, batch_size, self.readout_size)
        return {"states": states, "filled": torch.zeros(states.shape[:2], dtype=torch.bool, device=states.device)}

    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        """Look back from every step of h (T, B, H)."""
        config = self.config
        mask = dropout_mask(h.shape[1:], config.dropout, h) if self.training and config.dropout else None
        asking = h if mask is None else h * mask
        states = torch.cat([cleared(state["states"], state["filled"]).to(h.dtype), h])
        filled, grid = with_steps(state["filled"], len(h)), self._grid(len(h))
        values, there = grid.spans(wide(states), filled)
        query = None if self.query is None else self.query(asking)
        read, weights, any_span = span_attention(query, self.span_key(values), values, self.score, there, grid)
        read = read if mask is None else read * mask
        with torch.autocast(h.device.type, enabled=False):
            gate = linear(wide(asking), self.gate.weight)
        mixture = SpanMixture(read, gate, any_span, config.gate, config.reward, self.training)
        attention = Attention(weights, config.nearest_lag, config.stride, config.reach)
        after = {"states": states[len(h) :], "filled": filled[len(h) :]}
        return Readout(asking, attention, mixture), after

    def _grid(self, steps: int) -> Grid:
        return Grid(self.config.stride, self.config.count, steps, self.config.reach)
