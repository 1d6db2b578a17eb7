"""Time, where a GPU is told what to do long before it does it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(call: Callable[[], Result], device: torch.device) -> tuple[float, Result]:
    """Return the seconds of a call, the device's work included, and what it gave."""
    synchronise(device)
    began = time.perf_counter()
    result = call()
    synchronise(device)
    return time.perf_counter() - began, result
