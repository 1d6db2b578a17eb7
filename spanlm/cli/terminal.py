"""Printing: plain lines, tables, a console. No torch here: every verb prints, not every verb computes."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from rich.console import Console

PLAIN_SECONDS = 10.0
"""How often a line is printed where there is no terminal to draw a bar on."""


def out(text: str = "") -> None:
    """Print a line of plain text to standard output."""
    print(text, flush=True)


def out_json(value: Any) -> None:
    """Print a value as one line of JSON; a number that is not finite, which JSON has no word for, becomes null."""
    out(json.dumps(_finite(value), allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(rows: list[tuple[str, str]]) -> None:
    """Print two columns of names and values."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        out(f"{name:<{width}}  {value}")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave a reader that is gone to `main`, which knows the exit status."""
        raise BrokenPipeError


def console() -> Console:
    """Return a console on standard output as it is now; wide enough not to wrap where it is a file."""
    terminal = sys.stdout.isatty()
    return _Console(width=None if terminal else 160, highlight=False, markup=False, soft_wrap=not terminal)
