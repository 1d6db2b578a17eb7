"""Where a step's time goes: the library's operations, the longest first, and what is none of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

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
        calls: a step.
    """

    name: str
    milliseconds: float
    calls: float


@dataclass(frozen=True)
class WatchedStep:
    """A step while it was watched, which takes longer than one that is not.

    Attributes:
        milliseconds: the mean of some.
        operations: the longest.
        other_operations: how many more kinds there are.
        other_milliseconds: of those, together. What is left of the step is Python's, or waiting.
    """

    milliseconds: float
    operations: list[Operation]
    other_operations: int
    other_milliseconds: float


def watched_step(
    step: Callable[[Segment], None], segments: Sequence[Segment], device: torch.device, most: int
) -> WatchedStep:
    """Watch a step for each segment.

    Args:
        step: does one; what is to be done only once was done before.
        segments: at least one.
        device: that of the model. Of a GPU the time is told that it was busy, wherever Python was meanwhile.
        most: how many operations to tell.
    """
    _watched(step, segments[:1], device)  # a GPU's profiler begins slowly
    watched, seconds = _watched(step, segments, device)
    # the kernels have rows of their own, whose time is that of the operations which asked for them
    kinds = [event for event in watched.key_averages() if event.device_type.name == "CPU"]
    own, steps = (event for event in kinds if not event.is_user_annotation), len(segments)
    time = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"  # in microseconds
    found = [Operation(event.key, getattr(event, time) / 1e3 / steps, event.count / steps) for event in own]
    found = sorted((one for one in found if one.milliseconds > 0), key=lambda one: -one.milliseconds)
    others = found[most:]
    return WatchedStep(seconds * 1e3 / steps, found[:most], len(others), sum(one.milliseconds for one in others))


def _watched(
    step: Callable[[Segment], None], segments: Sequence[Segment], device: torch.device
) -> tuple[profile, float]:
    """Return what was seen, and the seconds of all steps."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    watched = profile(activities=activities, acc_events=True)
    with _without_messages():
        watched.start()
    try:
        seconds = sum(timed(partial(step, segment), device)[0] for segment in segments)
    finally:
        with _without_messages():
            watched.stop()
    return watched, seconds


@contextmanager
def _without_messages() -> Iterator[None]:
    """The library's profiler tells standard error that it begins and ends, past Python, and cannot be asked not to."""
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except OSError:  # nobody listens
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
