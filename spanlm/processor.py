"""What the system tells of its first processor, and of its memory."""

from __future__ import annotations

import os
import platform
import re
from contextlib import suppress
from pathlib import Path

_TOLD = Path("/proc/cpuinfo")
_KIND = {"family": "cpu family", "model": "model"}


def fields() -> dict[str, str]:
    """Return the fields of the first processor in Linux's words; nothing where the system does not tell them."""
    try:
        told = _TOLD.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in told.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def described() -> str:
    """Name the processor, with its family and model: `AMD EPYC (family 25, model 17)`.

    Machines that are rented hide which of a maker's processors they have, of which one can have twice another's speed.
    """
    found = fields()
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
