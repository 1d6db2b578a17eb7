"""What a span buffer looked at step by step: a row each, its spans as columns, gate and first guesses beside."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from spanlm.analysis.colour_scale import KEY_WIDTH, colour_key, is_above, scale_top
from spanlm.analysis.drawing import Drawing, Rect, Text, clip
from spanlm.analysis.palette import CAME_INK, FAINT, INK, MUTED, blue
from spanlm.analysis.reading import Expected
from spanlm.analysis.span_marks import gate_bar
from spanlm.analysis.spans import SpanRecord

MOST_STEPS = 32
_ROW, _HEAD, _GAP, _KEY = 17, 34, 12, 36
_USUAL = 0.75
_SIZE, _NOTE_SIZE = 10.5, 10.0
_WORD, _GATE, _GUESS = 104, 62, 96
_LEAST_CELL, _MOST_CELL = 4.0, 40.0
_GUESSES = {"buffer": "buffer", "encoder": "encoder", "mixture": "both"}


def steps_shown(record: SpanRecord) -> range:
    """Return the positions that have a row: the last ones."""
    return range(max(len(record) - MOST_STEPS, 0), len(record))


def draw_steps(drawing: Drawing, record: SpanRecord, steps: range, place: tuple[float, float, float]) -> float:
    """Draw a row for each of `steps`, and the scale; return where that ends.

    A column is a span, or several where there are very many: then the largest of their weights is shown.

    Args:
        drawing: to draw on.
        record: of the text.
        steps: positions with anything to look at in the last, from the first row on.
        place: left, top and width in pixels.
    """
    left, y, width = place
    beside = _GAP + _WORD + _GATE + 2 * _GAP + len(_GUESSES) * _GUESS
    room = width - _WORD - _GAP - beside
    weights, together = _by_column(record, steps, int(room // _LEAST_CELL))
    top, above = _scale(weights)
    cell = min(room / weights.shape[1], _MOST_CELL)
    came = left + width - beside + _GAP
    cells = came - _GAP - weights.shape[1] * cell
    _head(drawing, record, (cells, came, y), together)
    for number, t in enumerate(steps):
        _step(drawing, record, t, (cells, came, y + _HEAD + number * _ROW))
        for column in np.flatnonzero(~np.isnan(weights[number])).tolist():
            weight = float(weights[number, column])
            x = cells + column * cell
            drawing.add(Rect(x, y + _HEAD + number * _ROW, max(cell - 1, 0.8 * cell), _ROW - 1, blue(weight / top)))
    y += _HEAD + len(steps) * _ROW
    colour_key(drawing, came - _GAP - KEY_WIDTH, y + 10, top, above)
    return y + _KEY


def _scale(weights: NDArray[np.float64]) -> tuple[float, bool]:
    """Return the weight that is darkest, and whether there are larger ones: of a few rows with a single peak."""
    largest = np.nanmax(weights[~np.isnan(weights).all(axis=1)], axis=1)
    top = scale_top(float(np.quantile(largest, _USUAL)))
    return top, is_above(float(largest.max()), top)


def _by_column(record: SpanRecord, steps: range, most: int) -> tuple[NDArray[np.float64], int]:
    """Return (steps, columns) weights, the newest span in the last column; and of how many spans one is the largest.

    Where a step has no such span there is NaN.
    """
    rows = [[look.weight for look in sorted(record.looks(t), key=lambda look: -look.last)] for t in steps]
    spans = max(map(len, rows))
    together = max(math.ceil(spans / most), 1)
    table = np.full((len(rows), math.ceil(spans / together)), np.nan)
    for number, row in enumerate(rows):
        for column in range(math.ceil(len(row) / together)):
            table[number, -1 - column] = max(row[column * together : (column + 1) * together])
    return table, together


def _head(drawing: Drawing, record: SpanRecord, place: tuple[float, float, float], together: int) -> None:
    cells, came, y = place
    base = y + _HEAD - 7
    what = "spans" if record.span > 1 else "words"
    several = f", a column is the largest of {together}" if together > 1 else ""
    first = came + _WORD + _GATE + 2 * _GAP
    drawing.add(
        Text(came - _GAP, base - 15, f"α of its {what}, the newest to the right{several}", _NOTE_SIZE, MUTED, "end"),
        Text(cells - _GAP, base, "just read", _NOTE_SIZE, MUTED, "end"),
        Text(came, base, "came next", _NOTE_SIZE, MUTED),
        Text(came + _WORD + _GAP, base, "λ", _NOTE_SIZE, MUTED),
        Text(first, base - 15, "expected most, by", _NOTE_SIZE, MUTED),
    )
    for number, name in enumerate(_GUESSES.values()):
        drawing.add(Text(first + number * _GUESS, base, name, _NOTE_SIZE, MUTED))


def _step(drawing: Drawing, record: SpanRecord, t: int, place: tuple[float, float, float]) -> None:
    cells, came, y = place
    base, target = y + 12, record.targets[t]
    drawing.add(
        Text(cells - _GAP, base, clip(record.words[t], _SIZE, _WORD), _SIZE, INK, "end"),
        Text(came, base, clip(target, _SIZE, _WORD - 4), _SIZE),
    )
    if record.filled[t]:
        gate_bar(drawing, float(record.gate[t]), (came + _WORD + _GAP, y + 4, _GATE, 8))
    else:
        drawing.add(Rect(came + _WORD + _GAP, y + 7.5, _GATE, 1, FAINT))
    first = came + _WORD + _GATE + 2 * _GAP
    for number, part in enumerate(_GUESSES):
        guesses: Expected = getattr(record, part)[t]
        for word, _ in guesses[:1]:
            ink = CAME_INK if word == target else MUTED
            drawing.add(Text(first + number * _GUESS, base, clip(word, _SIZE, _GUESS - 6), _SIZE, ink))
