"""What dynamic evaluation costs beside the forward and backward passes that it needs: sums, and weights that change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from spanlm.benchmark.awd import AWD_PTB
from spanlm.benchmark.contenders import Size, training_flops
from spanlm.benchmark.groups import Aim, Contender, precisions
from spanlm.data.batching import Segment
from spanlm.evaluation.dynamic.evaluate import GradientSums
from spanlm.evaluation.dynamic.statistics import (
    LENGTH,
    DynamicStatistics,
    learning_weights,
    segment_gradients,
    short_segments,
)
from spanlm.evaluation.dynamic.update import DynamicConfig, adapting
from spanlm.evaluation.protocol import Precision, autocast
from spanlm.evaluation.scoring import evaluating, to_device
from spanlm.models.encoders import AWDLSTMConfig
from spanlm.models.language_model import LanguageModel

ADAPTING_AWD = replace(AWD_PTB, name="dynamic evaluation, AWD-LSTM PTB size tied", batch_size=1, length=10 * LENGTH)
ADAPTING_SMALL = replace(
    ADAPTING_AWD,
    name="dynamic evaluation, a fifth of that size",
    length=50 * LENGTH,
    model=replace(AWD_PTB.model, embedding_size=80, encoder=AWDLSTMConfig(hidden_size=230, last_size=80)),
)


def dynamic_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """Dynamic evaluation of a text against the forward and backward passes that it needs, segment by segment."""
    flops = training_flops(size)
    for precision in precisions(device):
        reference = f"its forward and backward passes, {precision}"
        for name, make, aims in (
            (reference, passes_step, ()),
            (f"dynamic evaluation, {precision}", dynamic_step, (Aim(reference, 1 / 1.3),)),
        ):
            model = LanguageModel(size.model, size.vocabulary_size).to(device).eval()
            yield Contender(name, precision, make(model, precision), flops, aims)


def passes_step(model: LanguageModel, precision: Precision) -> Callable[[Segment], None]:
    """Return forward and backward passes over a text in short segments, and nothing besides."""
    weights = list(learning_weights(model).values())

    def step(segment: Segment) -> None:
        state = model.init_state(1)
        for short in short_segments([to_device(segment, model.device)], LENGTH):
            with evaluating(model), torch.enable_grad():
                with autocast(model.device, precision):
                    readout, state = model(short.inputs, state)
                    log_p = model.head.log_prob(readout, short.targets)
                torch.autograd.grad(-log_p.mean(), weights, materialize_grads=True)
            state = state.detach()

    return step


def dynamic_step(model: LanguageModel, precision: Precision) -> Callable[[Segment], None]:
    """Return the project's dynamic evaluation of a text; what its weights have become stays from one to the next."""
    # how large gradients usually are is of no matter to the time
    sizes = {name: torch.full_like(weight, 1e-3).detach() for name, weight in learning_weights(model).items()}
    statistics = DynamicStatistics(sizes, "random", segments=1.0, read=1, tokens=500, whole=False)
    follower, learn = adapting(model, statistics, DynamicConfig())

    def step(segment: Segment) -> None:
        sums = GradientSums(-1)
        for lesson in segment_gradients(follower, [segment], LENGTH, precision):
            sums.add(lesson.scored)
            learn(lesson)
        assert sums.total.tokens == int(segment.mask.sum())

    return step
