"""Additive attention over every L-th slot of the past.

Slots that stand L apart never meet those between them: of T steps, those of one phase (t mod L) look at slots of one
phase alone, at m of them, and the next of these steps at one newer. Side by side, as L · B streams of T / L steps, they
are the plain window of m slots of `window_attention`. So nothing of (T, B, m, D) is ever made but the activations of
tanh for the gradients, and these only up to `KEPT_ELEMENTS` (128 MB; larger ones are made again), and a segment shorter
than L touches the slots of its own phases alone.

A grid lays out T steps as F streams of Q steps, and what they look at as m + Q slots of each stream; step q looks at
the slots q … q + m − 1. The last slot is never read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from spanlm.models.ops.dot_window_attention import band_sum
from spanlm.models.ops.precision import wide
from spanlm.models.ops.window_attention import additive_scores, masked_softmax


class Grid(Protocol):
    """Where the spans of T steps lie in the states (P + T, B, H), of which P were carried."""

    @property
    def count(self) -> int:
        """How many spans a step looks at: m."""

    def lengthened(self, x: Tensor, offset: int) -> Tensor:
        """Make (P + T, B, ...) long enough for `at`."""

    def at(self, x: Tensor, offset: int) -> Tensor:
        """(P + T, B, ...) -> (m + Q, ·, ...), what stands `offset` after the first state of each slot's span."""

    def to_streams(self, slots: Tensor) -> Tensor:
        """(m + Q, ·, ...) -> (m + Q, F, ...), what `at` gave for every stream."""

    def of_steps(self, x: Tensor) -> Tensor:
        """(T, B, ...) -> (Q, F, ...)."""

    def in_steps(self, x: Tensor) -> Tensor:
        """(Q, F, ...) -> (T, B, ...): undo `of_steps`."""

    def lags(self) -> Tensor:
        """How many steps before each step its spans end, oldest first: (m,), or (T, B, m) where they differ."""


@dataclass(frozen=True)
class SlidingGrid:
    """The newest span ends at the step before, the others 1, 2, … m − 1 times L before that.

    Attributes:
        stride: L.
        count: m.
        steps: T.
    """

    stride: int
    count: int
    steps: int

    @staticmethod
    def carried(stride: int, count: int, offset: int) -> int:
        """P, how many states the farthest span asks for, whose ends are `offset` apart."""
        return (count - 1) * stride + offset + 1

    def lengthened(self, x: Tensor, offset: int) -> Tensor:
        """Put zeros behind the states, up to a multiple of L."""
        slots = (self.count + _blocks(self.steps, self.stride)) * self.stride
        return _padded(x, slots + offset)

    def at(self, x: Tensor, offset: int) -> Tensor:
        """Cut out; where T >= L this copies nothing."""
        slots = (self.count + _blocks(self.steps, self.stride)) * self.stride
        return torch.unflatten(x[offset : offset + slots], 0, (-1, self.stride))[:, : self._phases].flatten(1, 2)

    def to_streams(self, slots: Tensor) -> Tensor:
        """Return them: each phase has slots of its own."""
        return slots

    def of_steps(self, x: Tensor) -> Tensor:
        """Put the phases side by side."""
        x = _padded(x, _blocks(self.steps, self._phases) * self._phases)
        return torch.unflatten(x, 0, (-1, self._phases)).flatten(1, 2)

    def in_steps(self, x: Tensor) -> Tensor:
        """Put the phases in a row."""
        return torch.unflatten(x, 1, (self._phases, -1)).flatten(0, 1)[: self.steps]

    def lags(self) -> Tensor:
        """1 + (m − 1) L … 1 + L, 1."""
        return 1 + self.stride * torch.arange(self.count - 1, -1, -1)

    @property
    def _phases(self) -> int:
        return min(self.steps, self.stride)


@dataclass(frozen=True)
class FixedGrid:
    """Spans end where blocks of L steps end, counted from each stream's start; m spans before the current block.

    All steps of a block look at the same spans, so there are L times fewer of them to project.

    Attributes:
        stride: L.
        count: m.
        steps: T.
        phase: (B,) int64, how many steps of its block each stream has read before, 0 … L − 1.
    """

    stride: int
    count: int
    steps: int
    phase: Tensor

    @staticmethod
    def carried(stride: int, count: int, offset: int) -> int:
        """P: the newest span may have ended L − 1 steps before the one that the sliding grid has."""
        return SlidingGrid.carried(stride, count, offset) + stride - 1

    def lengthened(self, x: Tensor, offset: int) -> Tensor:
        """Return it: slots that are never read may be any."""
        return x

    def at(self, x: Tensor, offset: int) -> Tensor:
        """Take (m + Q, B, ...)."""
        first = self._count_up(self.count + self._rows) * self.stride + self.stride - 1 - self.phase
        return _taken(x, (first + offset).clamp(max=len(x) - 1))

    def to_streams(self, slots: Tensor) -> Tensor:
        """Repeat them for every phase."""
        return slots.unsqueeze(1).expand(-1, self.stride, *slots.shape[1:]).flatten(1, 2)

    def of_steps(self, x: Tensor) -> Tensor:
        """Shift every stream to the start of its block, then put the phases side by side."""
        step = (self._count_up(self._rows * self.stride) - self.phase).clamp(0, self.steps - 1)
        return torch.unflatten(_taken(x, step), 0, (-1, self.stride)).flatten(1, 2)

    def in_steps(self, x: Tensor) -> Tensor:
        """Put the phases in a row and shift them back."""
        aligned = torch.unflatten(x, 1, (self.stride, -1)).flatten(0, 1)
        return _taken(aligned, self._count_up(self.steps) + self.phase)

    def lags(self) -> Tensor:
        """(T, B, m): those of the sliding grid and the steps that the block has before each step."""
        newest = (self._count_up(self.steps) + self.phase) % self.stride + 1
        return newest.unsqueeze(-1) + self.stride * self._count_up(self.count).flatten().flip(0)

    @property
    def _rows(self) -> int:
        """Q."""
        return _blocks(self.steps + self.stride - 1, self.stride)

    def _count_up(self, count: int) -> Tensor:
        return torch.arange(count, device=self.phase.device).unsqueeze(1)


def _blocks(steps: int, size: int) -> int:
    return -(-steps // size)


def _padded(x: Tensor, length: int) -> Tensor:
    return pad(x, (0, 0) * (x.dim() - 1) + (0, length - len(x))) if len(x) < length else x


def _taken(x: Tensor, index: Tensor) -> Tensor:
    """x[index[i, b], b] for x (N, B, ...) and index (I, B)."""
    return x.take_along_dim(index.view(*index.shape, *[1] * (x.dim() - 2)), 0)


def spans(
    states: Tensor, filled: Tensor, offset: int, grid: Grid, *, begins_there: bool = True
) -> tuple[Tensor, Tensor]:
    """Work out the spans that a segment looks at: a state less the one `offset` before it, or for 0 the state itself.

    Args:
        states: (P + T, B, H), zero where nothing was.
        filled: (P + T, B) bool, which of them there are.
        offset: how far the two ends of a span are apart.
        grid: where they lie.
        begins_there: a span must begin within its stream; if not, its last state is enough.

    Returns:
        (m + Q, ·, H), and (m + Q, ·) bool: the ends that must be are states of the stream.
    """
    states, filled = grid.lengthened(states, offset), grid.lengthened(filled, offset)
    first = grid.at(states, 0)
    return grid.at(states, offset) - first if offset else first, grid.at(filled, 0 if begins_there else offset)


def span_attention(
    query: Tensor | None, keys: Tensor, values: Tensor, weight: Tensor, filled: Tensor, grid: Grid
) -> tuple[Tensor, Tensor, Tensor]:
    """Attend over the m spans that the grid gives each step.

        α_t = softmax_j(w · tanh(key_j + query_t)),    r_t = Σ_j α_{t,j} value_j

    Computed in float32 (float64 for float64 input) whatever the autocast.

    Args:
        query: (T, B, D), already projected; None: the scores are w · key_j.
        keys: (m + Q, ·, D), the spans, projected.
        values: (m + Q, ·, H), as `spans` gave them.
        weight: (D,), the vector w.
        filled: (m + Q, ·), as `spans` gave it.
        grid: where they lie.

    Returns:
        The reads (T, B, H), zero where there is no span; the weights (T, B, m), oldest first; and (T, B) bool, where
        there is a span.
    """
    may_read = grid.to_streams(filled).unfold(0, grid.count, 1)[:-1]
    with torch.autocast(keys.device.type, enabled=False):
        if query is None:
            scores = grid.to_streams(wide(keys) @ wide(weight)).unfold(0, grid.count, 1)[:-1]
        else:
            scores = additive_scores(grid.of_steps(query), grid.to_streams(keys), weight, grid.count)
        weights = masked_softmax(scores, may_read)
        read = band_sum(weights, grid.to_streams(values.to(weights.dtype))[:-1])
    return grid.in_steps(read), grid.in_steps(weights), grid.in_steps(may_read[..., -1])
