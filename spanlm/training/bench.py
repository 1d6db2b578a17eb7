"""Training speed of a configuration on this machine, and a profile of its steps."""

from __future__ import annotations

import ctypes
import gc
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

import torch
from torch.profiler import ProfilerActivity, profile

from spanlm.config import RunConfig
from spanlm.data.batching import Batcher, Segment
from spanlm.data.corpora import Corpus
from spanlm.errors import RunError
from spanlm.models.counting import count_configured
from spanlm.models.interfaces import NextWordModel
from spanlm.models.ops.precision import lacks
from spanlm.options import Precision
from spanlm.scoring.protocol import Protocol
from spanlm.scoring.stream import read
from spanlm.training.config import BenchOptions
from spanlm.training.dispatch import DispatchedStep, dispatched
from spanlm.training.graph import USUAL
from spanlm.training.progress import Watcher
from spanlm.training.trainer import Trainer

Result = TypeVar("Result")

_WARM_UP, _SCORED = 2, 5


@dataclass(frozen=True)
class Operation:
    """An operation in a step: its self time (on a GPU, that of its kernels) and its number of calls."""

    name: str
    milliseconds: float
    calls: float


@dataclass(frozen=True)
class WatchedStep:
    """A profiled step: its mean time, its longest operations, and number and total time of the other operations.

    The rest of the time is Python or waiting.
    """

    milliseconds: float
    operations: list[Operation]
    other_operations: int
    other_milliseconds: float


@dataclass(frozen=True)
class TrainingSpeed:
    """Speed in one precision: medians over steps of different sizes, and the time of an epoch and a validation."""

    precision: str
    milliseconds: float
    tokens_per_second: float
    epoch_seconds: float
    validation_seconds: float
    step_megabytes: float | None
    watched: WatchedStep | None


@dataclass(frozen=True)
class TimedTraining:
    """A configuration (as in `config.yaml`), its sizes, its speeds by precision, and what a step asks of a GPU."""

    corpus: str
    vocabulary_size: int
    epoch_tokens: int
    parameters: int
    config: dict[str, Any]
    speeds: list[TrainingSpeed]
    gpu_step: DispatchedStep

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"gpu_step": self.gpu_step.to_json()}


def time_training(
    name: str,
    config: RunConfig,
    corpus: Corpus,
    device: torch.device,
    options: BenchOptions,
    *,
    note: Callable[[str], None] = lambda text: None,
) -> TimedTraining:
    """Time training steps from the first epoch of a configuration, in each precision of the device.

    `name` is for messages; precision and device of `config` are ignored; `note` is called before each measurement.

    Raises:
        InputError: the configuration cannot be trained.
        RunError: the loss soon stops being finite.
    """
    speeds = []
    for precision in precisions(device):
        note(f"{name}, {precision}")
        training = replace(config.training, precision=precision, device=str(device))
        trainer = idle_trainer(replace(config, training=training), corpus)
        try:
            speeds.append(_speed(trainer, options))
        except RunError as error:
            raise RunError(
                f"{name}, {precision}: cannot be timed, since the loss or its gradient is soon not finite. Take a "
                "lower training.optimizer.lr or training.optimizer.clip."
            ) from error
    size = len(corpus.vocabulary)
    parameters = count_configured(config.model, size).total
    targets, gpu_step = trainer.batcher.targets, dispatched(trainer, *spread(trainer.batcher, 1))
    return TimedTraining(corpus.name, size, targets, parameters, config.to_tree(), speeds, gpu_step)


def precisions(device: torch.device) -> list[Precision]:
    return [precision for precision in get_args(Precision) if not lacks(precision, device)]


def idle_trainer(config: RunConfig, corpus: Corpus) -> Trainer:
    """Make a trainer without folder and watcher, only for steps."""
    with tempfile.TemporaryDirectory() as folder:
        return Trainer(config, corpus, Path(folder), Watcher())


def _speed(trainer: Trainer, options: BenchOptions) -> TrainingSpeed:
    precision, segments = trainer.config.training.precision, spread(trainer.batcher, options.rounds)
    recorded = [] if trainer.graphs is None else [segment for segment in segments for _ in range(USUAL + 1)]
    for segment in spread(trainer.batcher, _WARM_UP) + recorded:  # fills caches, creates the optimiser's state
        trainer.step(segment)
    megabytes = step_megabytes(partial(trainer.step, segments[0]), trainer.device)
    times = [timed(partial(trainer.step, segment), trainer.device)[0] for segment in segments]
    rates = [int(segment.mask.sum()) / seconds for segment, seconds in zip(segments, times, strict=True)]
    milliseconds, rate = statistics.median(times) * 1e3, statistics.median(rates)
    valid = len(trainer.corpus.splits["valid"]) * _scoring_seconds(trainer.model, trainer.valid, precision)
    operations = options.operations
    watched = watched_step(trainer.step, segments, trainer.device, operations) if operations else None
    epoch = trainer.batcher.targets / rate
    return TrainingSpeed(precision, milliseconds, rate, epoch, valid, megabytes, watched)


def timed(call: Callable[[], Result], device: torch.device) -> tuple[float, Result]:
    """Return the seconds until the device has finished a call, and the call's result."""
    _synchronise(device)
    began = time.perf_counter()
    result = call()
    _synchronise(device)
    return time.perf_counter() - began, result


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def spread(batcher: Batcher, count: int) -> list[Segment]:
    """Return `count` segments from all over an epoch, since their sizes differ; a short epoch repeats some."""
    segments = batcher.count()
    return [next(batcher.segments(start=number * segments // count)) for number in range(count)]


def _scoring_seconds(model: NextWordModel, batcher: Batcher, precision: Precision) -> float:
    """Return the seconds of evaluation per token, over segments from all over a text."""
    segments, protocol = spread(batcher, _SCORED), Protocol(precision=precision)

    def tokens_of(chosen: Sequence[Segment]) -> int:
        return sum(len(scored) for segment in chosen for scored in read(model, [segment], protocol))

    tokens_of(segments[:1])
    seconds, tokens = timed(partial(tokens_of, segments), model.device)
    return seconds / tokens


def step_megabytes(step: Callable[[], object], device: torch.device) -> float | None:
    """Do a step; return its peak of additional megabytes on the GPU, or on Linux in the process; None elsewhere."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        step()
        return (torch.cuda.max_memory_allocated(device) - held) / 2**20
    gc.collect()
    with suppress(AttributeError):  # only the GNU C library has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)  # the step would reuse freed memory uncounted
    before = None
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, the process's peak
        before = _process_megabytes("VmRSS")
    step()
    peak = None if before is None else _process_megabytes("VmHWM")
    # the system may reclaim pages meanwhile
    return None if before is None or peak is None else max(0.0, peak - before)


def _process_megabytes(name: str) -> float | None:
    match = re.search(rf"^{name}:\s*(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(match[1]) / 2**10 if match else None


def watched_step(
    step: Callable[[Segment], None], segments: Sequence[Segment], device: torch.device, most: int
) -> WatchedStep:
    """Profile a warm step on each segment; report the `most` longest operations."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    for chosen in (segments[:1], segments):  # a GPU's profiler is slow to begin
        with profile(activities=activities, acc_events=True) as profiler:
            seconds = sum(timed(partial(step, segment), device)[0] for segment in chosen)
    # skip the rows of kernels, whose time is also in the rows of the operations that launched them
    rows = [row for row in profiler.key_averages() if row.device_type.name == "CPU" and not row.is_user_annotation]
    time, steps = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total", len(segments)
    operations = [Operation(row.key, getattr(row, time) / 1e3 / steps, row.count / steps) for row in rows]
    operations = sorted((x for x in operations if x.milliseconds > 0), key=lambda x: -x.milliseconds)
    others = operations[most:]
    return WatchedStep(seconds * 1e3 / steps, operations[:most], len(others), sum(x.milliseconds for x in others))
