"""The mixture of softmaxes (Yang et al., 2018): K softmaxes over one matrix, each with its own latent vector.

    g_t = tanh(W_l h_t + b_l) ∈ R^{K·E},    z_{t,k} = W g_{t,k} + b,    π_t = softmax(W_p h_t)
    p_t = Σ_k π_{t,k} softmax(z_{t,k})

If a memory adds a prediction from ξ (Li et al., 2020), ξ goes through the same W_l and W_p as h.

All experts share the bias b, and the prior has none; a locked dropout acts on g. The public code takes the logarithm
of p + 1e-8, which is not a distribution; this code stays in log space: log p = logsumexp_k(log π_k + log softmax(z_k)).
W_l, b_l and W_p start as in the public code, uniform in ±1/√(size of h); W and b as in `Init`.

The gradients of log p = log Σ_k π_k softmax(z_k)[y] are those of K linear softmaxes, each with the weight

    r_k = π_k softmax(z_k)[y] / p,    ∂ log p / ∂ log π_k = r_k

which is the expert's share in the target's probability. The loss of a segment is a mean over its words, so all words
have the same incoming gradient g: the forward pass computes the gradients for g = 1 while it has a chunk's softmaxes,
and the backward pass multiplies by g. For words with another g the softmaxes are computed again, to correct the
gradients of W and b. Many such words are costly: the caller tells by `even` what to expect. Asking which words those
are would make a GPU wait, so there the mixture is one of linear softmaxes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from spanlm.errors import InputError
from spanlm.models.heads.softmax import (
    AdversarialHead,
    LinearGradients,
    LinearSoftmax,
    chunks,
    linear_log_prob,
    output_weights,
    wide_logits,
)
from spanlm.models.interfaces import Init
from spanlm.models.ops.dropout import locked_dropout
from spanlm.models.ops.precision import learns, no_autocast, product_dtype, wide, wide_dtype, without_autocast
from spanlm.options import NOT_NEGATIVE, RATE, at_least, option, options

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
        experts = x.shape[1]
        linear = LinearSoftmax(weight, bias, dtype, len(x) * experts)
        parts = chunks(len(x), experts * len(weight), MIXTURE_CHUNK_ELEMENTS)
        total = LinearGradients(linear)

        def of_rows(rows: slice) -> tuple[Tensor, ...]:
            # log p, r, ∂/∂x and ∂/∂m; a function, whose locals free a chunk's softmaxes before the next chunk's
            seen, words = x[rows].flatten(0, 1).to(dtype), targets[rows].repeat_interleave(experts)
            expert_log_p, softmax = linear.log_p(seen, words, margin[rows].flatten(), keep=True)
            assert softmax is not None
            joint = expert_log_p.view(-1, experts) + log_prior[rows]
            log_p = joint.logsumexp(1)
            share = (joint - log_p.unsqueeze(1)).exp()
            missed = -torch.expm1(expert_log_p)  # e = 1 - p
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
            more, *more_bias = _weight_gradients(inputs, others, grad[others] - usual, ctx.dtype)
            of_weight += more
            if of_bias is not None:
                of_bias += more_bias[0]
        return grad_x * column.unsqueeze(2), share * column, of_weight, of_bias, None, grad_margin * column, None


def _weight_gradients(inputs: list[Tensor], rows: Tensor, grad: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    x, log_prior, weight, bias, targets, margin = inputs
    leaves = [t.detach().requires_grad_() for t in (weight, bias) if t is not None]
    with torch.enable_grad():
        parameters = leaves[0], leaves[1] if bias is not None else None
        log_p = _chunk_by_chunk(x[rows], log_prior[rows], *parameters, targets[rows], margin[rows], dtype)
    return torch.autograd.grad(log_p, leaves, grad)


def _chunk_by_chunk(
    x: Tensor,
    log_prior: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    margin: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    words, margins = targets.repeat_interleave(x.shape[1]), None if margin is None else margin.flatten()
    expert_log_p = linear_log_prob(x.flatten(0, 1), weight, bias, words, margins, dtype)
    return (expert_log_p.view_as(log_prior) + log_prior).logsumexp(1)


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
    """Log Σ_k π_k softmax(W x_k + b − m_k at the target)[target], (N,), in float32 or float64.

    x (N, K, D), W (V, D), b (V,), targets (N,) int64; log π and the margin m (N, K) have the type of the result; no
    margin: 0. `even` expects the same gradient for nearly all rows, which affects only speed.
    """
    dtype, inputs = product_dtype(weight), (x, log_prior, weight, bias, targets, margin)
    with no_autocast(x.device):
        if not (x.is_cpu and even and learns(inputs)):
            return _chunk_by_chunk(*inputs, dtype)
        if margin is None:
            margin = x.new_zeros(log_prior.shape, dtype=wide_dtype(dtype))
        return _mixture_log_prob(x, log_prior, weight, bias, targets, margin, dtype)


@options("model.head")
class MixtureOfSoftmaxesConfig:
    """A mixture of softmaxes."""

    kind: Literal["mixture_of_softmaxes"] = option("which head", default="mixture_of_softmaxes")
    binds_width = False  # the readout need not be as wide as the embedding
    experts: int = option("K, how many softmaxes", default=15, limit=at_least(1))
    latent_size: int | None = option(
        "units of an expert's input; null: as wide as the embedding, which a tied head needs",
        default=None,
        limit=at_least(1),
    )
    latent_dropout: float = option(
        "dropout on the experts' inputs, with one mask for all steps of a segment", default=0.29, limit=RATE
    )
    tied: bool = option("score with the embedding's own matrix", default=True)
    bias: bool = option("add a bias per word, the same for all experts", default=True)
    adversarial: float = option(
        "ε, how far the target's vector may move while training, as a share of its length (Wang et al., 2019), "
        "against every expert; 0: not at all",
        default=0.0,
        limit=NOT_NEGATIVE,
    )

    @property
    def equation(self) -> str:
        return f"p_t = Σ_k π_{{t,k}} softmax(W tanh(W_{{l,k}} h_t + b_l){' + b' * self.bias})"

    @property
    def description(self) -> str:
        several = f"mixture of {self.experts} softmax{'es' if self.experts > 1 else ''}"
        return f"{several}, tied" if self.tied else several

    def build(self, readout_size: int, embedding: nn.Embedding, init: Init) -> MixtureOfSoftmaxesHead:
        return MixtureOfSoftmaxesHead(self, readout_size, embedding, init)


class MixtureOfSoftmaxesHead(AdversarialHead):
    """features (T, B, D) -> log-probabilities; W is (V, E)."""

    def __init__(
        self, config: MixtureOfSoftmaxesConfig, readout_size: int, embedding: nn.Embedding, init: Init
    ) -> None:
        super().__init__()
        embedding_size = embedding.embedding_dim
        size = embedding_size if config.latent_size is None else config.latent_size
        if config.tied and size != embedding_size:
            raise InputError(
                f"model.head.latent_size={size} does not fit the tied embedding: model.embedding_size is "
                f"{embedding_size}. Leave model.head.latent_size null, or set model.head.tied=false."
            )
        self.experts: int = config.experts
        self.latent_dropout: float = config.latent_dropout
        self.adversarial: float = config.adversarial
        self.latent: nn.Linear = nn.Linear(readout_size, config.experts * size)
        self.prior: nn.Linear = nn.Linear(readout_size, config.experts, bias=False)
        weight, bias = output_weights(embedding, size, init, tied=config.tied, bias=config.bias)
        self.weight: Tensor = weight
        self.bias: nn.Parameter | None = bias

    def own_log_prob(self, features: Tensor, targets: Tensor, *, mixed: bool = False) -> Tensor:
        """Log p(target), (T, B); in training with a margin for each expert."""
        x, words = self._seen(features).flatten(0, 1), targets.flatten()
        margin = self.margin(x.flatten(0, 1), self.weight, words.repeat_interleave(self.experts))
        margin = None if margin is None else margin.view(len(words), -1)
        log_prior = self._log_prior(features).flatten(0, 1)
        # mixed with another distribution, every word has a different gradient
        log_p = mixture_log_prob(x, log_prior, self.weight, self.bias, words, margin, even=not mixed)
        return log_p.view_as(targets)

    def own_log_probs(self, features: Tensor) -> Tensor:
        pairs = zip(self._log_prior(features).unbind(-1), self._seen(features).unbind(-2), strict=True)
        # one by one, so that memory holds two distributions (T, B, V), not K
        experts = (wide_logits(x, self.weight, self.bias).log_softmax(-1) + share.unsqueeze(-1) for share, x in pairs)
        return functools.reduce(torch.logaddexp, experts)

    def _seen(self, features: Tensor) -> Tensor:
        latent = locked_dropout(self.latent(features).tanh(), self.latent_dropout, self.training)
        return latent.view(*features.shape[:-1], self.experts, -1)

    def _log_prior(self, features: Tensor) -> Tensor:
        return wide(self.prior(features)).log_softmax(-1)
