"""Additive attention over every L-th slot of the past.

Steps of one phase (t mod L) look only at slots of one phase, at m of them; the window moves by one slot from one of
these steps to the next. With the phases side by side, as L · B streams of T / L steps, this is the plain window of m
slots of `spanlm.models.ops.attention`. So the only tensors of (T, B, m, D) are the tanh activations for the gradients,
at most `KEPT_ELEMENTS` (128 MB; larger ones are computed again), and a segment shorter than L touches only the slots of
its phases.

A grid arranges T steps as F phases of Q steps, and the slots as m + Q per phase; step q looks at the slots
q … q + m − 1. The last slot is never read.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from spanlm.models.ops.attention import additive_scores, band_sum, masked_softmax
from spanlm.models.ops.precision import no_autocast


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
