"""Additive attention over a sliding window of the past.

The window slides by one step per query, so lag j is the same slice of the memory, shifted: a loop over the L
lags touches only contiguous (T, B, D) slices that stay in cache. Where gradients are needed the L slices of tanh are
kept for them; elsewhere one slice is used over and over. Gradients are written out for the same reason.

A memory of T queries with window L is stored as L + T slots: L carried from before, then the T of this
segment. Query t may look at slots t ... t+L-1; lag j (1 = the step before) is slot t + L - j, column L - j.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from spanlm.models.ops.precision import without_autocast


class _AdditiveScores(torch.autograd.Function):
    """score[t, :, L-j] = w · tanh(keys[t+L-j] + query[t])."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
        steps, window = query.shape[0], keys.shape[0] - query.shape[0]
        kept = window if any(ctx.needs_input_grad) else 1
        activations = query.new_empty((kept, *query.shape))
        scores = query.new_empty((window, *query.shape[:2]))
        for slot in range(window):
            m = torch.add(keys[slot : slot + steps], query, out=activations[slot % kept]).tanh_()
            torch.matmul(m, weight, out=scores[slot])
        ctx.save_for_backward(activations, weight)
        return scores.permute(1, 2, 0).contiguous()

    @staticmethod
    @without_autocast
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        activations, weight = ctx.saved_tensors
        window, steps, batch, size = activations.shape
        grad_scores = grads[0].permute(2, 0, 1).contiguous()
        grad_query = torch.zeros_like(activations[0])
        grad_keys = activations.new_zeros((window + steps, batch, size))
        grad_weight = torch.zeros_like(weight)
        for slot in range(window):
            m, g = activations[slot], grad_scores[slot]
            grad_weight += g.reshape(-1) @ m.reshape(-1, size)
            inner = torch.addcmul(weight, m * weight, m, value=-1)  # w (1 - tanh²)
            inner *= g.unsqueeze(-1)
            grad_query += inner
            grad_keys[slot : slot + steps] += inner
        return grad_query, grad_keys, grad_weight


class _WindowSum(torch.autograd.Function):
    """read[t] = Σ_j weights[t, :, L-j] values[t+L-j]."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor) -> Tensor:
        steps, window = weights.shape[0], weights.shape[2]
        read = values.new_zeros((steps, *values.shape[1:]))
        for slot in range(window):
            read.addcmul_(values[slot : slot + steps], weights[..., slot, None])
        ctx.save_for_backward(weights, values)
        return read

    @staticmethod
    @without_autocast
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        weights, values = ctx.saved_tensors
        steps, window = weights.shape[0], weights.shape[2]
        grad = grads[0].contiguous()
        grad_weights = torch.empty_like(weights)
        grad_values = torch.zeros_like(values)
        for slot in range(window):
            torch.sum(grad * values[slot : slot + steps], dim=-1, out=grad_weights[..., slot])
            grad_values[slot : slot + steps].addcmul_(grad, weights[..., slot, None])
        return grad_weights, grad_values


_additive_scores: Callable[..., Tensor] = _AdditiveScores.apply  # the library leaves them untyped
_window_sum: Callable[..., Tensor] = _WindowSum.apply


def window_filled(filled: Tensor, steps: int, window: int) -> Tensor:
    """Say which slots each query may read.

    Args:
        filled: (L, B) bool, which carried slots hold something; (L - 1, B) where lag 0 is in the window.
        steps: T, the queries of this segment; their own slots are always filled.
        window: L.

    Returns:
        (T, B, L) bool.
    """
    slots = torch.cat([filled, filled.new_ones((steps, filled.shape[1]))])
    return slots.unfold(0, window, 1)[:steps]


def masked_softmax(scores: Tensor, filled: Tensor) -> Tensor:
    """Softmax over the last dimension of the `filled` entries; a row with none is all zeros, not uniform."""
    masked = scores.masked_fill(~filled, torch.finfo(scores.dtype).min)
    return torch.where(filled, masked.softmax(-1), torch.zeros((), dtype=scores.dtype, device=scores.device))


def additive_window_attention(
    query: Tensor, keys: Tensor, values: Tensor, weight: Tensor, filled: Tensor
) -> tuple[Tensor, Tensor]:
    """Attend over the window before each step.

        α_t = softmax_j(w · tanh(key_{t-j} + query_t)),  j = 1 … L,    r_t = Σ_j α_{t,j} value_{t-j}

    Computed in float32 (float64 for float64 input) whatever the autocast.

    Args:
        query: (T, B, D), already projected.
        keys: (L + T, B, D), already projected; the first L are carried, the last is never read.
        values: (L + T, B, D').
        weight: (D,), the vector w.
        filled: (L, B) bool, which carried slots hold something. An empty slot gets weight 0, but what stands in
            it must be finite: callers clear it before they project it.

    Returns:
        The reads (T, B, D') and the weights (T, B, L), column j being lag L - j.
    """
    # reduced precision would quantise the weights; the products around this op carry the cost
    query, keys, values, weight = (x.float() if x.dtype.itemsize < 4 else x for x in (query, keys, values, weight))
    may_read = window_filled(filled, query.shape[0], filled.shape[0])
    scores = _additive_scores(query, keys, weight)
    weights = masked_softmax(scores, may_read)
    return _window_sum(weights, values), weights
