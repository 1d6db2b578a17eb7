"""How fast one configuration trains here: its own steps on its own corpus, what an epoch takes, and where time goes."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

from spanlm.benchmark.clock import timed
from spanlm.benchmark.groups import PRECISIONS
from spanlm.benchmark.memory import Peak
from spanlm.benchmark.operations import Operation, operations
from spanlm.config import RunConfig
from spanlm.data.batching import Batcher, Segment
from spanlm.data.corpora import Corpus
from spanlm.device import pick_device
from spanlm.evaluation.scoring import Precision, tally
from spanlm.models.next_word_model import NextWordModel
from spanlm.training.events import Watcher
from spanlm.training.provenance import provenance
from spanlm.training.trainer import Trainer

WARM_UP = 2
WATCHED = 3
"""Steps whose operations are looked at."""

_SCORED = 5


@dataclass(frozen=True)
class Steps:
    """Some steps of a training.

    Attributes:
        seconds: the median of one.
        tokens: the mean of one: drawn segments have different lengths, sentences padding.
    """

    seconds: float
    tokens: float


@dataclass(frozen=True)
class TrainingSpeed:
    """How fast one configuration trains in one precision.

    Attributes:
        precision: of its products.
        milliseconds: median of one step.
        tokens_per_second: in training.
        steps: of an epoch.
        training_seconds: those of an epoch, at the median.
        validation_seconds: what reading `valid` after it takes.
        step_megabytes: most memory that its steps took beside what was held before them; None if unknown.
        operations: the longest of a step's, if they were asked for.
    """

    precision: str
    milliseconds: float
    tokens_per_second: float
    steps: int
    training_seconds: float
    validation_seconds: float
    step_megabytes: float | None
    operations: list[Operation]


@dataclass(frozen=True)
class TrainingReport:
    """Several configurations.

    Attributes:
        started: when, by which command, of which commit, on what machine, as `provenance` has it.
        rounds: steps that were timed, of each.
        trainings: by name, each in every precision.
    """

    started: dict[str, Any]
    rounds: int
    trainings: dict[str, list[TrainingSpeed]]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def training_report(
    named: dict[str, tuple[RunConfig, Corpus]],
    device_name: str = "auto",
    rounds: int = 15,
    most: int = 0,
    note: Callable[[str], None] = lambda text: None,
) -> TrainingReport:
    """Time the first training steps of configurations, in float32 and in bfloat16.

    Args:
        named: configurations with their corpora, by name. Their precision and device are left aside.
        device_name: auto, cpu, cuda.
        rounds: steps of each; the median is reported.
        most: how many of a step's operations to tell; 0: none.
        note: told what is being measured.

    Raises:
        InputError: one that cannot be trained as it is.
    """
    device, found = pick_device(device_name, "--device"), dict[str, list[TrainingSpeed]]()
    started = provenance(device)
    for name, (config, corpus) in named.items():
        found[name] = []
        for precision in PRECISIONS:
            note(f"{name}, {precision}")
            # nobody is told of a step: nothing is open that it could be told to
            training = replace(config.training, precision=precision, device=str(device), log_every=2**31)
            found[name].append(_speed(replace(config, training=training), corpus, rounds, most))
    return TrainingReport(started, rounds, found)


def _speed(config: RunConfig, corpus: Corpus, rounds: int, most: int) -> TrainingSpeed:
    trainer = Trainer(config, corpus, Path(tempfile.gettempdir()), Watcher())
    coming, precision = over_and_over(trainer.batcher), config.training.precision
    with Peak(trainer.device) as peak:
        for segment in islice(coming, WARM_UP):
            trainer.step(segment)
    steps = timed_steps(trainer, islice(coming, rounds))
    return TrainingSpeed(
        precision=precision,
        milliseconds=steps.seconds * 1e3,
        tokens_per_second=steps.tokens / steps.seconds,
        steps=trainer.segments,
        training_seconds=trainer.segments * steps.seconds,
        validation_seconds=len(corpus.splits["valid"]) * scoring_seconds(trainer.model, trainer.valid, precision),
        step_megabytes=peak.megabytes,
        operations=operations(trainer.step, islice(coming, WATCHED), trainer.device, most) if most else [],
    )


def over_and_over(batcher: Batcher) -> Iterator[Segment]:
    """Yield the segments of the first epoch, again and again."""
    return chain.from_iterable(batcher.segments() for _ in repeat(None))


def timed_steps(trainer: Trainer, segments: Iterator[Segment]) -> Steps:
    """Time training steps, one for each segment."""
    times, tokens = [], []
    for segment in segments:
        times.append(timed(partial(trainer.step, segment), trainer.device))
        tokens.append(int(segment.mask.sum()))
    return Steps(statistics.median(times), statistics.fmean(tokens))


def scoring_seconds(model: NextWordModel, batcher: Batcher, precision: Precision = "fp32") -> float:
    """Return how long a token takes that is only scored, from the first segments of a text."""
    tally(model, islice(batcher.segments(), 1), -1, precision)
    tokens = 0

    def scored() -> None:
        nonlocal tokens
        tokens = tally(model, islice(batcher.segments(), _SCORED), -1, precision).tokens

    return timed(scored, model.device) / tokens
