"""Taking turns: every contender's step is timed in every round, so that the machine's moods hit all alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from spanlm.benchmark.awd import AWD_PTB
from spanlm.benchmark.clock import timed
from spanlm.benchmark.contenders import KVP_834, LSTM_650, ONE_STREAM_650, SENTENCES_650, Size
from spanlm.benchmark.dynamic import ADAPTING_AWD, ADAPTING_SMALL, dynamic_group
from spanlm.benchmark.groups import (
    Aim,
    Contender,
    Quantity,
    attentive_group,
    awd_group,
    cache_group,
    memory_group,
    precisions,
    random_segments,
    textbook_group,
)
from spanlm.benchmark.memory import Peak
from spanlm.benchmark.mixture import MOS_PTB, mixture_group
from spanlm.benchmark.span_buffer import AWD_SNB, span_buffer_group
from spanlm.evaluation.protocol import Precision
from spanlm.models.ops.linear import product
from spanlm.store.machine import pick_device
from spanlm.store.provenance import provenance

MATRIX = 2048


@dataclass(frozen=True)
class Compared:
    """One contender beside another.

    Attributes:
        reference: of which contender.
        what: speed (its tokens_per_second over the reference's) or memory (its step_megabytes over the reference's).
        ratio: that; None if unknown.
        target: what it should reach: at least, of speed, at most, of memory; None if there is no target.
        reached: whether it does; None without a target, or if unknown.
    """

    reference: str
    what: Quantity
    ratio: float | None
    target: float | None
    reached: bool | None


@dataclass(frozen=True)
class Measured:
    """One contender.

    Attributes:
        name: what was timed.
        precision: of its products.
        milliseconds: median of one step.
        fastest_milliseconds: of all its steps.
        tokens_per_second: at the median.
        of_ceiling: floating-point operations a second over those of the matrix product in the same precision.
        step_megabytes: most memory that its steps took beside what was held before them; None if unknown.
        compared: with others; that with itself is left out.
    """

    name: str
    precision: str
    milliseconds: float
    fastest_milliseconds: float
    tokens_per_second: float
    of_ceiling: float
    step_megabytes: float | None
    compared: list[Compared]


@dataclass(frozen=True)
class Report:
    """A whole benchmark.

    Attributes:
        started: when, by which command, of which commit, on what machine, as `provenance` has it.
        rounds: steps of each contender.
        ceiling: GFLOP/s of a matrix product, by precision.
        groups: contenders by size.
    """

    started: dict[str, Any]
    rounds: int
    ceiling: dict[str, float]
    groups: dict[str, list[Measured]]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def benchmark(device_name: str = "auto", rounds: int = 15, note: Callable[[str], None] = lambda text: None) -> Report:
    """Measure everything.

    Args:
        device_name: auto, cpu, cuda.
        rounds: steps of each contender; the median is reported.
        note: told what is being measured.
    """
    device = pick_device(device_name, "--device")
    started = provenance(device)
    note("matrix product")
    ceiling: dict[str, float] = {precision: matrix_gflops(device, precision) for precision in precisions(device)}
    groups = {}
    for size, make in (
        (LSTM_650, textbook_group),
        (KVP_834, memory_group),
        (SENTENCES_650, attentive_group),
        (ONE_STREAM_650, cache_group),
        (AWD_PTB, awd_group),
        (AWD_SNB, span_buffer_group),
        (MOS_PTB, mixture_group),
        (ADAPTING_AWD, dynamic_group),
        (ADAPTING_SMALL, dynamic_group),
    ):
        note(size.name)
        groups[f"{size.name}, V {size.vocabulary_size:,}, batch {size.batch_size} × {size.length}"] = _race(
            size, list(make(size, device)), device, rounds, ceiling
        )
    return Report(started, rounds, ceiling, groups)


def _race(
    size: Size, contenders: list[Contender], device: torch.device, rounds: int, ceiling: dict[str, float]
) -> list[Measured]:
    segments = random_segments(size, rounds)
    times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    peaks: dict[str, float | None] = {}
    for contender in contenders:
        contender.step(segments[0])  # warm up: caches, buffers, kernels, which are none of the step's memory
        with Peak(device) as peak:
            contender.step(segments[0])
        peaks[contender.name] = peak.megabytes
    for segment in segments:
        for contender in contenders:
            times[contender.name].append(timed(partial(contender.step, segment), device)[0])
    median = {name: statistics.median(values) for name, values in times.items()}
    return [
        Measured(
            name=contender.name,
            precision=contender.precision,
            milliseconds=median[contender.name] * 1e3,
            fastest_milliseconds=min(times[contender.name]) * 1e3,
            tokens_per_second=size.tokens / median[contender.name],
            of_ceiling=contender.flops * size.tokens / median[contender.name] / 1e9 / ceiling[contender.precision],
            step_megabytes=peaks[contender.name],
            compared=[_compared(contender.name, aim, median, peaks) for aim in contender.aims],
        )
        for contender in contenders
    ]


def _compared(name: str, aim: Aim, seconds: dict[str, float], peaks: dict[str, float | None]) -> Compared:
    if aim.what == "speed":
        ratio: float | None = seconds[aim.reference] / seconds[name]
    else:
        own, other = peaks[name], peaks[aim.reference]
        ratio = own / other if own is not None and other else None
    reached = None if aim.target is None or ratio is None else aim.reached(ratio)
    return Compared(aim.reference, aim.what, ratio, aim.target, reached)


def matrix_gflops(device: torch.device, precision: Precision, rounds: int = 25) -> float:
    """Return GFLOP/s of the fastest of some square matrix products: about what this machine can do at best."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    a = torch.randn(MATRIX, MATRIX, device=device, dtype=dtype)
    b = torch.randn(MATRIX, MATRIX, device=device, dtype=dtype)

    def once() -> float:
        return timed(partial(product, a, b), device)[0]  # by the faster kernel of the two that a CPU has

    once()
    return 2 * MATRIX**3 / min(once() for _ in range(rounds)) / 1e9
