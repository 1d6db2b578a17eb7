"""Words that pages and the terminal share."""

from __future__ import annotations


def several(count: int, what: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {what}{'s' * (count != 1)}"
