"""The attention of one text as a heat map (Daniluk et al. 2017, Fig. 3a): rows are words, columns lags."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spanlm.analysis.colour_scale import colour_key, is_above, scale_top
from spanlm.analysis.drawing import Drawing, Rect, Text, clip, text_width, wrap
from spanlm.analysis.lags import axis_title, signed
from spanlm.analysis.palette import MUTED, blue, ink_on
from spanlm.analysis.record import AttentionRecord
from spanlm.errors import InputError

ROW_LIMIT = 400
_MARGIN, _ROW, _CELL, _GAP = 28, 20, 48, 12
_TITLE_SIZE, _WORD_SIZE, _CELL_SIZE, _NOTE_SIZE = 15, 11.5, 8.5, 10.0
_LABEL_LIMIT, _LEAST_WIDTH = 130, 480
_NAMED = 0.12  # cells at least this dark carry the word that was looked at


@dataclass(frozen=True)
class _Layout:
    """Where things stand, in pixels from the upper left corner."""

    title: list[str]
    cells_x: float
    cells_y: float
    next_x: float
    bits_x: float
    width: float
    height: float


def heatmap(record: AttentionRecord) -> Drawing:
    """Draw one row for each word of `record` and one column for each lag, darker where more was looked.

    A row is labelled by the word just read; the cell at -i stands for the word i rows above it, that at 0 for the
    word itself. To the right stand the word that came next and its surprisal in bits.

    Raises:
        InputError: If the text has more than 400 words: no page holds them.
    """
    if len(record) > ROW_LIMIT:
        raise InputError(f"a figure of {len(record)} words: must be at most {ROW_LIMIT}; write .html, .csv or .npz")
    settled = record.settled
    layout, top = _layout(record), scale_top(float((settled if settled.size else record.weights).max()))
    drawing = Drawing(layout.width, layout.height, record.title, _description(record))
    _heading(drawing, record, layout)
    for position in range(len(record)):
        _row(drawing, record, position, layout, top)
    colour_key(drawing, layout.cells_x, layout.height - 46, top, is_above(float(record.weights.max()), top))
    return drawing


def _description(record: AttentionRecord) -> str:
    itself = "" if record.nearest_lag else ", that in column 0 the weight of the word itself"
    return (
        f"Attention over the last {record.window} words at each of {len(record)} positions. Each row is "
        f"labelled by the word just read; the cell in column -i shows the weight of the word i rows above{itself}."
    )


def _layout(record: AttentionRecord) -> _Layout:
    cells_x = _MARGIN + _label_width([*record.words, "just read"]) + _GAP
    next_x = cells_x + record.window * _CELL + _GAP
    bits_x = next_x + _label_width([*record.targets, "came next"]) + 52
    width = max(bits_x + _MARGIN, _LEAST_WIDTH)
    title = wrap(record.title, _TITLE_SIZE, width - 2 * _MARGIN)
    cells_y = _MARGIN + 20 * len(title) + 44
    return _Layout(title, cells_x, cells_y, next_x, bits_x, width, cells_y + len(record) * _ROW + 64)


def _label_width(labels: list[str]) -> int:
    return math.ceil(min(max(text_width(label, _WORD_SIZE) for label in labels), _LABEL_LIMIT))


def _heading(drawing: Drawing, record: AttentionRecord, layout: _Layout) -> None:
    for number, line in enumerate(layout.title):
        drawing.add(Text(_MARGIN, _MARGIN + 12 + 20 * number, line, _TITLE_SIZE, bold=True))
    y = layout.cells_y - 8
    drawing.add(
        Text(layout.cells_x - _GAP, y, "just read", _NOTE_SIZE, MUTED, "end"),
        Text(layout.next_x, y, "came next", _NOTE_SIZE, MUTED),
        Text(layout.bits_x, y, "bits", _NOTE_SIZE, MUTED, "end"),
        Text(layout.cells_x, y - 17, axis_title(record.nearest_lag), _NOTE_SIZE, MUTED),
    )
    for column, lag in enumerate(record.lags):
        drawing.add(Text(layout.cells_x + (column + 0.5) * _CELL, y, signed(lag), _NOTE_SIZE, MUTED, "middle"))


def _row(drawing: Drawing, record: AttentionRecord, position: int, layout: _Layout, top: float) -> None:
    y = layout.cells_y + position * _ROW
    baseline = y + 0.7 * _ROW
    word = clip(record.words[position], _WORD_SIZE, _LABEL_LIMIT)
    target = clip(record.targets[position], _WORD_SIZE, _LABEL_LIMIT)
    drawing.add(Text(layout.cells_x - _GAP, baseline, word, _WORD_SIZE, anchor="end"))
    for column, lag in enumerate(record.lags):
        if record.occupied[position, column]:
            look = (float(record.weights[position, column]), record.words[position - lag], signed(lag))
            _cell(drawing, look, (layout.cells_x + column * _CELL, y), top)
    drawing.add(
        Text(layout.next_x, baseline, target, _WORD_SIZE, MUTED),
        Text(layout.bits_x, baseline, f"{record.bits[position]:.1f}".replace("nan", "–"), _WORD_SIZE, MUTED, "end"),
    )


def _cell(drawing: Drawing, look: tuple[float, str, str], corner: tuple[float, float], top: float) -> None:
    """Paint the weight given to a word, named where it is large, at a lag."""
    (weight, source, lag), (x, y) = look, corner
    fill = blue(weight / top)
    drawing.add(Rect(x, y, _CELL - 1, _ROW - 1, fill, tip=f"{source}, {lag}: {100 * weight:.1f} %"))
    if weight >= _NAMED:
        name = clip(source, _CELL_SIZE, _CELL - 4)
        drawing.add(Text(x + (_CELL - 1) / 2, y + 0.66 * _ROW, name, _CELL_SIZE, ink_on(fill), "middle"))
