"""Gradients of a segment's loss and penalties, one group of streams at a time.

Activation regularisation (Merity et al., 2017), as in the code of AWD-LSTM:

    AR  = α · mean(f²)                f: the head's input, after dropout
    TAR = β · mean((h_{t+1} − h_t)²)  h: the encoder's output, before dropout

The paper writes L2 norms; the code, for which α = 2 and β = 1 were published, takes the mean over every element of
(T, B, ·). Padding is left out: a pair of steps counts for TAR if both are predicted. AR and TAR are computed as sums
over places of a mean over features, so that groups of streams can be added up and divided once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from spanlm.data.batching import Segment
from spanlm.models.interfaces import LMState, metric_sums
from spanlm.models.language_model import LanguageModel
from spanlm.models.ops.dropout import sharing_streams
from spanlm.models.ops.precision import autocast, wide
from spanlm.training.config import TrainingConfig
from spanlm.training.distributed import ALONE, Ranks, taken


@dataclass(frozen=True)
class StepResult:
    """Results of a pass besides the gradients: sums over predicted tokens, the NLL in float64 and nats."""

    state: LMState  # after the last step, cut from the graph
    nll: Tensor
    tokens: Tensor  # of all streams
    names: tuple[str, ...]  # of the metrics
    metrics: Tensor


def backward(
    model: LanguageModel, segment: Segment, state: LMState, training: TrainingConfig, ranks: Ranks = ALONE
) -> StepResult:
    """Add the gradients of a segment's loss to the parameters' gradients.

    With `batching.group_size` G, each group of G streams has its own forward pass, backward pass and dropout masks; the
    losses are scaled so that they add up to the loss of the whole batch. `ranks` work likewise: each reads its share of
    every group, starting from `state`, and its gradients are one summand of the total.
    """
    tokens, streams = segment.mask.sum(), segment.mask.shape[1]
    divisor = tokens if training.loss == "mean" else streams
    states, nlls, sums = [], [], []
    for group, before in _groups(segment, state, training.batching.group_size, ranks):
        with autocast(model.device, training.precision), sharing_streams(ranks.rank, ranks.count):
            readout, after = model(group.inputs, before)
            scores = model.head.score(readout, group.targets)
        nll, extra = torch.where(group.mask, -scores.log_prob, 0.0).sum(), scores.extra_loss
        total = nll if isinstance(extra, float) else nll + torch.where(group.mask, extra, 0.0).sum()
        loss = total / divisor + model.head.penalty() * (group.mask.shape[1] / streams)
        if training.activation_penalty:  # both penalties are means for every `training.loss`
            loss = loss + training.activation_penalty * activation(readout.features, group.mask) / tokens
        if training.temporal_penalty:
            assert readout.hidden is not None  # a LanguageModel always has the encoder's output
            pairs = neighbours(segment.mask).sum().clamp(min=1)
            loss = loss + training.temporal_penalty * temporal_activation(readout.hidden, group.mask) / pairs
        loss.backward()  # type: ignore[no-untyped-call]
        states.append(after.detach())
        nlls.append(nll.detach().double())
        sums.append(metric_sums(scores.metrics, group.mask))
    names = tuple(scores.metrics)
    if len(states) == 1:
        return StepResult(states[0], nlls[0], tokens, names, sums[0])
    return StepResult(LMState.beside(states), torch.stack(nlls).sum(), tokens, names, torch.stack(sums).sum(0))


def neighbours(mask: Tensor) -> Tensor:
    """(T - 1, B): where both a step of `mask` (T, B) and the next step count."""
    return mask[1:] & mask[:-1]


def activation(features: Tensor, mask: Tensor) -> Tensor:
    """Sum, over the places of `mask` (T, B), the mean of features² (T, B, D), in float32 or float64."""
    return _over(wide(features), mask)


def temporal_activation(hidden: Tensor, mask: Tensor) -> Tensor:
    """Sum, over neighbouring steps, the mean of (h_{t+1} − h_t)² of hidden (T, B, H); 0 if T = 1."""
    hidden = wide(hidden)
    return _over(hidden[1:] - hidden[:-1], neighbours(mask))


def _over(x: Tensor, mask: Tensor) -> Tensor:
    return x.square().mean(-1).where(mask, 0).sum()


def _groups(segment: Segment, state: LMState, size: int | None, ranks: Ranks) -> Iterator[tuple[Segment, LMState]]:
    streams = segment.mask.shape[1]
    size = min(size or streams, streams)
    if size == streams and ranks.count == 1:
        yield segment, state
        return
    share = size // ranks.count
    for number, first in enumerate(range(ranks.rank * share, streams, size)):
        part = taken(segment, slice(first, first + share))
        held = slice(number * share, (number + 1) * share)
        # kernels need contiguous states
        yield part, state.map(lambda x, held=held: x[:, held].contiguous())  # type: ignore[misc]


def clip(model: LanguageModel, limit: float | None) -> Tensor:
    """Scale all gradients to a global norm of at most `limit`; return the norm before."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    # torch.nn.utils computes the same, on some devices by a call for each tensor
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
    if limit is not None:
        torch._foreach_mul_(grads, (limit / (norm + 1e-6)).clamp(max=1.0))
    return norm
