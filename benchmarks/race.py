"""Contenders take turns: each does a step in every round, so that other work on the machine slows all alike."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch

from benchmarks.setting import Size, Step, random_segments
from spanlm.models.kernels import product
from spanlm.options import Precision
from spanlm.training.bench import step_megabytes, timed

MATRIX = 2048


@dataclass(frozen=True)
class Aim:
    """What a contender is compared with: the reference's name, and the ratio to reach.

    Of speed at least the target, of memory at most; None: there is no target.
    """

    reference: str
    target: float | None = None
    what: Literal["speed", "memory"] = "speed"

    def compared(self, own: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        """Return the ratio of two measured contenders beside the target; None where the memory is unknown."""
        name = "tokens_per_second" if self.what == "speed" else "step_megabytes"
        ratio = own[name] / other[name] if own[name] is not None and other[name] else None
        reached = None
        if ratio is not None and self.target is not None:
            reached = ratio >= self.target if self.what == "speed" else ratio <= self.target
        return {**vars(self), "ratio": ratio, "reached": reached}


@dataclass(frozen=True)
class Contender:
    """A step to time, its floating-point operations a token, and what it is compared with."""

    name: str
    precision: Precision
    step: Step
    flops: float
    aims: list[Aim] = field(default_factory=list)


def race(
    size: Size, contenders: Iterable[Contender], device: torch.device, rounds: int, ceiling: dict[Precision, float]
) -> list[dict[str, Any]]:
    """Time so many steps of every contender, and return what a report has of each."""
    contenders, segments = list(contenders), random_segments(size, rounds)
    peaks, times = list[float | None](), [list[float]() for _ in contenders]
    for contender in contenders:
        contender.step(segments[0])  # warm up: caches and buffers are none of the step's memory
        peaks.append(step_megabytes(partial(contender.step, segments[0]), device))
    for segment in segments:
        for contender, spent in zip(contenders, times, strict=True):
            spent.append(timed(partial(contender.step, segment), device)[0])
    found = {}
    for contender, spent, peak in zip(contenders, times, peaks, strict=True):
        rate = size.tokens / statistics.median(spent)
        found[contender.name] = {
            "name": contender.name,
            "precision": contender.precision,
            "milliseconds": statistics.median(spent) * 1e3,
            "fastest_milliseconds": min(spent) * 1e3,
            "slowest_milliseconds": max(spent) * 1e3,
            "tokens_per_second": rate,
            "of_ceiling": contender.flops * rate / 1e9 / ceiling[contender.precision],
            "step_megabytes": peak,
        }
    for contender in contenders:
        own = found[contender.name]
        own["compared"] = [aim.compared(own, found[aim.reference]) for aim in contender.aims]
    return list(found.values())


def matrix_gflops(device: torch.device, precision: Precision, rounds: int = 25) -> float:
    """Return the GFLOP/s of the fastest of several square matrix products: about this machine's best."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    a, b = (torch.randn(MATRIX, MATRIX, device=device, dtype=dtype) for _ in range(2))
    seconds = [timed(partial(product, a, b), device)[0] for _ in range(rounds + 1)]
    return 2 * MATRIX**3 / min(seconds[1:]) / 1e9
