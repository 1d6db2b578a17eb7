"""The linear softmax: y_t = softmax(W* h*_t + b) (Daniluk et al., 2017, Eq. 5).

With a projection (Press & Wolf, 2017; their PR) y_t = softmax(W* (P h*_t + b_P) + b), and training adds λ‖P‖², the
sum of squares of P, to its loss. The paper's λ = 0.15 belongs to the loss Σ NLL / B + ½‖P‖² / (6.5 B), which is
`projection_penalty` 1 / (13 B) with `training.loss=time-sum`.

The adversarial softmax (Wang, Gong & Liu, 2019) trains against the worst small change of the target's vector.
Within a ball of radius ε‖w_y‖ the smallest logit of the target is known:

    min over ‖δ‖ <= ε‖w_y‖ of (w_y + δ)·x  =  w_y·x − ε‖w_y‖‖x‖,    at δ = −ε‖w_y‖ x / ‖x‖

so training lowers the target's logit by the margin ε‖w_y‖‖x‖ and keeps all others. The paper always has the margin;
the public code, like this one, only if cos(x, w_y) > 0. As in that code, δ is a constant for the gradient: x gets the
gradient of the margin −δ·x, and w_y is not drawn to places of small margin. Norms are √(Σ + 1e-8).

The target's log-probability is computed with at most a chunk of the logits in memory:

    z_n = W x_n + b,    log p_n = z_n[y_n] − log Σ_v exp z_n[v]

With P the softmax but for a zero at each row's target y_n, and e_n = 1 − p_n, the gradients of Σ_n g_n log p_n are

    ∂/∂x_n = g_n (e_n W[y_n] − P_n W),    ∂/∂W = −Pᵀ(g ⊙ x) + Σ_n e_n g_n x_n at row y_n,    ∂/∂b likewise

so P overwrites the logits once and is only read afterwards. e_n is a separate float32 number, so a confident word's
small gradient survives a bfloat16 P. A margin m_n may first be subtracted from z_n[y_n]: ∂ log p_n / ∂m_n = p_n − 1. If
all logits fit in one chunk, P is kept for the backward pass; otherwise the backward pass computes each chunk again. On
a GPU, where each call of a small kernel costs more than its passes over memory, torch's own cross-entropy replaces all
this if the logits fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from spanlm.errors import InputError, require
from spanlm.models.interfaces import Init, MixingHead
from spanlm.models.kernels import crossed, gpu_elements, linear, prepared
from spanlm.models.ops.precision import learns, no_autocast, product_dtype, wide, wide_dtype, without_autocast
from spanlm.options import NOT_NEGATIVE, option, options

MANY_ROWS = 2**12
"""Rows from which on W is reordered for the kernel once."""

_BLOCK_ELEMENTS = 2**19
"""Logits that a CPU normalises at a time: 2 MB of float32, so the passes of the softmax run in cache."""


def chunks(rows: int, row_elements: int, limit: int) -> Iterator[slice]:
    """Divide rows into parts of at most `limit` elements; a larger row is a part by itself."""
    size = max(1, limit // row_elements)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


class LinearSoftmax:
    """The softmaxes of one W (V, D) and b (V,), for `rows` inputs in all.

    Products are in `dtype`, everything else in float32 or float64.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, rows: int) -> None:
        self.matrix: Tensor = weight.to(dtype)
        self.wide: torch.dtype = wide_dtype(dtype)
        self.many: bool = rows >= MANY_ROWS
        self.bias: Tensor | None = None if bias is None else bias.to(self.wide)

    @cached_property
    def _times(self) -> Callable[..., Tensor]:
        return prepared(self.matrix, self.many)

    def log_p(self, x: Tensor, targets: Tensor, margin: Tensor, *, keep: bool) -> tuple[Tensor, Tensor | None]:
        """Return log p(target) (N,) of rows x (N, D), with the margin (N,) subtracted from the target's logit.

        With `keep`, also return P (N, V), which overwrites the logits.
        """
        logits = self._times(x, self.bias if self.matrix.dtype == self.wide else None)
        log_p = logits.new_empty(len(x), dtype=self.wide)
        limit = _BLOCK_ELEMENTS if logits.is_cpu else logits.numel()
        for rows in chunks(len(x), logits.shape[1], limit):
            log_p[rows] = self._normalise(logits[rows], targets[rows, None], margin[rows, None], keep)
        return log_p, logits if keep else None

    def _normalise(self, logits: Tensor, target: Tensor, margin: Tensor, keep: bool) -> Tensor:
        """Use one exponential per element: the largest p is 1 / Σ_v exp(z[v] − max z), which gives the log-sum-exp."""
        # bfloat16 logits get the bias here, on the way to float32: adding it earlier costs another pass
        scores = logits if self.bias is None or logits.dtype == self.wide else logits + self.bias
        scores = scores.to(self.wide)
        p = scores.scatter_add_(1, target, -margin).softmax(1)
        log_p = scores.gather(1, target).squeeze(1) - scores.amax(1) + p.amax(1).log()
        if keep:
            logits.copy_(p.scatter_(1, target, 0))
        return log_p


class LinearGradients:
    """∂/∂W and ∂/∂b, summed over chunks of rows."""

    def __init__(self, linear: LinearSoftmax) -> None:
        self._matrix, self._wide = linear.matrix, linear.wide
        self._times = prepared(linear.matrix.t(), linear.many)
        self.weight: Tensor = torch.zeros_like(linear.matrix, dtype=linear.wide)
        self.bias = None if linear.bias is None else torch.zeros_like(linear.bias)

    def add(self, x: Tensor, targets: Tensor, missed: Tensor, softmax: Tensor, grad: Tensor) -> Tensor:
        """Add the gradients of rows x (N, D) with e (N,), P (N, V), g (N,); return ∂/∂x (N, D)."""
        at_target, share = missed * grad, grad.to(softmax.dtype)
        size, column = x.shape[1], share.unsqueeze(1)
        # an additional column gives Pᵀg for b; padding to a multiple of 8 makes the product quick
        both = crossed(softmax, torch.cat([x * column, column.expand(-1, 8 - size % 8)], 1))
        self.weight -= both[:, :size]
        self.weight.index_add_(0, targets, at_target.unsqueeze(1) * x.to(self._wide))
        if self.bias is not None:
            self.bias -= both[:, size]
            self.bias.index_add_(0, targets, at_target)
        grad_x = missed.unsqueeze(1) * self._matrix[targets].to(self._wide) - self._times(softmax)
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
        inputs, linear = x.to(dtype), LinearSoftmax(weight, bias, dtype, len(x))
        parts = list(chunks(len(x), len(weight), CHUNK_ELEMENTS))
        keep = learning and len(parts) == 1
        results = [linear.log_p(inputs[rows], targets[rows], margin[rows], keep=keep) for rows in parts]
        log_p = torch.cat([of_rows for of_rows, _ in results])
        ctx.save_for_backward(inputs, linear.matrix, linear.bias, targets, margin, log_p, results[0][1])
        return log_p

    @staticmethod
    @torch.autograd.function.once_differentiable
    @without_autocast
    def backward(  # type: ignore[override]  # the decorator hides the signature
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, None, Tensor, None, None]:
        (grad,) = grads
        inputs, matrix, bias, targets, margin, log_p, saved_softmax = ctx.saved_tensors
        linear, missed = LinearSoftmax(matrix, bias, matrix.dtype, len(inputs)), -torch.expm1(log_p)
        total = LinearGradients(linear)

        def of_rows(rows: slice) -> Tensor:
            # a function, whose locals free a chunk's softmaxes before the next chunk's
            softmax = saved_softmax
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
    """Log softmax(W x + b − m at the target)[target], (N,), in float32 or float64 for all types of products.

    x (N, D), W (V, D), b (V,), targets (N,) int64; the margin m (N,) has the type of the result, None: 0. `dtype` is
    the type of the products; None: the autocast's, or else W's.
    """
    dtype = dtype or product_dtype(weight)
    with no_autocast(x.device):
        if not x.is_cpu and len(x) * len(weight) <= gpu_elements(x.device):
            return log_prob_at_once(x, weight, bias, targets, margin, dtype)
        if margin is None:
            margin = x.new_zeros(len(x), dtype=wide_dtype(dtype))
        inputs = x, weight, bias, targets, margin
        log_p: Tensor = _linear_log_prob(*inputs, dtype, learns(inputs))
    return log_p


def log_prob_at_once(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, margin: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """`linear_log_prob` by torch's cross-entropy, with all logits in memory."""
    fits = bias is not None and bias.dtype == dtype  # bfloat16 logits get the bias after widening
    logits = wide(functional.linear(x.to(dtype), weight.to(dtype), bias if fits else None))
    logits = logits if fits or bias is None else logits + bias
    if margin is not None:
        logits = logits.scatter_add(1, targets.unsqueeze(1), -margin.unsqueeze(1))
    return -functional.cross_entropy(logits, targets, reduction="none")


def wide_logits(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """W x + b (…, V) in float32 or float64; as in `LinearSoftmax`, b is added after widening bfloat16 products."""
    dtype = product_dtype(weight)
    if bias is None or dtype == wide_dtype(dtype):
        return wide(linear(x, weight, bias))
    return wide(linear(x, weight)) + bias


class AdversarialHead(MixingHead):
    """A head with the adversarial margin, which acts only in training."""

    adversarial: float
    """ε."""

    def margin(self, x: Tensor, weight: Tensor, targets: Tensor) -> Tensor | None:
        """Return the margin (N,) to subtract from the logits of targets (N,), of x (N, D), W (V, D); None: none."""
        if not self.training or not self.adversarial:
            return None
        x = wide(x)
        with torch.no_grad():
            words = weight[targets]
            x_norm, word_norm = ((v.square().sum(1, keepdim=True) + 1e-8).sqrt() for v in (x, words))
            change = self.adversarial * word_norm * x / x_norm  # -δ
            change = change * ((x * words).sum(1, keepdim=True) > 0)
        return (change * x).sum(1)


@options("model.head")
class SoftmaxConfig:
    """A linear layer and a softmax."""

    kind: Literal["softmax"] = option("which head", default="softmax")
    tied: bool = option(
        "score with the embedding's own matrix (Press & Wolf, 2017); needs a readout as wide as the embedding",
        default=False,
    )
    bias: bool = option("add a bias per word", default=True)
    projection: bool = option("a square matrix with a bias before the softmax", default=False)
    projection_penalty: float = option(
        "λ of the penalty λ‖P‖² in the loss; needs the projection", default=0.0, limit=NOT_NEGATIVE
    )
    adversarial: float = option(
        "ε, how far the target's vector may move while training, as a share of its length (Wang et al., 2019); 0: "
        "not at all",
        default=0.0,
        limit=NOT_NEGATIVE,
    )

    def __post_init__(self) -> None:
        penalty, limit = self.projection_penalty, "0 without a projection. Use model.head.projection=true"
        require(self.projection or not penalty, "model.head.projection_penalty", penalty, limit)

    @property
    def equation(self) -> str:
        bias = " + b" * self.bias
        return f"y_t = softmax(W* (P h*_t + b_P){bias})" if self.projection else f"y_t = softmax(W* h*_t{bias})   (5)"

    @property
    def description(self) -> str:
        return "softmax, tied" if self.tied else "softmax"

    @property
    def binds_width(self) -> bool:
        """Whether the readout must be as wide as the embedding."""
        return self.tied

    def build(self, readout_size: int, embedding: nn.Embedding, init: Init) -> SoftmaxHead:
        return SoftmaxHead(self, readout_size, embedding, init)


def output_weights(
    embedding: nn.Embedding, size: int, init: Init, *, tied: bool, bias: bool
) -> tuple[Tensor, nn.Parameter | None]:
    """Return W (V, D), the embedding's if it is tied, and b (V,)."""
    words = embedding.num_embeddings
    weight = embedding.weight if tied else nn.Parameter(init.start(torch.empty(words, size)))
    return weight, nn.Parameter(init.start(torch.empty(words), bias=True)) if bias else None


class SoftmaxHead(AdversarialHead):
    """features (T, B, D) -> log-probabilities; W* is (V, D); every weight starts uniform."""

    def __init__(self, config: SoftmaxConfig, readout_size: int, embedding: nn.Embedding, init: Init) -> None:
        super().__init__()
        if config.tied and readout_size != embedding.embedding_dim:
            raise InputError(
                f"model.head.tied=true needs a readout as wide as the embedding: the readout has {readout_size} "
                f"units, model.embedding_size is {embedding.embedding_dim}. Set model.embedding_size={readout_size}."
            )
        weight, bias = output_weights(embedding, readout_size, init, tied=config.tied, bias=config.bias)
        self.weight: Tensor = weight
        self.bias: nn.Parameter | None = bias
        self.projection: nn.Linear | None = nn.Linear(readout_size, readout_size) if config.projection else None
        if self.projection is not None:
            init.start_all(self.projection)
        self.projection_penalty: float = config.projection_penalty
        self.adversarial: float = config.adversarial

    def own_log_prob(self, features: Tensor, targets: Tensor, *, mixed: bool = False) -> Tensor:
        x = self._projected(features).flatten(0, 1)
        words = targets.flatten()
        margin = self.margin(x, self.weight, words)
        return linear_log_prob(x, self.weight, self.bias, words, margin).view_as(targets)

    def own_log_probs(self, features: Tensor) -> Tensor:
        return wide_logits(self._projected(features), self.weight, self.bias).log_softmax(-1)

    def penalty(self) -> Tensor | float:
        if self.projection is None or not self.projection_penalty:
            return 0.0
        return self.projection_penalty * self.projection.weight.square().sum()

    def _projected(self, features: Tensor) -> Tensor:
        return features if self.projection is None else self.projection(features)
