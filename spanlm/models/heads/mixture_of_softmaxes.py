"""The mixture of softmaxes (Yang et al., 2018): K softmaxes over one matrix, each with a view of its own.

    g_t = tanh(W_l h_t + b_l) ∈ R^{K·E},    z_{t,k} = W g_{t,k} + b,    π_t = softmax(W_p h_t)
    p_t = Σ_k π_{t,k} softmax(z_{t,k})

Under a span buffer, which hands ξ to the head beside h, the same g and π read ξ, so that the buffer's prediction is a
mixture, too; Li et al. (2020, Eq. 8) print q ∝ exp(ξᵀ O), which does not fit where ξ is wider than the rows of O. With
`buffer` projection it is one softmax instead, of ξ brought to their size: q_t = softmax(W P ξ_t + b), P learned.

The bias b is that of all experts, the prior has none; a locked dropout acts on g. The public code takes the logarithm
of p + 1e-8, which is no distribution; here everything is logarithms: log p = logsumexp_k(log π_k + log softmax(z_k)).
W_l, b_l and W_p, and P, start as the public code leaves them, uniform in ±1/√(size of h); W and b as `Init` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from spanlm.errors import InputError, require
from spanlm.models.dropout import locked_dropout
from spanlm.models.head import Parts
from spanlm.models.heads.adversarial import (
    AdversarialGate,
    AdversarialHead,
    Adversary,
    Direction,
    adversarial_log_prob,
    adversarial_margin,
    with_clean,
)
from spanlm.models.interfaces import Init, Readout
from spanlm.models.ops.mixture_log_prob import mixture_log_prob
from spanlm.models.ops.precision import wide
from spanlm.models.span_mixture import Buffered

BufferPrediction = Literal["mixture", "projection"]


@dataclass(frozen=True, kw_only=True)
class MixtureOfSoftmaxesConfig:
    """A mixture of softmaxes.

    Attributes:
        kind: which head.
        experts: K, how many softmaxes.
        latent_size: units of what an expert sees; null: as wide as the embedding, which a tied head needs.
        latent_dropout: on what the experts see, one mask for all steps of a segment.
        tied: score with the embedding's own matrix.
        bias: add a bias per word, the same for all experts.
        adversarial: ε, how far the target's vector may move while training, as a share of its length (Wang et al.,
            2019), against every expert; 0: not at all.
        adversarial_direction: own: each prediction's worst one; shared: as in the public code, where a word that is
            the target more than once in a segment has the direction of the last time.
        adversarial_gate: cosine: as in the public code, only an expert that points towards the word has a margin;
            none: as in the paper, every one.
        buffer: of a model with a span buffer, what the buffer predicts by: mixture (the experts of the encoder's
            prediction) or projection (one softmax over the same matrix, after a learned projection).
    """

    kind: Literal["mixture_of_softmaxes"] = "mixture_of_softmaxes"
    binds_width = False  # the readout need not be as wide as the embedding
    experts: int = 15
    latent_size: int | None = None
    latent_dropout: float = 0.29
    tied: bool = True
    bias: bool = True
    adversarial: float = 0.0
    adversarial_direction: Direction = "own"
    adversarial_gate: AdversarialGate = "cosine"
    buffer: BufferPrediction = "mixture"

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        require(self.experts >= 1, "model.head.experts", self.experts, "at least 1")
        require(
            self.latent_size is None or self.latent_size >= 1,
            "model.head.latent_size",
            self.latent_size,
            "at least 1, or null",
        )
        require(0 <= self.latent_dropout < 1, "model.head.latent_dropout", self.latent_dropout, "in [0, 1)")
        choices = get_args(BufferPrediction)
        require(self.buffer in choices, "model.head.buffer", self.buffer, " or ".join(choices))
        _ = self.adversary  # refuses the rest

    @property
    def adversary(self) -> Adversary:
        """What training is against."""
        return Adversary(self.adversarial, self.adversarial_direction, self.adversarial_gate)

    @property
    def description(self) -> str:
        """What it is, in a few words."""
        several = f"mixture of {self.experts} softmax{'es' if self.experts > 1 else ''}"
        return f"{several}, tied" if self.tied else several

    def build(self, readout_size: int, embedding: nn.Embedding, init: Init) -> MixtureOfSoftmaxesHead:
        """Make the head."""
        return MixtureOfSoftmaxesHead(self, readout_size, embedding, init)


class MixtureOfSoftmaxesHead(AdversarialHead):
    """features (T, B, D) -> log-probabilities; W is (V, E)."""

    bias: nn.Parameter | None

    def __init__(
        self, config: MixtureOfSoftmaxesConfig, readout_size: int, embedding: nn.Embedding, init: Init
    ) -> None:
        super().__init__()
        vocabulary_size, embedding_size = embedding.weight.shape
        size = embedding_size if config.latent_size is None else config.latent_size
        if config.tied and size != embedding_size:
            raise InputError(
                f"model.head.latent_size={size} does not fit the tied embedding: model.embedding_size is "
                f"{embedding_size}. Leave model.head.latent_size null, or set model.head.tied=false."
            )
        self.experts, self.latent_dropout = config.experts, config.latent_dropout
        self.adversary = config.adversary
        self.latent = nn.Linear(readout_size, config.experts * size)
        self.prior = nn.Linear(readout_size, config.experts, bias=False)
        self.projection = nn.Linear(readout_size, size, bias=False) if config.buffer == "projection" else None
        if config.tied:
            self.weight = embedding.weight
        else:
            self.weight = nn.Parameter(init.start(torch.empty(vocabulary_size, size)))
        self.bias = None
        if config.bias:
            self.bias = nn.Parameter(init.start(torch.empty(vocabulary_size), bias=True))

    def asking(self, readout: Readout, targets: Tensor) -> Callable[[Adversary], Tensor]:
        """Return what gives log p(target), (T, B), of experts that see the same each time."""
        return partial(self._asked, self._seen(readout.features), readout, targets)

    def part_log_prob(self, features: Tensor, buffer: Buffered, targets: Tensor, clean: bool) -> tuple[Parts, Parts]:
        """Log p and log q of the targets, see `Head`; with a projection log q is that of one softmax."""
        if self.projection is None:
            return super().part_log_prob(features, buffer, targets, clean)
        encoder, x = Readout(features, buffer=buffer), self.projection(buffer.features).flatten(0, 1)
        ask = partial(adversarial_log_prob, x, self.weight, self.bias, targets.flatten())
        if clean:
            log_p, clean_p = self.own_log_prob_and_clean(encoder, targets)
            log_q, clean_q = with_clean(ask, self.present_adversary)
            return (log_p, log_q.view_as(log_p)), (clean_p, clean_q.view_as(log_p))
        parts = self.own_log_prob(encoder, targets), ask(self.present_adversary).view_as(targets)
        return parts, parts

    def buffer_log_probs(self, buffer: Buffered) -> Tensor:
        """Log q of every word, (T, B, V)."""
        if self.projection is None:
            return super().buffer_log_probs(buffer)
        return wide(linear(self.projection(buffer.features), self.weight, self.bias)).log_softmax(-1)

    def _asked(self, seen: Tensor, readout: Readout, targets: Tensor, adversary: Adversary) -> Tensor:
        """Log p(target), (T, B), where the experts see g."""
        x, words, margin = seen.flatten(0, 1), targets.flatten(), None
        if adversary.epsilon:
            each = x.flatten(0, 1), self.weight, words.repeat_interleave(self.experts)
            margin = adversarial_margin(*each, adversary).view(len(words), -1)
        log_prior = self._log_prior(readout.features).flatten(0, 1)
        # what is mixed with another distribution has a gradient of its own at every word
        even = readout.pointer is None and readout.buffer is None
        log_p = mixture_log_prob(x, log_prior, self.weight, self.bias, words, margin, even=even)
        return log_p.view_as(targets)

    def own_log_probs(self, readout: Readout) -> Tensor:
        """Log p of every word, (T, B, V), normalised in float32 or float64; one expert's logits at a time."""
        pairs = zip(self._log_prior(readout.features).unbind(-1), self._seen(readout.features).unbind(-2), strict=True)
        log_p = None
        for log_share, seen in pairs:
            own = wide(linear(seen, self.weight, self.bias)).log_softmax(-1) + log_share.unsqueeze(-1)
            log_p = own if log_p is None else torch.logaddexp(log_p, own)
        assert log_p is not None  # there is an expert
        return log_p

    def _seen(self, features: Tensor) -> Tensor:
        """Return g (T, B, K, E), what each expert sees."""
        latent = locked_dropout(self.latent(features).tanh(), self.latent_dropout, self.training)
        return latent.view(*features.shape[:-1], self.experts, -1)

    def _log_prior(self, features: Tensor) -> Tensor:
        """Return log π (T, B, K)."""
        return wide(self.prior(features)).log_softmax(-1)
