"""Attention in a sentence as lines of text, for a terminal: the triangle of `triangle_figure`, in characters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spanlm.analysis.sentence_map import SentenceMap
from spanlm.analysis.triangle_figure import percent

SHADES = "·░▒▓█"
_LINE, _LABEL = 96, 18


def triangle_lines(one: SentenceMap, top: float) -> Iterator[str]:
    """Yield a line for each predicted word: percents where they fit on a line, else shades.

    A row ends with the word just read, which heads the column that begins below it. The last line says how to read it.

    Args:
        one: the map.
        top: the weight that has the darkest shade.
    """
    targets, heads = (
        [_cut(word) + one.mark(word) for word in words] for words in (one.record.targets, one.record.words)
    )
    width = max(map(len, targets))
    cell = next((cell for cell in (3, 2) if width + cell * len(targets) <= _LINE), 1)
    for row in range(-1, len(targets)):
        label = targets[row] if row >= 0 else ""
        weights = one.matrix[row] if row >= 0 else np.full(len(heads), np.nan)
        column = row + 1 - one.record.nearest_lag
        cells = "".join(_cell(float(weight), top, cell) for weight in weights[: max(column, 0)])
        head = heads[column] if 0 <= column < len(heads) else ""
        if label or head:
            yield f"{label:>{width}} {cells}{' ' * max(cell - 1, 1)}{head}".rstrip()
    shades = "percent" if cell == 3 else f"{SHADES[0]} little, {SHADES[-1]} {100 * top:g} % or more"
    yield f"({shades}; a row: the next word; a column: the word at its head, on the diagonal)"


def _cell(weight: float, top: float, width: int) -> str:
    if np.isnan(weight):
        return " " * width
    if width == 3:
        return f"{percent(weight, 0):>3}"
    return SHADES[min(round(weight / top * (len(SHADES) - 1)), len(SHADES) - 1)] * width


def _cut(word: str) -> str:
    return word if len(word) <= _LABEL else word[: _LABEL - 1] + "…"
