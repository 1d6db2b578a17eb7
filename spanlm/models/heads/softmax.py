"""The linear softmax: y_t = softmax(W* h*_t + b) (Daniluk et al., 2017, Eq. 5).

With a projection (Press & Wolf, 2017; their PR) y_t = softmax(W* (P h*_t + b_P) + b), and training adds λ‖P‖²,
the sum of squares of P, to its loss. Which loss decides what λ means. The paper's λ = 0.15 is that of the code, which
minimises Σ NLL / B + ½‖P‖² / (6.5 B), a sum over time averaged over B streams: `training.loss=time-sum` with
`projection_penalty` 1 / (13 B), 0.00385 for B = 20; the paper's number is 1 / 6.5, for ½‖P‖² beside the plain Σ NLL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from spanlm.errors import InputError, require
from spanlm.models.heads.adversarial import (
    AdversarialGate,
    AdversarialHead,
    Adversary,
    Direction,
    adversarial_log_prob,
)
from spanlm.models.interfaces import Init, Readout
from spanlm.models.ops.precision import wide


@dataclass(frozen=True, kw_only=True)
class SoftmaxConfig:
    """A linear layer and a softmax.

    Attributes:
        kind: which head.
        tied: score with the embedding's own matrix (Press & Wolf, 2017); needs a readout as wide as the embedding.
        bias: add a bias per word.
        projection: a square matrix with a bias before the softmax.
        projection_penalty: λ, what the loss grows by per unit of ‖P‖²; needs the projection.
        adversarial: ε, how far the target's vector may move while training, as a share of its length (Wang et al.,
            2019); 0: not at all.
        adversarial_direction: own: each prediction's worst one; shared: as in the public code, where a word that is
            the target more than once in a segment has the direction of the last time.
        adversarial_gate: cosine: as in the public code, only a prediction that points towards its word has a margin;
            none: as in the paper, every one.
    """

    kind: Literal["softmax"] = "softmax"
    tied: bool = False
    bias: bool = True
    projection: bool = False
    projection_penalty: float = 0.0
    adversarial: float = 0.0
    adversarial_direction: Direction = "own"
    adversarial_gate: AdversarialGate = "cosine"

    def __post_init__(self) -> None:
        """Refuse a penalty of nothing."""
        penalty = self.projection_penalty
        require(0 <= penalty < math.inf, "model.head.projection_penalty", penalty, "0 or positive")
        require(
            self.projection or not penalty,
            "model.head.projection_penalty",
            penalty,
            "0 without a projection. Use model.head.projection=true",
        )
        _ = self.adversary  # refuses the rest

    @property
    def adversary(self) -> Adversary:
        """What training is against."""
        return Adversary(self.adversarial, self.adversarial_direction, self.adversarial_gate)

    @property
    def description(self) -> str:
        """What it is, in a few words."""
        return "softmax, tied" if self.tied else "softmax"

    @property
    def binds_width(self) -> bool:
        """Whether the readout must be as wide as the embedding."""
        return self.tied

    def build(self, readout_size: int, embedding: nn.Embedding, init: Init) -> SoftmaxHead:
        """Make the head."""
        return SoftmaxHead(self, readout_size, embedding, init)


class SoftmaxHead(AdversarialHead):
    """features (T, B, D) -> log-probabilities; W* is (V, D); every weight starts uniform."""

    bias: nn.Parameter | None

    def __init__(self, config: SoftmaxConfig, readout_size: int, embedding: nn.Embedding, init: Init) -> None:
        super().__init__()
        vocabulary_size, embedding_size = embedding.weight.shape
        if config.tied:
            if readout_size != embedding_size:
                raise InputError(
                    f"model.head.tied=true needs a readout as wide as the embedding: the readout has {readout_size} "
                    f"units, model.embedding_size is {embedding_size}. Set model.embedding_size={readout_size}."
                )
            self.weight = embedding.weight
        else:
            self.weight = nn.Parameter(torch.empty(vocabulary_size, readout_size))
            init.start(self.weight)
        self.bias = None
        if config.bias:
            self.bias = nn.Parameter(init.start(torch.empty(vocabulary_size), bias=True))
        self.projection = nn.Linear(readout_size, readout_size) if config.projection else None
        if self.projection is not None:
            init.start_all(self.projection)
        self.projection_penalty = config.projection_penalty
        self.adversary = config.adversary

    def asking(self, readout: Readout, targets: Tensor) -> Callable[[Adversary], Tensor]:
        """Return what gives log p(target), (T, B), of one projection."""
        return partial(self._asked, self._projected(readout), targets)

    def _asked(self, seen: Tensor, targets: Tensor, adversary: Adversary) -> Tensor:
        x = seen.flatten(0, 1)
        return adversarial_log_prob(x, self.weight, self.bias, targets.flatten(), adversary).view_as(targets)

    def own_log_probs(self, readout: Readout) -> Tensor:
        """Log p of every word, (T, B, V), normalised in float32 or float64."""
        logits = linear(self._projected(readout), self.weight, self.bias)
        return wide(logits).log_softmax(-1)

    def penalty(self) -> Tensor | float:
        """λ‖P‖²."""
        if self.projection is None or not self.projection_penalty:
            return 0.0
        return self.projection_penalty * self.projection.weight.square().sum()

    def _projected(self, readout: Readout) -> Tensor:
        return readout.features if self.projection is None else self.projection(readout.features)
