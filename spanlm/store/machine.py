"""The machine of this process: its processor, its memory, and the device a model runs on."""

from __future__ import annotations

import os
import platform
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from spanlm.errors import InputError

if TYPE_CHECKING:
    import torch

_TOLD = Path("/proc/cpuinfo")
_KIND = {"family": "cpu family", "model": "model"}


def processor_fields() -> dict[str, str]:
    """Return the fields of the first processor in Linux's words; nothing where the system does not tell them."""
    try:
        told = _TOLD.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in told.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def processor_name() -> str:
    """Name the processor, with its family and model: `AMD EPYC (family 25, model 17)`.

    Machines that are rented hide which of a maker's processors they have, of which one can have twice another's speed.
    """
    found = processor_fields()
    name = found.get("model name") or platform.processor() or platform.machine()
    kind = ", ".join(f"{what} {found[field]}" for what, field in _KIND.items() if found.get(field))
    return f"{name} ({kind})" if kind else name


def memory() -> int:
    """Return the bytes that this process holds and those that are free, swap among them; or a container's limit."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError):  # Linux alone has these
        told = Path("/proc/meminfo").read_text() + Path("/proc/self/status").read_text()
        limits[0] = 1024 * sum(map(int, re.findall(r"^(?:MemAvailable|SwapFree|VmRSS):\s*(\d+)", told, re.M)))
    for path in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            limits.append(int(Path("/sys/fs/cgroup", path).read_text()))
    return min(limits)


def pick_device(name: str, field: str) -> torch.device:
    """Return the device of that name; auto is a GPU if there is one.

    Args:
        name: auto, cpu, cuda, cuda:1, …
        field: where the name was given, for messages.

    Raises:
        InputError: no such device here.
    """
    import torch  # takes seconds: what only asks for the memory does without

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()  # from `meta`, which computes nothing, nothing can be copied
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(f"{field}={name}: there is no such device here. Use auto or cpu.") from None
    return device


def with_threads(device: torch.device | str) -> str:
    """Name a device for people: `cpu, 2 threads`, `cuda:0`."""
    import torch

    count = torch.get_num_threads()
    return f"{device}, {count} thread{'s' * (count > 1)}" if str(device) == "cpu" else str(device)
