"""The spans of a buffer at one step, as a heat map of tiles in reading order (Li et al., 2020, Figure 5)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from spanlm.analysis.colour_scale import colour_key, scale_top
from spanlm.analysis.drawing import Drawing, Rect, Text, clip, text_width
from spanlm.analysis.lags import signed
from spanlm.analysis.palette import FAINT, MUTED, PAPER, blue, ink_on
from spanlm.analysis.spans import Look, SpanRecord

_ROW, _LEFT_OUT, _LABEL, _NUMBER, _PAD, _KEY = 21, 15, 66, 46, 7, 36
_SIZE, _NOTE_SIZE = 10.5, 9.5
_MOST_ROWS, _MOST_COLUMNS = 24, 10
_USUAL = 0.9
"""Of the spans have room for all their words; of the others the end is cut."""

Row = list[Look]


def draw_tiles(drawing: Drawing, record: SpanRecord, position: int, place: tuple[float, float, float]) -> float:
    """Draw the spans looked at from a position, oldest first, and the scale; return where that ends.

    Of many rows those with the largest weights are shown, and the newest; the others are counted in between.

    Args:
        drawing: to draw on.
        record: of the text.
        position: whose spans.
        place: left, top and width in pixels.
    """
    left, y, width = place
    looks = sorted(record.looks(position), key=lambda look: look.last)
    top = scale_top(max(look.weight for look in looks))
    columns = _columns([record.words_of(look) for look in looks], width - _LABEL)
    tile = (width - _LABEL) / columns
    y += 6
    drawing.add(Text(left + _LABEL - 8, y, "words back", _NOTE_SIZE, MUTED, "end"))
    y += 7
    for shown, rows in _shown(_rows(looks, columns)):
        if not shown:
            _left_out(drawing, [look for row in rows for look in row], left + _LABEL, y, width - _LABEL)
            y += _LEFT_OUT
            continue
        for row in rows:
            drawing.add(Text(left + _LABEL - 8, y + 14, signed(position - row[0].first), _NOTE_SIZE, MUTED, "end"))
            # the newest row is full, the oldest may begin late
            begin = columns - len(row)
            for number, look in enumerate(row, start=begin):
                corner = (left + _LABEL + number * tile, y)
                _tile(drawing, look, record.words_of(look), corner, tile - 1, top)
            y += _ROW
    colour_key(drawing, left + _LABEL, y + 10, top, above=False)
    return y + _KEY


def _columns(labels: Sequence[str], width: float) -> int:
    """Return how many tiles stand in a row."""
    widths = sorted(text_width(label, _SIZE) for label in labels)
    usual = widths[min(int(_USUAL * len(widths)), len(widths) - 1)] + _NUMBER + 2 * _PAD
    return max(min(int(width // usual), _MOST_COLUMNS, len(labels)), 1)


def _rows(looks: Sequence[Look], columns: int) -> list[Row]:
    first = len(looks) % columns or columns
    starts = [0, *range(first, len(looks), columns)]
    return [list(looks[start:end]) for start, end in zip(starts, [*starts[1:], len(looks)], strict=True)]


def _shown(rows: list[Row]) -> Iterator[tuple[bool, list[Row]]]:
    """Yield rows that are shown, and between them those that are not."""
    order = sorted(range(len(rows) - 1), key=lambda number: -max(look.weight for look in rows[number]))
    kept = {len(rows) - 1, *order[: _MOST_ROWS - 1]}
    for shown, group in groupby(range(len(rows)), key=lambda number: number in kept):
        yield shown, [rows[number] for number in group]


def _left_out(drawing: Drawing, looks: Sequence[Look], x: float, y: float, width: float) -> None:
    total = math.fsum(look.weight for look in looks)
    said = f"⋯ {len(looks)} spans, {100 * total:.1f} % together"
    drawing.add(Rect(x, y + 7, width, 1, FAINT))
    drawing.add(Rect(x + 10, y + 1, text_width(said, _NOTE_SIZE) + 12, 13, PAPER))
    drawing.add(Text(x + 16, y + 11, said, _NOTE_SIZE, MUTED))


def _tile(drawing: Drawing, look: Look, words: str, corner: tuple[float, float], width: float, top: float) -> None:
    x, y = corner
    fill = blue(look.weight / top)
    ink = ink_on(fill)
    drawing.add(
        Rect(x, y, width, _ROW - 1, fill, tip=f"{words}: {100 * look.weight:.2f} %"),
        Text(x + _PAD, y + 14, clip(words, _SIZE, width - _NUMBER - 2 * _PAD), _SIZE, ink),
        Text(x + width - _PAD, y + 14, f"{100 * look.weight:.1f} %", _SIZE, ink, "end"),
    )
