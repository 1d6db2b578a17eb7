"""The linear softmax: y_t = softmax(W* h*_t + b) (Daniluk et al., 2017, Eq. 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from spanlm.errors import InputError
from spanlm.models.interfaces import Head, Init, Readout
from spanlm.models.ops.linear_log_prob import linear_log_prob


@dataclass(frozen=True, kw_only=True)
class SoftmaxConfig:
    """A linear layer and a softmax.

    Attributes:
        kind: which head; there is one.
        tied: score with the embedding's own matrix (Press & Wolf, 2017); needs a readout as wide as the embedding.
        bias: add a bias per word.
    """

    kind: Literal["softmax"] = "softmax"
    tied: bool = False
    bias: bool = True

    def build(self, readout_size: int, embedding: nn.Embedding, init: Init) -> SoftmaxHead:
        """Make the head."""
        return SoftmaxHead(self, readout_size, embedding, init)


class SoftmaxHead(Head):
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

    def own_log_prob(self, readout: Readout, targets: Tensor) -> Tensor:
        """Log p(target), (T, B)."""
        x = readout.features.flatten(0, 1)
        return linear_log_prob(x, self.weight, self.bias, targets.flatten()).view_as(targets)

    def own_log_probs(self, readout: Readout) -> Tensor:
        """Log p of every word, (T, B, V), normalised in float32 or float64."""
        logits = linear(readout.features, self.weight, self.bias)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
