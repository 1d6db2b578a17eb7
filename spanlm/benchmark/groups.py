"""What is compared with what: the contenders of one size, and what their ratios should reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Literal, get_args

import torch

from spanlm.benchmark.awd import awd_trainer, ported_step
from spanlm.benchmark.contenders import (
    CACHE,
    Size,
    cache_flops,
    evaluation_step,
    project_trainer,
    sentence_step,
    stream_step,
    synthetic_corpus,
    textbook_step,
    training_flops,
    with_memory,
    without_memory,
)
from spanlm.data.batching import Segment, make_batcher
from spanlm.evaluation.protocol import Precision, usable
from spanlm.models.memories import AnyMemoryConfig, AttentiveConfig, NoMemoryConfig

SEGMENTS = 4

Quantity = Literal["speed", "memory"]


@dataclass(frozen=True)
class Aim:
    """What a contender is compared with.

    Attributes:
        reference: the name of another one.
        target: what the ratio should be: at least, of speed, at most, of memory; None: it is only shown.
        what: is compared.
    """

    reference: str
    target: float | None = None
    what: Quantity = "speed"

    def reached(self, ratio: float) -> bool:
        """Say whether a ratio is what was aimed at; it is without a target."""
        return self.target is None or (ratio >= self.target if self.what == "speed" else ratio <= self.target)


@dataclass(frozen=True)
class Contender:
    """A step to time, its floating-point operations a token, and what it is compared with."""

    name: str
    precision: Precision
    step: Callable[[Segment], None]
    flops: float
    aims: tuple[Aim, ...] = ()


def precisions(device: torch.device) -> list[Precision]:
    """Return those that a device computes in."""
    return [precision for precision in get_args(Precision) if usable(precision, device) == precision]


def beside_port(port: str, precision: Precision, targets: dict[Precision, float]) -> tuple[Aim, ...]:
    """Aim at a step in fp32; what bf16 alone gains it shows beside the same step in bf16."""
    aim = Aim(f"{port}, training fp32", targets[precision])
    return (aim,) if precision == "fp32" else (aim, Aim(f"{port}, training bf16"))


def textbook_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """The textbook's training step against the project's, then the project's evaluation."""
    corpus, flops = synthetic_corpus(size, SEGMENTS), training_flops(size)
    targets: dict[Precision, float] = {"fp32": 1.0, "bf16": 1.8}
    for precision in precisions(device):
        step = textbook_step(size, precision, device)
        yield Contender(f"textbook, training {precision}", precision, step, flops)
    for precision in precisions(device):
        trainer = project_trainer(size, precision, str(device), corpus)
        name = f"spanlm, training {precision}"
        yield Contender(name, precision, trainer.step, flops, beside_port("textbook", precision, targets))
        evaluation = evaluation_step(trainer.model, precision)
        yield Contender(f"spanlm, evaluation {precision}", precision, evaluation, flops / 3, (Aim(name, 2.5),))


def memory_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """The model with its memory against the same encoder and softmax without."""
    corpus, flops = synthetic_corpus(size, SEGMENTS), training_flops(size)
    for precision in precisions(device):
        plain = without_memory(project_trainer(size, precision, str(device), corpus))
        reference = f"same encoder and softmax, no memory, training {precision}"
        yield Contender(reference, precision, plain.step, training_flops(size, memory=False))
        trainer = project_trainer(size, precision, str(device), corpus)
        name = f"spanlm, training {precision}"
        yield Contender(name, precision, trainer.step, flops, (Aim(reference, 0.85),))
        evaluation = evaluation_step(trainer.model, precision)
        yield Contender(f"spanlm, evaluation {precision}", precision, evaluation, flops / 3, (Aim(name, 2.5),))


def attentive_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """The attentive memory, single and combined, against the same model without it."""
    corpus = synthetic_corpus(size, SEGMENTS)
    memories: list[tuple[str, AnyMemoryConfig, float | None]] = [
        ("no memory", NoMemoryConfig(), None),
        ("attentive, single", AttentiveConfig(score="single"), 0.91),
        ("attentive, combined", AttentiveConfig(score="combined"), 0.80),
    ]
    for precision in precisions(device):
        for name, memory, target in memories:
            chosen = with_memory(size, memory)
            step = sentence_step(project_trainer(chosen, precision, str(device), corpus, "sentences"))
            reference = f"no memory, training {precision}"
            full = f"{name}, training {precision}"
            aims = () if full == reference else (Aim(reference, target),)
            yield Contender(full, precision, step, training_flops(chosen), aims)


def awd_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """The AWD-LSTM's training step against that of a port of its authors' code: the same noise, the same penalties."""
    corpus, flops = synthetic_corpus(size, SEGMENTS), training_flops(size)
    targets: dict[Precision, float] = {"fp32": 1.0, "bf16": 1.5}
    for precision in precisions(device):
        yield Contender(f"port, training {precision}", precision, ported_step(size, precision, device), flops)
    for precision in precisions(device):
        step = awd_trainer(size, precision, str(device), corpus).step
        name = f"spanlm, training {precision}"
        yield Contender(name, precision, step, flops, beside_port("port", precision, targets))


def cache_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """The evaluation with a neural cache that is full against the one without."""
    corpus, flops = synthetic_corpus(size, SEGMENTS), training_flops(size) / 3
    for precision in precisions(device):
        model = project_trainer(size, precision, str(device), corpus).model
        reference = f"spanlm, evaluation {precision}"
        yield Contender(reference, precision, stream_step(model, precision, None), flops)
        cached = stream_step(model, precision, CACHE)
        for segment in random_segments(size, -(-CACHE.window // size.length)):
            cached(segment)
        name = f"with a cache of {CACHE.window:,} words, {precision}"
        target = 1 / 1.3 if precision == "fp32" else None
        yield Contender(name, precision, cached, flops + cache_flops(size, CACHE), (Aim(reference, target),))


def random_segments(size: Size, count: int) -> list[Segment]:
    """Return segments of the random text, over and over."""
    corpus = synthetic_corpus(size, SEGMENTS)
    tokens, eos_id = corpus.splits["train"], corpus.vocabulary.eos_id
    batcher = make_batcher("streams", tokens, eos_id, batch_size=size.batch_size, length=size.length)
    return list(islice(cycle(batcher.segments()), count))
