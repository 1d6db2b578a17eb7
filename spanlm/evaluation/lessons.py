"""What a text teaches a model in evaluation: the gradient of a loss, a short segment at a time.

g = ∇ 1/M Σ −log p(target), with M = B · T the tokens of a full segment: the gradient of the mean cross-entropy, and a
segment with fewer tokens counts for less, by its share of them. The loss is the likelihood: evaluation mode has no
dropout, no weight drop, no margins and no extra loss, and penalties of training are left out. Of a span buffer it can
be that of its training (Li et al., 2020, Eq. 11; what adapts it they do not say): the likelihood at the gate's
temperature of training, and the reward; all else is left out, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import torch
from torch import Tensor, nn

from spanlm.data.batching import Segment
from spanlm.evaluation.scoring import Precision, Scored, autocast, evaluating, to_device
from spanlm.models.interfaces import NextWordModel, Readout
from spanlm.models.memories.span_buffer import SpanMixture
from spanlm.models.state import LMState

ADVANCE = 64
"""Segments that are cut at a time: between two passes of a model, which fill the processor's caches with weights, the
same work takes twenty times as long (measured: 0.44 ms a segment against 0.02; the passes of a small model: 6)."""

LessonLoss = Literal["likelihood", "training"]

Report = Callable[[str, int, int], None]
"""Told after each segment what is being done, how many tokens are through, and of how many."""


def quiet(what: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Lesson:
    """A segment and what it teaches.

    Attributes:
        scored: what the model says of it, without a graph.
        gradients: g of every weight that learns, in the order of `learning_weights`.
        tokens: how many were predicted.
        share: tokens / M; 1 for a full segment.
    """

    scored: Scored
    gradients: tuple[Tensor, ...]
    tokens: int
    share: float


def learning_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights that training changes; tied ones once."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def short_segments(segments: Iterable[Segment], length: int) -> Iterator[Segment]:
    """Cut segments in time into such of at most `length` steps; only the first part of one begins anew."""
    for segment in segments:
        for start in range(0, len(segment.inputs), length):
            steps = slice(start, start + length)
            yield replace(
                segment,
                inputs=segment.inputs[steps],
                targets=segment.targets[steps],
                mask=segment.mask[steps],
                reset=segment.reset if start == 0 else torch.zeros_like(segment.reset),
            )


def _in_advance(segments: Iterable[Segment]) -> Iterator[Segment]:
    """Yield the same segments, `ADVANCE` of them made at a time."""
    coming = iter(segments)
    while block := list(islice(coming, ADVANCE)):
        yield from block


def lessons(
    model: NextWordModel,
    segments: Iterable[Segment],
    length: int,
    precision: Precision = "fp32",
    loss: LessonLoss = "likelihood",
) -> Iterator[Lesson]:
    """Read a text with the model in evaluation mode and give what each of its segments teaches.

    State is carried from segment to segment, gradients are not. Between two lessons the weights may be changed.

    Args:
        model: left in the mode it was in; its weights have no `.grad` of this.
        segments: all of one batch size, in any length.
        length: T, steps of a full segment; longer ones are cut.
        precision: of the products.
        loss: whose gradient a lesson has; training: of a model with a span buffer.
    """
    weights, device = list(learning_weights(model).values()), model.device
    state: LMState | None = None
    for segment in _in_advance(short_segments(segments, length)):
        streams, tokens = len(segment.reset), int(segment.mask.sum())
        if state is None or bool(segment.reset.any()):
            initial = model.init_state(streams)
            state = initial if state is None else state.reset(segment.reset, initial)
        segment = to_device(segment, device)
        with evaluating(model), torch.enable_grad():
            with autocast(device, precision):
                readout, state = model(segment.inputs, state)
                scores = model.head.score(readout, segment.targets)
                learnt = scores.log_prob if loss == "likelihood" else _training_score(model, readout, segment.targets)
            # of the loss by each log p: it is not worked out itself
            shares = segment.mask.to(scores.log_prob.dtype).mul_(-1 / (streams * length))
            gradients = torch.autograd.grad(learnt, weights, shares, materialize_grads=True)
        state = state.detach()
        scored = Scored(segment, scores.log_prob.detach(), Readout(readout.features.detach()), scores.metrics)
        yield Lesson(scored, gradients, tokens, tokens / (streams * length))


def _training_score(model: NextWordModel, readout: Readout, targets: Tensor) -> Tensor:
    """What a training makes large, (T, B): log p̃ at its temperature, less the reward's term."""
    assert isinstance(readout.mixture, SpanMixture)  # else there is no other loss
    scores = model.head.score(replace(readout, mixture=readout.mixture.as_trained()), targets)
    return scores.log_prob - scores.extra_loss
