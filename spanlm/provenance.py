"""What made a file: the command, the code and the machine of this process."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import spanlm
from spanlm import code, processor

_GIT_SECONDS = 10


def provenance(device: torch.device) -> dict[str, Any]:
    """Return the time, the command, the code and the machine of this process."""
    return made() | machine(device)


def made() -> dict[str, Any]:
    """Return the time, the command and the code of this process."""
    commit, changed = _commit()
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join([_program(), *map(_without_folders, sys.argv[1:])]),
        "spanlm": spanlm.__version__,
        "commit": commit,
        "changed": changed,
    }


def _program() -> str:
    """Return what this process was started as, without the folder: that is the machine's own."""
    name = Path(sys.argv[0]).name
    return "spanlm" if name == "__main__.py" else name


def _without_folders(argument: str) -> str:
    """Cut an absolute path down to its name."""
    option, equals, value = argument.rpartition("=")
    return f"{option}{equals}{Path(value).name}" if os.path.isabs(value) else argument


def machine(device: torch.device) -> dict[str, Any]:
    """Say what this process runs on."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processor": processor.described(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _commit() -> tuple[str | None, bool | None]:
    """Return the commit on the disk and whether this process's code is another; None where it is not a checkout.

    An installed copy may lie inside somebody's repository, whose commit says nothing: the package must be tracked.
    """
    package = Path(spanlm.__file__).parent
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None, None
    commit = _git(package, "rev-parse", "HEAD")
    changes = _git(package, "status", "--porcelain", "--untracked-files=no", "--", ".")
    return commit, None if changes is None else bool(changes) or code.changed_since_loaded()


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=_GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
