"""Where a step's time goes: the library's operations, the longest first, and what is none of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from spanlm.benchmark.clock import timed
from spanlm.data.batching import Segment


@dataclass(frozen=True)
class Operation:
    """One kind of operation.

    Attributes:
        name: as the library calls it.
        milliseconds: a step, without what it calls in its turn: on a GPU those of its kernels.
        share: of the step's time, taken while it was watched, which is longer than without.
        calls: a step.
    """

    name: str
    milliseconds: float
    share: float
    calls: float


def operations(
    step: Callable[[Segment], None], segments: Iterable[Segment], device: torch.device, most: int
) -> list[Operation]:
    """Return the operations of some steps, at most `most`.

    Args:
        step: does one; what is to be done only once was done before.
        segments: one for each step.
        device: that of the model. Of a GPU the time is told that it was busy, wherever Python was meanwhile.
        most: how many, the longest.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    watched = profile(activities=activities, acc_events=True)
    with _without_messages():
        watched.start()
    try:
        seconds = [timed(partial(step, segment), device) for segment in segments]
    finally:
        with _without_messages():
            watched.stop()
    steps, whole = len(seconds), sum(seconds)
    # the kernels have rows of their own, whose time is that of the operations which asked for them
    asked = (event for event in watched.key_averages() if event.device_type.name == "CPU")
    found = [
        Operation(event.key, spent * 1e3 / steps, spent / whole, event.count / steps)
        for event, spent in ((event, _seconds(event, device)) for event in asked)
        if spent > 0
    ]
    return sorted(found, key=lambda one: -one.milliseconds)[:most]


def _seconds(event: Any, device: torch.device) -> float:
    """Of the operation alone; the library has microseconds."""
    own = event.self_device_time_total if device.type == "cuda" else event.self_cpu_time_total
    return float(own) / 1e6


@contextmanager
def _without_messages() -> Iterator[None]:
    """The library's profiler tells standard error that it begins and ends, past Python, and cannot be asked not to."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
