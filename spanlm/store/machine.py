"""This machine: processor, memory, devices."""

from __future__ import annotations

import os
import platform
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from spanlm.errors import InputError
from spanlm.store.plain import several

if TYPE_CHECKING:
    import torch

CPUINFO = Path("/proc/cpuinfo")


def processor_fields(file: Path = CPUINFO) -> dict[str, str]:
    """Return the first processor's fields in /proc/cpuinfo; empty without such a file."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def processor_name(file: Path = CPUINFO) -> str:
    """Name the processor, with its family and model: `AMD EPYC (family 25, model 17)`.

    Rented machines hide the name of their processor, and one model can be twice as fast as another.
    """
    fields = processor_fields(file)
    name = fields.get("model name") or platform.processor() or platform.machine()
    kind = ", ".join(f"{key.removeprefix('cpu ')} {fields[key]}" for key in ("cpu family", "model") if fields.get(key))
    return f"{name} ({kind})" if kind else name


def memory() -> int:
    """Return the bytes that this process has plus the free ones, with swap; at most the limit of a container."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError):  # only Linux has these files
        text = Path("/proc/meminfo").read_text() + Path("/proc/self/status").read_text()
        limits[0] = 1024 * sum(map(int, re.findall(r"^(?:MemAvailable|SwapFree|VmRSS):\s*(\d+)", text, re.M)))
    for folder in _control_groups():
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):
                limits.append(int((folder / name).read_text()))
    return min(limits)


def _control_groups() -> set[Path]:
    """Return the folders, with parents, of this process's control groups, such as a SLURM job's."""
    folders = {Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")}
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds in ("", "memory"):
                folder = Path("/sys/fs/cgroup", kinds, path.lstrip("/"))
                folders |= {folder, *folder.parents}
    return folders


def pick_device(device: str | torch.device, field: str) -> torch.device:
    """Return the device of this name; auto is a GPU if there is one. InputError about `field`: no such device."""
    import torch  # takes seconds, which callers of `memory` save

    name = str(device)
    if name.startswith("mps"):
        raise InputError(field, name, "is not used: it has no float64, in which losses are summed up", "Use cpu.")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()  # raises for `meta`, which computes nothing
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(field, name, "there is no such device here", "Use auto or cpu.") from None
    return device


def with_threads(device: torch.device | str) -> str:
    """Name a device for people: `cpu, 2 threads`, `cuda:0`."""
    import torch

    return f"{device}, {several(torch.get_num_threads(), 'thread')}" if str(device) == "cpu" else str(device)
