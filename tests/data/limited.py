"""What takes time with the square of the input takes minutes, where proportion takes a second at most: it is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 20


def ends(module: str, function: str, *arguments: str) -> bool:
    """Say whether a function of a test module ends in a process of its own with 20 seconds of a processor."""
    code = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS})); "
        f"from {module} import {function}; {function}(*sys.argv[1:])"
    )
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, check=False).returncode == 0
