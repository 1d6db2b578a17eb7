r"""The update rule: a copy of the weights learns from a text, and decays towards the trained weights.

Krause, Kahembwe, Murray & Renals, "Dynamic Evaluation of Neural Sequence Models" (ICML 2018), § 5, "RMS with a global
prior". After each segment of 5 tokens, which is scored before the update, all weights become

    θ ← θ + λ R ⊙ (θ_g − θ) − η g / (MS + ε),    R = min(MS / ḡ, 1/λ)

with θ_g the trained weights, g the gradient of the segment's mean cross-entropy, and MS and ḡ as in
`spanlm.scoring.dynamic.statistics`. A segment with fewer tokens makes a proportionally shorter step: λ R · len/5, and g
likewise. (In the published code only the text's last segment is shorter, and no word comes after it.) The weights are
the plain parameters, under weight drop the raw matrix.

η, λ and ε come in two conventions. This project uses that of the authors' current code ("mean"). Their first release,
and its copies in the mixture of softmaxes and successors ("sum"), took sums, not means, over the n segments in MS and
over the K tensors in ḡ:

    η_mean = η_sum / √n,    ε_mean = ε_sum / √n,    λ_mean = λ_sum / K
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from spanlm.errors import InputError, require
from spanlm.models.interfaces import NextWordModel
from spanlm.scoring.dynamic.statistics import DynamicStatistics, SegmentGradients, gate_temperature, learning_weights
from spanlm.scoring.options import DynamicConfig, DynamicLoss
from spanlm.store.run_folder import model_digest

BLOCK = 2**17
"""Weights that a CPU updates at a time, so that they stay in its cache between the two passes over them."""


def adapting(
    model: NextWordModel, statistics: DynamicStatistics, config: DynamicConfig
) -> tuple[NextWordModel, Callable[[SegmentGradients], None]]:
    """Return a copy of a model, and a function that updates the copy's weights after a segment."""
    follower = copy.deepcopy(model)
    for part in follower.modules():
        if isinstance(part, torch.nn.RNNBase):
            part.flatten_parameters()  # else cuDNN gathers copied weights at every call, with a warning
    # views of the parameters' memory, without a graph
    trained, weights = ([w.detach().view(-1) for w in learning_weights(m).values()] for m in (model, follower))
    sizes, mean = [statistics.root_mean_squares[name].view(-1) for name in learning_weights(model)], statistics.mean
    rates = [config.rate / (size + config.epsilon) for size in sizes]
    decays = [(size * (config.decay / mean)).clamp_(max=1) for size in sizes]
    block = BLOCK if model.device.type == "cpu" else sys.maxsize
    parts = list(zip(*(_split(x, block) for x in (weights, trained, decays, rates)), strict=True))

    def update(segment: SegmentGradients) -> None:
        share, gradients = segment.share, _split((g.reshape(-1) for g in segment.gradients), block)
        for (weight, first, decay, rate), g in zip(parts, gradients, strict=True):
            # g was computed before both, so this is one step
            weight.lerp_(first, decay if share == 1 else decay * share)
            weight.addcmul_(g, rate, value=-1)

    return follower, update


def _split(tensors: Iterable[Tensor], size: int) -> list[Tensor]:
    return [part for x in tensors for part in torch.split(x, size)]


def require_own(statistics: DynamicStatistics, model: NextWordModel) -> None:
    """Raise InputError if the statistics are of other weights than the model's."""
    if statistics.weights != model_digest(model):
        raise InputError("statistics", limit="of another model's weights", way_out="Use model.dynamic_statistics().")


def require_fit(config: DynamicConfig, statistics: DynamicStatistics, model: NextWordModel) -> None:
    """Raise InputError if the statistics are of another gate temperature, or `require_loss` does."""
    gate = gate_temperature(model)
    require(statistics.gate_temperature == gate, "statistics.gate_temperature", statistics.gate_temperature, f"{gate}")
    require_loss(config.loss, model)


def require_loss(loss: DynamicLoss, model: NextWordModel) -> None:
    """Raise InputError if the loss is that of training and the model, such as an ensemble, has no gate."""
    only = "likelihood without a span buffer: only its gate has a temperature and a reward in training"
    require(loss == "likelihood" or gate_temperature(model) is not None, "dynamic.loss", loss, only)
