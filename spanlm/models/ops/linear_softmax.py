"""Softmaxes of z_n = W x_n + b, a chunk of rows at a time, and the gradients of log p at each row's target.

With P the softmax but for a zero at each row's target y_n, and e_n = 1 − p_n, the gradients of Σ_n g_n log p_n are

    ∂/∂x_n = g_n (e_n W[y_n] − P_n W),    ∂/∂W = −Pᵀ(g ⊙ x) + Σ_n e_n g_n x_n at row y_n,    ∂/∂b likewise

so P is written once over the logits and only read afterwards, where `linear` + `cross_entropy` fill three such
tensors; and since e_n is kept apart in float32, a confident word's small gradient survives a bfloat16 P.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from spanlm.models.ops.linear import crossed, product
from spanlm.models.ops.precision import wide_dtype

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
