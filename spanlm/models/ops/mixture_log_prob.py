"""log p(target) of a mixture of linear softmaxes over one matrix, never holding more than a chunk of the logits.

    z_{n,k} = W x_{n,k} + b,    log p_n = log Σ_k π_{n,k} softmax(z_{n,k})[y_n]

Its gradients are those of the K linear softmaxes (`linear_softmax`), each with the weight

    r_{n,k} = π_{n,k} softmax(z_{n,k})[y_n] / p_n,    ∂ log p_n / ∂ log π_{n,k} = r_{n,k}

the share of its own in the target's probability. Softmaxes that are too many to keep would have to be made again in the
backward pass, a third more products. But the loss of a segment is a mean over its words, so one number g comes back to
all of them: the gradients for g = 1 are worked out in the forward pass, while a chunk's softmaxes are there, and the
backward pass multiplies. What W and b get from words that another number comes back to is set right by making the
softmaxes of these words again. That is dear where they are many, so the caller says what to expect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from spanlm.models.ops.linear_log_prob import linear_log_prob
from spanlm.models.ops.linear_softmax import LinearGradients, LinearSoftmax, chunks
from spanlm.models.ops.precision import learns, product_dtype, wide_dtype, without_autocast

CHUNK_ELEMENTS = 2**25
"""Logits held at a time: 128 MB of float32."""


class _MixtureLogProb(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        log_prior: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        margin: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        experts, linear = x.shape[1], LinearSoftmax(weight, bias, dtype)
        parts = chunks(len(x), experts * len(weight), CHUNK_ELEMENTS)
        total = LinearGradients(linear)

        def of_rows(rows: slice) -> tuple[Tensor, ...]:
            """Return log p, r, ∂/∂x and ∂/∂m; a chunk's softmaxes are gone before the next one's are made."""
            seen, words = x[rows].flatten(0, 1).to(dtype), targets[rows].repeat_interleave(experts)
            each, softmax = linear.log_p(seen, words, margin[rows].flatten(), keep=True)
            assert softmax is not None
            joint = each.view(-1, experts) + log_prior[rows]
            log_p = joint.logsumexp(1)
            share = (joint - log_p.unsqueeze(1)).exp()
            missed = -torch.expm1(each)  # e = 1 - p
            grad_x = total.add(seen, words, missed, softmax, share.flatten())
            return log_p, share, grad_x.view(*share.shape, -1), -missed.view_as(share) * share

        log_p, share, grad_x, grad_margin = map(torch.cat, zip(*map(of_rows, parts), strict=True))
        ctx.dtype = dtype
        ctx.save_for_backward(
            x, log_prior, weight, bias, targets, margin, share, grad_x, grad_margin, total.weight, total.bias
        )
        return log_p

    @staticmethod
    @torch.autograd.function.once_differentiable
    @without_autocast
    def backward(  # type: ignore[override]  # the decorator hides the signature
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, None, Tensor, None]:
        (grad,) = grads
        *inputs, share, grad_x, grad_margin, grad_weight, grad_bias = ctx.saved_tensors
        usual, column = grad.median(), grad.unsqueeze(1)
        others = (grad != usual).nonzero().squeeze(1)
        of_weight = grad_weight * usual
        of_bias = None if grad_bias is None else grad_bias * usual
        if len(others):
            more, *more_bias = _of_linear(inputs, others, grad[others] - usual, ctx.dtype)
            of_weight += more
            if of_bias is not None:
                of_bias += more_bias[0]
        return grad_x * column.unsqueeze(2), share * column, of_weight, of_bias, None, grad_margin * column, None


def _of_linear(inputs: list[Tensor], rows: Tensor, grad: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return the gradients of W and, if there is one, b that some rows give."""
    x, log_prior, weight, bias, targets, margin = inputs
    leaves = [t.detach().requires_grad_() for t in (weight, bias) if t is not None]
    of_rows = targets[rows], margin[rows], dtype
    with torch.enable_grad():
        log_p = _chunk_by_chunk(x[rows], log_prior[rows], leaves[0], leaves[1] if bias is not None else None, *of_rows)
    return torch.autograd.grad(log_p, leaves, grad)


def _chunk_by_chunk(
    x: Tensor,
    log_prior: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    margin: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """Make the softmaxes again in the backward pass."""
    words = targets.repeat_interleave(x.shape[1])
    each = linear_log_prob(x.flatten(0, 1), weight, bias, words, margin.flatten(), dtype)
    return (each.view_as(log_prior) + log_prior).logsumexp(1)


_apply: Callable[..., Tensor] = _MixtureLogProb.apply  # the library leaves it untyped


def mixture_log_prob(
    x: Tensor,
    log_prior: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    margin: Tensor | None = None,
    *,
    even: bool,
) -> Tensor:
    """Log Σ_k π_k softmax(W x_k + b − m_k at the target)[target].

    Under autocast the products run in the autocast type; logarithms and the result are float32.

    Args:
        x: (N, K, D).
        log_prior: log π (N, K), as wide as the result.
        weight: W (V, D).
        bias: b (V,) or None.
        targets: (N,) int64.
        margin: m (N, K), as wide as the result; None: 0.
        even: expect one gradient for (nearly) all rows. Whatever comes, it gives the same; this is about speed.

    Returns:
        (N,), float32 (float64 for float64 input).
    """
    dtype = product_dtype(weight)
    if margin is None:
        margin = x.new_zeros(log_prior.shape, dtype=wide_dtype(dtype))
    inputs = x, log_prior, weight, bias, targets, margin
    with torch.autocast(x.device.type, enabled=False):
        return (_apply if even and learns(inputs) else _chunk_by_chunk)(*inputs, dtype)
