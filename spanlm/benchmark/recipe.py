"""How fast one configuration trains here: its own steps on its own corpus, what an epoch takes, and where time goes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from spanlm.benchmark.clock import timed
from spanlm.benchmark.contenders import idle_trainer
from spanlm.benchmark.groups import precisions
from spanlm.benchmark.memory import Peak
from spanlm.benchmark.operations import WatchedStep, watched_step
from spanlm.config import RunConfig
from spanlm.data.batching import Batcher, Segment
from spanlm.data.corpora import Corpus
from spanlm.errors import RunError
from spanlm.evaluation.protocol import Precision, Protocol
from spanlm.evaluation.scoring import Tally, score, tally
from spanlm.models.counting import count_configured
from spanlm.models.interfaces import NextWordModel
from spanlm.store.machine import pick_device
from spanlm.store.provenance import provenance
from spanlm.training.trainer import Trainer

WARM_UP = 2
_SCORED = 5


@dataclass(frozen=True)
class StepSpeed:
    """The speed of some training steps.

    Attributes:
        milliseconds: the median of one.
        tokens_per_second: the median of what each has: drawn segments differ in length, batches of sentences in width.
    """

    milliseconds: float
    tokens_per_second: float


@dataclass(frozen=True)
class TrainingSpeed:
    """How fast one configuration trains in one precision.

    Attributes:
        precision: of its products.
        milliseconds: median of one step.
        tokens_per_second: in training.
        epoch_seconds: what an epoch's training takes at that speed.
        validation_seconds: what reading `valid` after it takes.
        step_megabytes: most memory that a step took beside what was held before it; None if unknown.
        watched: where a step's time goes, if it was asked for.
    """

    precision: str
    milliseconds: float
    tokens_per_second: float
    epoch_seconds: float
    validation_seconds: float
    step_megabytes: float | None
    watched: WatchedStep | None


@dataclass(frozen=True)
class TimedTraining:
    """What was timed of one configuration.

    Attributes:
        corpus: by name.
        vocabulary_size: V.
        epoch_tokens: that an epoch predicts.
        parameters: all.
        config: as `config.yaml` has it.
        speeds: in each precision.
    """

    corpus: str
    vocabulary_size: int
    epoch_tokens: int
    parameters: int
    config: dict[str, Any]
    speeds: list[TrainingSpeed]


@dataclass(frozen=True)
class TrainingReport:
    """Several configurations.

    Attributes:
        started: when, by which command, of which commit, on what machine, as `provenance` has it.
        rounds: steps that were timed, of each.
        trainings: by name.
    """

    started: dict[str, Any]
    rounds: int
    trainings: dict[str, TimedTraining]

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
    """Time training steps of configurations as their first epochs have them, in each precision that the device has.

    Args:
        named: configurations with their corpora, by name. Their precision and device are left aside.
        device_name: auto, cpu, cuda.
        rounds: steps of each, from all over an epoch.
        most: how many of a step's operations to tell; 0: none.
        note: told what is being measured.

    Raises:
        InputError: one that cannot be trained as it is.
        RunError: one whose loss is soon no number.
    """
    device, found = pick_device(device_name, "--device"), dict[str, TimedTraining]()
    started = provenance(device)
    for name, (config, corpus) in named.items():
        speeds = list[TrainingSpeed]()
        for precision in precisions(device):
            note(f"{name}, {precision}")
            # nobody is told of a step: nothing is open that it could be told to
            training = replace(config.training, precision=precision, device=str(device), log_every=2**31)
            trainer = idle_trainer(replace(config, training=training), corpus)
            try:
                speeds.append(_speed(trainer, rounds, most))
            except RunError as error:
                raise RunError(
                    f"{name}, {precision}: cannot be timed, since the loss or its gradient is soon not finite. Take a "
                    "lower training.optimizer.lr or training.optimizer.clip."
                ) from error
        found[name] = TimedTraining(
            corpus=corpus.name,
            vocabulary_size=len(corpus.vocabulary),
            epoch_tokens=trainer.batcher.targets,
            parameters=count_configured(config.model, len(corpus.vocabulary)).total,
            config=config.to_tree(),
            speeds=speeds,
        )
    return TrainingReport(started, rounds, found)


def _speed(trainer: Trainer, rounds: int, most: int) -> TrainingSpeed:
    precision, segments = trainer.config.training.precision, spread(trainer.batcher, rounds)
    warm_up(trainer)
    with Peak(trainer.device) as peak:
        trainer.step(segments[0])
    speed = step_speed(trainer, segments)
    valid = len(trainer.corpus.splits["valid"])
    return TrainingSpeed(
        precision=precision,
        milliseconds=speed.milliseconds,
        tokens_per_second=speed.tokens_per_second,
        epoch_seconds=trainer.batcher.targets / speed.tokens_per_second,
        validation_seconds=valid * scoring_seconds(trainer.model, trainer.valid, precision),
        step_megabytes=peak.megabytes,
        watched=watched_step(trainer.step, segments, trainer.device, most) if most else None,
    )


def spread(batcher: Batcher, count: int) -> list[Segment]:
    """Return so many segments from all over an epoch, some twice if there are fewer: not all parts are alike."""
    segments = batcher.count()
    return [next(batcher.segments(start=number * segments // count)) for number in range(count)]


def warm_up(trainer: Trainer) -> None:
    """Do what is done only once, or only at first."""
    for segment in spread(trainer.batcher, WARM_UP):
        trainer.step(segment)


def step_speed(trainer: Trainer, segments: Iterable[Segment]) -> StepSpeed:
    """Time training steps, one for each segment."""
    times, rates = [], []
    for segment in segments:
        seconds, _ = timed(partial(trainer.step, segment), trainer.device)
        times.append(seconds)
        rates.append(int(segment.mask.sum()) / seconds)
    return StepSpeed(statistics.median(times) * 1e3, statistics.median(rates))


def scoring_seconds(model: NextWordModel, batcher: Batcher, precision: Precision = "fp32") -> float:
    """Return how long a token takes that is only scored, from the first segments of a text."""

    def read(count: int) -> Tally:
        return tally(score(model, islice(batcher.segments(), count), Protocol(precision=precision)), -1)

    read(1)
    seconds, found = timed(lambda: read(_SCORED), model.device)
    return seconds / found.tokens
