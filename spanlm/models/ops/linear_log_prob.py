"""log p(target) of a linear softmax, never holding more than a chunk of the logits.

    z_n = W x_n + b,    log p_n = z_n[y_n] − log Σ_v exp z_n[v]

A margin m_n may be taken off z_n[y_n] first: ∂ log p_n / ∂m_n = p_n − 1. The other gradients are in `linear_softmax`.
Where all logits fit in one chunk, what their gradient needs is kept for the backward pass; else each chunk is made
again there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from spanlm.models.ops.linear_softmax import LinearGradients, LinearSoftmax, chunks
from spanlm.models.ops.precision import learns, product_dtype, wide_dtype, without_autocast

CHUNK_ELEMENTS = 2**26
"""Logits held at a time (256 MB of float32): whole batches of small models, a bound for large ones."""


class _LinearLogProb(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        margin: Tensor,
        dtype: torch.dtype,
        learning: bool,
    ) -> Tensor:
        inputs, linear = x.to(dtype), LinearSoftmax(weight, bias, dtype)
        parts = list(chunks(len(x), len(weight), CHUNK_ELEMENTS))
        keep = learning and len(parts) == 1
        found = [linear.log_p(inputs[rows], targets[rows], margin[rows], keep=keep) for rows in parts]
        log_p = torch.cat([of_rows for of_rows, _ in found])
        ctx.save_for_backward(inputs, linear.matrix, linear.bias, targets, margin, log_p, found[0][1])
        return log_p

    @staticmethod
    @torch.autograd.function.once_differentiable
    @without_autocast
    def backward(  # type: ignore[override]  # the decorator hides the signature
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, None, Tensor, None, None]:
        (grad,) = grads
        inputs, matrix, bias, targets, margin, log_p, kept = ctx.saved_tensors
        linear, missed = LinearSoftmax(matrix, bias, matrix.dtype), -torch.expm1(log_p)
        total = LinearGradients(linear)

        def of_rows(rows: slice) -> Tensor:
            """Return ∂/∂x; a chunk's softmaxes are gone before the next one's are made."""
            softmax = kept
            if softmax is None:
                _, softmax = linear.log_p(inputs[rows], targets[rows], margin[rows], keep=True)
            return total.add(inputs[rows], targets[rows], missed[rows], softmax, grad[rows])

        grad_x = torch.cat([of_rows(rows) for rows in chunks(len(inputs), len(matrix), CHUNK_ELEMENTS)])
        return grad_x, total.weight, total.bias, None, -missed * grad, None, None


_apply: Callable[..., Tensor] = _LinearLogProb.apply  # the library leaves it untyped


def linear_log_prob(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    margin: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Log softmax(W x + b − m at the target)[target].

    Log-sum-exp and the result are float32 whatever the products are.

    Args:
        x: (N, D).
        weight: W (V, D).
        bias: b (V,) or None.
        targets: (N,) int64.
        margin: m (N,), as wide as the result; None: 0.
        dtype: of the products; None: that of the autocast, else of W.

    Returns:
        (N,), float32 (float64 for float64 input).
    """
    dtype = dtype or product_dtype(weight)
    if margin is None:
        margin = x.new_zeros(len(x), dtype=wide_dtype(dtype))
    inputs = x, weight, bias, targets, margin
    with torch.autocast(x.device.type, enabled=False):
        log_p: Tensor = _apply(*inputs, dtype, learns(inputs))
    return log_p
