"""A table as text."""

from __future__ import annotations

from dataclasses import dataclass

NONE = "–"


@dataclass(frozen=True)
class Grid:
    """Cells of text; the first column is flushed left, the others right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


def number(value: float | None) -> str:
    """One digit after the point, or a dash."""
    return NONE if value is None else f"{value:.1f}"
