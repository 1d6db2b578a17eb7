"""A table as text."""

from __future__ import annotations

from dataclasses import dataclass

from spanlm.evaluation.scoring import shown

NONE = "–"


@dataclass(frozen=True)
class Grid:
    """Cells of text; the first column is flushed left, the others right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


def number(value: float | None, digits: int = 1) -> str:
    """So many digits after the point, or a dash."""
    return NONE if value is None else shown(value, digits)


def signed(difference: float, digits: int = 1) -> str:
    """`−3.2` or `+0.5`."""
    return f"{'−' if difference < 0 else '+'}{shown(abs(difference), digits)}"
