"""Dynamic evaluation beside the forward and backward passes that it needs, to which it adds sums and weight updates.

`python -m benchmarks.dynamic THREADS` prints JSON: milliseconds of one segment of 5 words at Penn Treebank's size, the
median of seven texts after one, with the layers of the LSTM read by torch's kernel and by this library's loop.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import torch

from benchmarks.awd import AWD_PTB
from benchmarks.race import Aim, Contender
from benchmarks.setting import VOCABULARY, Size, Step, raced, random_segments, training_flops
from spanlm.cli.parser import keep_freed_memory
from spanlm.data.batching import Segment
from spanlm.models.encoders import AWDLSTMConfig, awd_lstm
from spanlm.models.kernels import loop_is_faster
from spanlm.models.language_model import LanguageModel
from spanlm.models.ops.precision import autocast
from spanlm.options import Precision
from spanlm.scoring.dynamic.evaluate import adapting
from spanlm.scoring.dynamic.statistics import DynamicStatistics, learning_weights, segment_gradients
from spanlm.scoring.options import LENGTH, DynamicConfig
from spanlm.scoring.stream import Scored
from spanlm.scoring.tally import tally
from spanlm.training.bench import timed

ADAPTING_AWD = replace(AWD_PTB, name="dynamic evaluation, AWD-LSTM PTB size tied", batch_size=1, length=10 * LENGTH)
ADAPTING_SMALL = replace(
    ADAPTING_AWD,
    name="dynamic evaluation, a fifth of that size",
    length=50 * LENGTH,
    model=replace(AWD_PTB.model, embedding_size=80, encoder=AWDLSTMConfig(hidden_size=230, last_size=80)),
)


def dynamic_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """Dynamic evaluation of a text against the passes that it needs, segment by segment."""
    flops = training_flops(size)
    for precision in raced(device):
        passes, adapted = (LanguageModel(size.model, size.vocabulary_size).to(device).eval() for _ in range(2))
        reference = f"its forward and backward passes, {precision}"
        yield Contender(reference, precision, passes_step(passes, precision), flops)
        step, aims = dynamic_step(adapted, precision), [Aim(reference, 1 / 1.3)]
        yield Contender(f"dynamic evaluation, {precision}", precision, step, flops, aims)


def passes_step(model: LanguageModel, precision: Precision) -> Step:
    """Return forward and backward passes over a text in short segments, and nothing besides."""
    weights = list(learning_weights(model).values())

    def step(segment: Segment) -> None:
        state, segment = model.init_state(1), segment.to(model.device)
        for inputs, targets in zip(*(torch.split(x, LENGTH) for x in (segment.inputs, segment.targets)), strict=True):
            with autocast(model.device, precision):
                readout, state = model(inputs, state)
                log_p = model.head.score(readout, targets).log_prob
            torch.autograd.grad(-log_p.mean(), weights, materialize_grads=True)
            state = state.detach()

    return step


def dynamic_step(model: LanguageModel, precision: Precision) -> Step:
    """Return the dynamic evaluation of a text; what it has learnt stays from one text to the next."""
    # the time does not depend on how large gradients usually are
    sizes = {name: torch.full_like(weight, 1e-3).detach() for name, weight in learning_weights(model).items()}
    statistics = DynamicStatistics(sizes, "random", segments=1.0, read=1, tokens=500, whole=False, weights="")
    follower, learn = adapting(model, statistics, DynamicConfig())

    def step(segment: Segment) -> int:
        read = []
        for found in segment_gradients(follower, [segment], LENGTH, precision):
            read.append(found.scored)
            learn(found)
        return tally([Scored.joined(read)], VOCABULARY).tokens

    return step


def kernel_or_loop(rounds: int = 8) -> dict[Precision, dict[str, dict[str, float]]]:
    """Return milliseconds of a segment by precision, by what reads the layers, by what is done."""
    cpu, (text,) = torch.device("cpu"), random_segments(ADAPTING_AWD, 1)
    found: dict[Precision, dict[str, dict[str, float]]] = {}
    for precision in raced(cpu):
        for name, chosen in (("kernel", lambda units, x: False), ("loop", loop_is_faster)):
            for what, make in (("passes", passes_step), ("dynamic evaluation", dynamic_step)):
                step = make(LanguageModel(ADAPTING_AWD.model, ADAPTING_AWD.vocabulary_size).eval(), precision)
                with patch.object(awd_lstm, "loop_is_faster", chosen):
                    seconds = statistics.median([timed(partial(step, text), cpu)[0] for _ in range(rounds)][1:])
                milliseconds = round(1000 * seconds * LENGTH / len(text.inputs), 1)
                found.setdefault(precision, {}).setdefault(name, {})[what] = milliseconds
    return found


if __name__ == "__main__":
    keep_freed_memory()  # as every command of `spanlm` does
    torch.set_num_threads(int(sys.argv[1]))
    json.dump({"threads": int(sys.argv[1]), "milliseconds a segment": kernel_or_loop()}, sys.stdout)
