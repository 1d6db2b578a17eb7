"""How much memory a step takes beside what was held before it."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import torch


class Peak:
    """Most memory taken inside the block: of the GPU, or of the process where Linux lets its mark be reset.

    Attributes:
        megabytes: above what was held at its beginning; None where it is not known.
    """

    megabytes: float | None = None

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __enter__(self) -> Peak:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before: float | None = torch.cuda.memory_allocated(self._device) / 2**20
        else:
            _give_back_freed_memory()
            self._before = _of_process("VmRSS:") if _reset_peak_of_process() else None
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is None:
            return
        if self._device.type == "cuda":
            peak: float | None = torch.cuda.max_memory_allocated(self._device) / 2**20
        else:
            peak = _of_process("VmHWM:")
        # pages that the system took back meanwhile could make it less than nothing
        self.megabytes = None if peak is None else max(0.0, peak - self._before)


def _give_back_freed_memory() -> None:
    """What the C library kept of an earlier step would serve the next one unseen. Elsewhere nothing happens."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):
        return


def _reset_peak_of_process() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _of_process(name: str) -> float | None:
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith(name):
            return float(line.split()[1]) / 2**10
    return None
