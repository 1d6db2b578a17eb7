"""How fast a configuration trains on this machine: its own steps on its own corpus, and where a step's time goes."""

from __future__ import annotations

import ctypes
import gc
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, get_args

import torch
from torch.profiler import ProfilerActivity, profile

from spanlm.config import RunConfig
from spanlm.data.batching import Batcher, Segment
from spanlm.data.corpora import Corpus
from spanlm.errors import RunError
from spanlm.evaluation.protocol import Protocol
from spanlm.evaluation.scoring import score, tally
from spanlm.models.counting import count_configured
from spanlm.models.interfaces import NextWordModel
from spanlm.models.ops.precision import Precision, usable
from spanlm.store.process import pick_device
from spanlm.store.provenance import provenance
from spanlm.training.progress import Watcher
from spanlm.training.trainer import Trainer

Result = TypeVar("Result")

_WARM_UP, _SCORED = 2, 5


@dataclass(frozen=True)
class Operation:
    """One kind of operation in a step: its time without the operations it calls (on a GPU its kernels'), its calls."""

    name: str
    milliseconds: float
    calls: float


@dataclass(frozen=True)
class WatchedStep:
    """A profiled step: its mean time, the longest operations, and how many others there are and take together.

    What the operations do not account for is Python or waiting.
    """

    milliseconds: float
    operations: list[Operation]
    other_operations: int
    other_milliseconds: float


@dataclass(frozen=True)
class StepSpeed:
    """The median step, and the median of the steps' own rates, since segments differ in length and width."""

    milliseconds: float
    tokens_per_second: float


@dataclass(frozen=True)
class TrainingSpeed:
    """How fast one configuration trains in one precision.

    An epoch is its training at that rate, `validation_seconds` is reading `valid` after it, `step_megabytes` as the
    function of that name returns it; `watched`, and tokens per second by number of threads, only if asked for.
    """

    precision: str
    milliseconds: float
    tokens_per_second: float
    epoch_seconds: float
    validation_seconds: float
    step_megabytes: float | None
    watched: WatchedStep | None
    by_threads: dict[int, float] | None = None


@dataclass(frozen=True)
class TimedTraining:
    """One configuration (as in `config.yaml`), its sizes, and its speed in each precision."""

    corpus: str
    vocabulary_size: int
    epoch_tokens: int
    parameters: int
    config: dict[str, Any]
    speeds: list[TrainingSpeed]


@dataclass(frozen=True)
class TrainingReport:
    """Configurations by name, timed steps of each, and time, command, commit and machine as `provenance` has them."""

    started: dict[str, Any]
    rounds: int
    trainings: dict[str, TimedTraining]

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `by_threads` only where it was measured."""
        tree = asdict(self)
        for speed in (speed for training in tree["trainings"].values() for speed in training["speeds"]):
            if speed["by_threads"] is None:
                del speed["by_threads"]
        return tree


def training_report(
    named: dict[str, tuple[RunConfig, Corpus]],
    device_name: str = "auto",
    rounds: int = 15,
    *,
    operations: int = 0,
    threads: Sequence[int] = (),
    note: Callable[[str], None] = lambda text: None,
) -> TrainingReport:
    """Time training steps of configurations, as their first epochs do them, in each precision of the device.

    Args:
        named: configurations with their corpora, by name. Their precision and device are ignored.
        device_name: auto, cpu, cuda.
        rounds: steps of each, from all over an epoch.
        operations: profile a step and report so many of its operations; 0: do not profile.
        threads: numbers of CPU threads to compare.
        note: called with what is measured next.

    Raises:
        InputError: a configuration cannot be trained as it is.
        RunError: the loss of one is soon not finite.
    """
    device, found = pick_device(device_name, "--device"), dict[str, TimedTraining]()
    started = provenance(device)
    for name, (config, corpus) in named.items():
        speeds = list[TrainingSpeed]()
        for precision in precisions(device):
            note(f"{name}, {precision}")
            training = replace(config.training, precision=precision, device=str(device), log_every=2**31)
            trainer = idle_trainer(replace(config, training=training), corpus)
            try:
                speeds.append(_speed(trainer, rounds, operations, threads))
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


def precisions(device: torch.device) -> list[Precision]:
    """Return those that a device computes in."""
    return [precision for precision in get_args(Precision) if usable(precision, device) == precision]


def idle_trainer(config: RunConfig, corpus: Corpus) -> Trainer:
    """Make a trainer for its steps alone: its folder is empty and gone, and nobody watches it."""
    with tempfile.TemporaryDirectory() as folder:
        return Trainer(config, corpus, Path(folder), Watcher())


def _speed(trainer: Trainer, rounds: int, operations: int, threads: Sequence[int]) -> TrainingSpeed:
    precision, segments = trainer.config.training.precision, spread(trainer.batcher, rounds)
    warm_up(trainer)
    megabytes = step_megabytes(partial(trainer.step, segments[0]), trainer.device)
    speed = step_speed(trainer, segments)
    valid = len(trainer.corpus.splits["valid"])
    return TrainingSpeed(
        precision=precision,
        milliseconds=speed.milliseconds,
        tokens_per_second=speed.tokens_per_second,
        epoch_seconds=trainer.batcher.targets / speed.tokens_per_second,
        validation_seconds=valid * scoring_seconds(trainer.model, trainer.valid, precision),
        step_megabytes=megabytes,
        watched=watched_step(trainer.step, segments, trainer.device, operations) if operations else None,
        by_threads=_by_threads(trainer, segments, threads) if threads else None,
    )


def _by_threads(trainer: Trainer, segments: list[Segment], threads: Sequence[int]) -> dict[int, float]:
    before, found = torch.get_num_threads(), dict[int, float]()
    try:
        for count in threads:
            torch.set_num_threads(count)
            warm_up(trainer)
            found[count] = step_speed(trainer, segments).tokens_per_second
    finally:
        torch.set_num_threads(before)
    return found


def timed(call: Callable[[], Result], device: torch.device) -> tuple[float, Result]:
    """Return the seconds that a call takes until the device has done all of it, and its result."""
    _synchronise(device)
    began = time.perf_counter()
    result = call()
    _synchronise(device)
    return time.perf_counter() - began, result


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def spread(batcher: Batcher, count: int) -> list[Segment]:
    """Return so many segments from all over an epoch, some twice if it has fewer: an epoch's parts differ."""
    segments = batcher.count()
    return [next(batcher.segments(start=number * segments // count)) for number in range(count)]


def warm_up(trainer: Trainer) -> None:
    """Do steps that are not timed: the first ones also fill caches and make the optimiser's state."""
    for segment in spread(trainer.batcher, _WARM_UP):
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
    """Return the seconds of evaluation per token, from the first segments of a text."""
    protocol = Protocol(precision=precision)
    tally(score(model, islice(batcher.segments(), 1), protocol), -1)
    segments = islice(batcher.segments(), _SCORED)
    seconds, read = timed(lambda: tally(score(model, segments, protocol), -1), model.device)
    return seconds / read.tokens


def step_megabytes(step: Callable[[], object], device: torch.device) -> float | None:
    """Do a step and return the most memory it took beyond what was held before: the GPU's, or on Linux the process's.

    None where the system does not say.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        step()
        return (torch.cuda.max_memory_allocated(device) - held) / 2**20
    gc.collect()
    with suppress(AttributeError):  # only the GNU C library has it
        ctypes.CDLL(None).malloc_trim(0)  # freed memory that it keeps would serve this step, uncounted
    before = None
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM, the process's peak, begins anew
        before = _process_megabytes("VmRSS")
    step()
    peak = None if before is None else _process_megabytes("VmHWM")
    # the system may take pages back meanwhile
    return None if before is None or peak is None else max(0.0, peak - before)


def _process_megabytes(name: str) -> float | None:
    found = re.search(rf"^{name}:\s*(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) / 2**10 if found else None


def watched_step(
    step: Callable[[Segment], None], segments: Sequence[Segment], device: torch.device, most: int
) -> WatchedStep:
    """Profile a step that is warm, on each segment, and report its `most` longest operations."""
    _profiled(step, segments[:1], device)  # a GPU's profiler is slow to begin
    watched, seconds = _profiled(step, segments, device)
    # kernels have rows of their own, whose time is also that of the operations that launched them
    rows = [row for row in watched.key_averages() if row.device_type.name == "CPU" and not row.is_user_annotation]
    time, steps = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total", len(segments)
    found = [Operation(row.key, getattr(row, time) / 1e3 / steps, row.count / steps) for row in rows]
    found = sorted((one for one in found if one.milliseconds > 0), key=lambda one: -one.milliseconds)
    others = found[most:]
    return WatchedStep(seconds * 1e3 / steps, found[:most], len(others), sum(one.milliseconds for one in others))


def _profiled(
    step: Callable[[Segment], None], segments: Sequence[Segment], device: torch.device
) -> tuple[profile, float]:
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities, acc_events=True) as profiler:
        seconds = sum(timed(partial(step, segment), device)[0] for segment in segments)
    return profiler, seconds
