"""log p(target) of linear softmaxes, and of a mixture of them, never holding more than a chunk of the logits.

    z_n = W x_n + b,    log p_n = z_n[y_n] − log Σ_v exp z_n[v]

With P the softmax but for a zero at each row's target y_n, and e_n = 1 − p_n, the gradients of Σ_n g_n log p_n are

    ∂/∂x_n = g_n (e_n W[y_n] − P_n W),    ∂/∂W = −Pᵀ(g ⊙ x) + Σ_n e_n g_n x_n at row y_n,    ∂/∂b likewise

so P is written once over the logits and only read afterwards, where `linear` + `cross_entropy` fill three such
tensors; and since e_n is kept apart in float32, a confident word's small gradient survives a bfloat16 P. A margin m_n
may be taken off z_n[y_n] first: ∂ log p_n / ∂m_n = p_n − 1. Where all logits fit in one chunk, what their gradient
needs is kept for the backward pass; else each chunk is made again there.

    z_{n,k} = W x_{n,k} + b,    log p_n = log Σ_k π_{n,k} softmax(z_{n,k})[y_n]

The gradients of a mixture are those of the K linear softmaxes, each with the weight

    r_{n,k} = π_{n,k} softmax(z_{n,k})[y_n] / p_n,    ∂ log p_n / ∂ log π_{n,k} = r_{n,k}

the share of its own in the target's probability. Softmaxes that are too many to keep would have to be made again in the
backward pass, a third more products. But the loss of a segment is a mean over its words, so one number g comes back to
all of them: the gradients for g = 1 are computed in the forward pass, while a chunk's softmaxes are there, and the
backward pass multiplies. What W and b get from words that another number comes back to is set right by making the
softmaxes of these words again. That is dear where they are many, so the caller says what to expect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from spanlm.models.ops.linear import crossed, product
from spanlm.models.ops.precision import learns, product_dtype, wide_dtype, without_autocast

_BLOCK_ELEMENTS = 2**19
"""Logits a CPU normalises at a time: 2 MB of float32, so the passes of the softmax run in cache."""


def chunks(rows: int, row_elements: int, limit: int) -> Iterator[slice]:
    """Divide rows so that no part has more than `limit` elements, but for a row that has more alone."""
    size = max(1, limit // row_elements)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


class LinearSoftmax:
    """The softmaxes of one W and b.

    Args:
        weight: W (V, D).
        bias: b (V,) or None.
        dtype: of the products; everything else is in float32, or float64.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self.matrix, self.wide = weight.to(dtype), wide_dtype(dtype)
        self.bias = None if bias is None else bias.to(self.wide)

    def log_p(self, x: Tensor, targets: Tensor, margin: Tensor, *, keep: bool) -> tuple[Tensor, Tensor | None]:
        """Return log p(target) (N,) of rows x (N, D), the margin (N,) taken off the target's logit.

        With `keep`, P (N, V) comes with it, in the logits' place.
        """
        logits = product(x, self.matrix, self.bias if self.matrix.dtype == self.wide else None)
        log_p = logits.new_empty(len(x), dtype=self.wide)
        limit = logits.numel() if logits.is_cuda else _BLOCK_ELEMENTS
        for rows in chunks(len(x), logits.shape[1], limit):
            log_p[rows] = self._normalise(logits[rows], targets[rows, None], margin[rows, None], keep)
        return log_p, logits if keep else None

    def _normalise(self, logits: Tensor, target: Tensor, margin: Tensor, keep: bool) -> Tensor:
        """One exponential an element: the largest p is 1 / Σ_v exp(z[v] − max z), which gives the log-sum-exp."""
        # to narrow logits the bias comes now, on the way to float32: sooner costs a pass over them
        scores = logits if self.bias is None or logits.dtype == self.wide else logits + self.bias
        scores = scores.to(self.wide)
        p = scores.scatter_add_(1, target, -margin).softmax(1)
        log_p = scores.gather(1, target).squeeze(1) - scores.amax(1) + p.amax(1).log()
        if keep:
            logits.copy_(p.scatter_(1, target, 0))
        return log_p


class LinearGradients:
    """∂/∂W and ∂/∂b, summed over rows that come in chunks."""

    def __init__(self, linear: LinearSoftmax) -> None:
        self._matrix, self._wide = linear.matrix, linear.wide
        self.weight = torch.zeros_like(linear.matrix, dtype=linear.wide)
        self.bias = None if linear.bias is None else torch.zeros_like(linear.bias)

    def add(self, x: Tensor, targets: Tensor, missed: Tensor, softmax: Tensor, grad: Tensor) -> Tensor:
        """Add those of rows x (N, D) with e (N,), P (N, V), g (N,); return ∂/∂x (N, D)."""
        at_target, share = missed * grad, grad.to(softmax.dtype)
        size, column = x.shape[1], share.unsqueeze(1)
        # Pᵀg for b is a column more, up to a width that products are quick with
        both = crossed(softmax, torch.cat([x * column, column.expand(-1, 8 - size % 8)], 1))
        self.weight -= both[:, :size]
        self.weight.index_add_(0, targets, at_target.unsqueeze(1) * x.to(self._wide))
        if self.bias is not None:
            self.bias -= both[:, size]
            self.bias.index_add_(0, targets, at_target)
        grad_x = missed.unsqueeze(1) * self._matrix[targets].to(self._wide) - product(softmax, self._matrix.t())
        return grad_x.mul_(grad.unsqueeze(1))


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


_linear_log_prob: Callable[..., Tensor] = _LinearLogProb.apply  # the library leaves it untyped


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
        log_p: Tensor = _linear_log_prob(*inputs, dtype, learns(inputs))
    return log_p


MIXTURE_CHUNK_ELEMENTS = 2**25
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
        parts = chunks(len(x), experts * len(weight), MIXTURE_CHUNK_ELEMENTS)
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


_mixture_log_prob: Callable[..., Tensor] = _MixtureLogProb.apply  # the library leaves it untyped


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
        return (_mixture_log_prob if even and learns(inputs) else _chunk_by_chunk)(*inputs, dtype)
