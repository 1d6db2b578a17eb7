"""Attention in a sentence as lines of text, for a terminal: the triangle of `triangle_figure`, in characters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spanlm.analysis.sentence_map import SentenceMap
from spanlm.analysis.triangle_figure import percent

SHADES = " ·░▒▓█"
_NUMBERS = 20  # rows of up to so many percents fit on a line of 80 characters beside their words
_LABEL = 18


def triangle_lines(one: SentenceMap, top: float) -> Iterator[str]:
    """Yield a line for each predicted word: percents where they fit on a line, else shades.

    A row ends with the word just read, which heads the column that begins below it.

    Args:
        one: the map.
        top: the weight that has the darkest shade.
    """
    numbers = len(one.record) <= _NUMBERS
    cell = 3 if numbers else 1
    targets, heads = ([_cut(one.label(word)) for word in words] for words in (one.record.targets, one.record.words))
    width = max(map(len, targets))
    for row in range(-1, len(targets)):
        label = targets[row] if row >= 0 else ""
        weights = one.matrix[row] if row >= 0 else np.full(len(heads), np.nan)
        column = row + 1 - one.record.nearest_lag
        cells = "".join(_cell(float(weight), top, numbers) for weight in weights[: max(column, 0)])
        head = f"{' ' * (cell - 1)}{heads[column]}" if 0 <= column < len(heads) else ""
        if label or head:
            yield f"{label:>{width}} {cells}{head}".rstrip()


def key_line(one: SentenceMap, top: float) -> str | None:
    """Return what the shades mean; None where there are percents."""
    if len(one.record) <= _NUMBERS:
        return None
    return f"shades {SHADES.strip()} from {100 * top / (2 * (len(SHADES) - 1)):.2g} % to {100 * top:g} % and more"


def _cell(weight: float, top: float, numbers: bool) -> str:
    if numbers:
        return "   " if np.isnan(weight) else f"{percent(weight, 0):>3}"
    return SHADES[0 if np.isnan(weight) else min(round(weight / top * (len(SHADES) - 1)), len(SHADES) - 1)]


def _cut(label: str) -> str:
    return label if len(label) <= _LABEL else label[: _LABEL - 1] + "…"
