"""log p(target) of a linear softmax, never holding more than a chunk of the logits.

    z_n = W x_n + b,    log p_n = z_n[y_n] − log Σ_v exp z_n[v]

With P the softmax but for a zero at each row's target, and e_n = 1 − p_n, the gradients are

    ∂/∂x_n = g_n (e_n W[y_n] − P_n W),    ∂/∂W = −Pᵀ(g ⊙ x) + Σ_n e_n g_n x_n at row y_n,    ∂/∂b likewise,

so P is written once over the logits and only read afterwards, where `linear` + `cross_entropy` fill three such
tensors; and since e_n is kept apart in float32, a confident word's small gradient survives a bfloat16 P.
Where all logits fit in one chunk, P is kept for the backward pass; else each chunk is made again there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from spanlm.models.ops.precision import without_autocast

CHUNK_ELEMENTS = 2**26
"""Logits held at a time (256 MB of float32): whole batches of small models, a bound for large ones."""

_BLOCK_ELEMENTS = 2**19
"""Logits a CPU normalises at a time: 2 MB of float32, so the passes of the softmax run in cache."""


def _chunks(rows: int, row_elements: int, limit: int) -> Iterator[slice]:
    size = max(1, limit // row_elements)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _normalise(logits: Tensor, targets: Tensor, keep_softmax: bool) -> Tensor:
    """Return log p(target) (N,); with `keep_softmax` P takes the place of the logits.

    One exponential an element: the largest probability is 1 / Σ_v exp(z[v] − max z), which gives the log-sum-exp.
    """
    log_p = logits.new_empty(len(targets), dtype=torch.promote_types(logits.dtype, torch.float32))
    limit = logits.numel() if logits.is_cuda else _BLOCK_ELEMENTS
    for rows in _chunks(len(logits), logits.shape[1], limit):
        block = logits[rows].to(log_p.dtype)
        softmax = block.softmax(1)
        target = targets[rows, None]
        log_p[rows] = block.gather(1, target).squeeze(1) - block.amax(1) + softmax.amax(1).log()
        if keep_softmax:
            logits[rows] = softmax.scatter_(1, target, 0)
    return log_p


class _LinearLogProb(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, dtype: torch.dtype
    ) -> Tensor:
        inputs, matrix = x.to(dtype), weight.to(dtype)
        offset = None if bias is None else bias.to(dtype)
        chunks = list(_chunks(len(x), len(weight), CHUNK_ELEMENTS))
        keep = len(chunks) == 1 and any(ctx.needs_input_grad)
        parts = []
        for rows in chunks:
            logits = linear(inputs[rows], matrix, offset)
            parts.append(_normalise(logits, targets[rows], keep))
        log_p = torch.cat(parts)
        ctx.save_for_backward(inputs, matrix, offset, targets, log_p, logits if keep else None)
        return log_p

    @staticmethod
    @torch.autograd.function.once_differentiable
    @without_autocast
    def backward(  # type: ignore[override]  # the decorator hides the signature
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        (grad,) = grads
        inputs, matrix, offset, targets, log_p, kept = ctx.saved_tensors
        wide = log_p.dtype
        scaled = inputs * grad.unsqueeze(1).to(inputs.dtype)
        missed = -torch.expm1(log_p)  # e = 1 - p
        grad_x = missed.unsqueeze(1) * matrix[targets].to(wide)
        grad_weight = torch.zeros(matrix.shape, dtype=wide, device=matrix.device)
        grad_bias = None if offset is None else grad_weight.new_zeros(len(offset))
        for rows in _chunks(len(inputs), len(matrix), CHUNK_ELEMENTS):
            softmax = kept
            if softmax is None:
                softmax = linear(inputs[rows], matrix, offset)
                _normalise(softmax, targets[rows], keep_softmax=True)
            grad_x[rows] -= softmax @ matrix
            grad_weight -= softmax.T @ scaled[rows]
            if grad_bias is not None:
                grad_bias -= grad[rows].to(softmax.dtype) @ softmax
        at_target = missed * grad
        grad_weight.index_add_(0, targets, at_target.unsqueeze(1) * inputs.to(wide))
        if grad_bias is not None:
            grad_bias.index_add_(0, targets, at_target)
        return grad_x.mul_(grad.unsqueeze(1)), grad_weight, grad_bias, None, None


_apply: Callable[..., Tensor] = _LinearLogProb.apply  # the library leaves it untyped


def linear_log_prob(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """Log softmax(W x + b)[target].

    Under autocast the products run in the autocast type; log-sum-exp and the result are float32.

    Args:
        x: (N, D).
        weight: W (V, D).
        bias: b (V,) or None.
        targets: (N,) int64.

    Returns:
        (N,), float32 (float64 for float64 input).
    """
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    with torch.autocast(device, enabled=False):
        log_p: Tensor = _apply(x, weight, bias, targets, dtype)
    return log_p
