"""Attention in whole sentences as triangles (Salton et al. 2017, Figures 2 and 3), models side by side.

A row is a word to be predicted, a column a word read before. The words of the columns stand on the diagonal: where a
row ends, the word just read heads the column that begins below it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spanlm.analysis.axes import end_with_caption
from spanlm.analysis.colour_scale import colour_key
from spanlm.analysis.drawing import Drawing, Rect, Text, clip, text_width, wrap
from spanlm.analysis.palette import FAINT, INK, MUTED, UNKNOWN_INK, blue, ink_on
from spanlm.analysis.sentence_map import SentenceMap, common_scale

TITLE = "Attention to the words of the sentence"
_MARGIN, _GAP, _GUTTER = 28, 7, 40
_WIDEST = 2000  # panels of a sentence stand side by side up to here
_TITLE_SIZE, _NAME_SIZE, _NOTE_SIZE = 15, 12.5, 10.0
_LABEL_LIMIT, _AXIS = 150, 18
_LEAST_SHOWN = 0.0005


@dataclass(frozen=True)
class _Cells:
    """How large cells and their words are, in pixels; the digits after the point of their percents, None: none fit."""

    width: float
    height: float
    word: float
    number: float
    digits: int | None


_SIZES = ((24, _Cells(29, 20, 11.5, 8.5, 1)), (40, _Cells(18, 16, 10.5, 7.5, 0)))
_SMALL = _Cells(12, 12, 9.5, 0, None)


@dataclass(frozen=True)
class _Panel:
    """One map, its lines of heading, and what it needs to the left of its cells and in all."""

    map: SentenceMap
    cells: _Cells
    heading: tuple[str, ...]
    left: float
    width: float

    @property
    def first(self) -> int:
        """The first row: the head of a column stands above it, and nothing may stand above that of the first."""
        return min(0, self.map.record.nearest_lag - 1)

    @property
    def height(self) -> float:
        """From the titles of the axes to the end of the last row."""
        return _AXIS + self.cells.height * (len(self.map.record) - self.first) + self.foot

    @property
    def foot(self) -> float:
        """Room for the words of the last row's columns, where their heads are far away."""
        if self.cells.digits == 1:
            return 0.0
        return 8 + max(
            text_width(label, self.cells.word) for label in _labels(self.map, self.map.record.words, self.cells)
        )


def triangle_figure(sentences: Sequence[Sequence[SentenceMap]]) -> Drawing:
    """Draw a panel for each sentence and model; the panels of a sentence share a scale of colours.

    Args:
        sentences: for each sentence the maps of the models.
    """
    # narrow figures leave room for their words
    drawing = Drawing(560, 0, TITLE, "")
    drawing.add(Text(_MARGIN, _MARGIN + 12, TITLE, _TITLE_SIZE, bold=True))
    y = _MARGIN + 36.0
    for number, maps in enumerate(sentences):
        y = _sentence(drawing, maps, y + 26 * (number > 0))
    end_with_caption(drawing, _caption(sentences), _MARGIN, y + 10, drawing.width - 2 * _MARGIN)
    return drawing


def _caption(sentences: Sequence[Sequence[SentenceMap]]) -> str:
    maps = [one for maps in sentences for one in maps]
    itself = " and that word itself" * any(one.record.nearest_lag == 0 for one in maps)
    parts = [
        f"A row: the next word (left), and the weights of the words before the one just read{itself} while it is "
        "predicted, in percent. A column: the word at its head, on the diagonal.",
        "Flatness: entropy of a row over that of equal weights, mean over rows with a choice; 1 is flat.",
    ]
    if any(one.unknown for one in maps):
        parts.append("<unk>: the vocabulary lacks the word beside it, which was read as <unk>.")
    return " ".join(parts)


def _sentence(drawing: Drawing, maps: Sequence[SentenceMap], y: float) -> float:
    """Draw the panels of a sentence from y on; return where they end."""
    top, above = common_scale(maps)
    rows = _side_by_side([_panel(one) for one in maps])
    drawing.width = max(drawing.width, *(2 * _MARGIN + _together(row) for row in rows))
    for row in rows:
        lines = max(len(panel.heading) for panel in row)
        x, start = float(_MARGIN), y + 16 * lines
        for panel in row:
            for number, line in enumerate(panel.heading):
                look = (_NAME_SIZE, INK) if number == 0 else (_NOTE_SIZE, MUTED)
                drawing.add(Text(x + panel.left, y + 16 * number, line, *look, bold=number == 0))
            _draw(drawing, panel, x + panel.left, start, top)
            x += panel.width + _GUTTER
        y = start + max(panel.height for panel in row) + 28
    colour_key(drawing, _MARGIN + rows[0][0].left, y - 16, top, above)
    return y + 26


def _panel(one: SentenceMap) -> _Panel:
    count = len(one.record)
    cells = next((cells for most, cells in _SIZES if count <= most), _SMALL)
    left = _GAP + max(text_width(label, cells.word) for label in _labels(one, one.record.targets, cells))
    heads = _labels(one, one.record.words, cells)
    right = max(
        *((column + 1) * cells.width + text_width(label, cells.word) for column, label in enumerate(heads)), 230.0
    )
    width = right - cells.width
    return _Panel(one, cells, _heading(one, width), math.ceil(left), math.ceil(left + width))


def _heading(one: SentenceMap, width: float) -> tuple[str, ...]:
    notes = [] if one.flatness is None else [f"flatness {one.flatness.overall.flatness:.3f}"]
    elsewhere = float(one.on_no_word[one.slots > 0].mean()) if (one.slots > 0).any() else 0.0
    if elsewhere >= _LEAST_SHOWN:
        notes.append(f"{100 * elsewhere:.1f} % on no word")
    lines = [clip(one.name, _NAME_SIZE, width), *wrap(one.memory, _NOTE_SIZE, width)]
    return (*lines, *(wrap(", ".join(notes), _NOTE_SIZE, width) if notes else ()))


def _labels(one: SentenceMap, words: Sequence[str], cells: _Cells) -> list[str]:
    return [clip(word, cells.word, _LABEL_LIMIT) + one.mark(word) for word in words]


def _side_by_side(panels: Sequence[_Panel]) -> list[tuple[_Panel, ...]]:
    """Cut panels into rows, as many to a row as fit on the widest paper."""
    fit = next((count for count in range(len(panels), 1, -1) if _together(panels[:count]) <= _WIDEST), 1)
    return [tuple(panels[first : first + fit]) for first in range(0, len(panels), fit)]


def _together(panels: Sequence[_Panel]) -> float:
    return sum(panel.width for panel in panels) + _GUTTER * (len(panels) - 1)


def _draw(drawing: Drawing, panel: _Panel, x: float, y: float, top: float) -> None:
    """Draw the rows from y on, the cells from x on."""
    one, cells = panel.map, panel.cells
    drawing.add(
        Text(x - _GAP, y + 8, "next word", _NOTE_SIZE, MUTED, "end"),
        Text(x + 3, y + 8, "word read: heads a column", _NOTE_SIZE, MUTED),
    )
    start = y + _AXIS - panel.first * cells.height
    targets, heads = (_labels(one, words, cells) for words in (one.record.targets, one.record.words))
    for row in range(panel.first, len(targets)):
        # centred: capitals are about 0.7 of the size high
        line = start + (row + 0.5) * cells.height + 0.35 * cells.word
        if row >= 0:
            drawing.add(Text(x - _GAP, line, targets[row], cells.word, _ink(one, one.record.targets[row]), "end"))
            _cells(drawing, panel, row, x, start + row * cells.height, top)
        column = row + 1 - one.record.nearest_lag
        if 0 <= column < len(heads):
            ink = _ink(one, one.record.words[column])
            drawing.add(Text(x + column * cells.width + 3, line, heads[column], cells.word, ink))

    if panel.foot:
        _foot(drawing, panel, x, start + len(targets) * cells.height + 5)


def _foot(drawing: Drawing, panel: _Panel, x: float, y: float) -> None:
    """Name the columns of the last row once more, below it."""
    one, cells = panel.map, panel.cells
    heads = _labels(one, one.record.words, cells)
    for column in np.flatnonzero(~np.isnan(one.matrix[-1])).tolist():
        middle = x + (column + 0.5) * cells.width + 0.35 * cells.word
        ink = _ink(one, one.record.words[column])
        drawing.add(Text(middle, y, heads[column], cells.word, ink, "end", upwards=True))


def _ink(one: SentenceMap, word: str) -> str:
    return UNKNOWN_INK if word in one.unknown else INK


def _cells(drawing: Drawing, panel: _Panel, row: int, x: float, y: float, top: float) -> None:
    one, cells = panel.map, panel.cells
    columns = np.flatnonzero(~np.isnan(one.matrix[row]))
    if len(columns):
        # between cells it shows as a grid, in which the palest are seen to be there
        drawing.add(
            Rect(x + columns[0] * cells.width - 1, y - 1, len(columns) * cells.width + 1, cells.height + 1, FAINT)
        )
    for column in columns.tolist():
        weight, left = float(one.matrix[row, column]), x + column * cells.width
        fill = blue(weight / top)
        tip = f"{one.record.targets[row]} ← {one.record.words[column]}: {100 * weight:.2f} %"
        drawing.add(Rect(left, y, cells.width - 1, cells.height - 1, fill, tip))
        if cells.digits is not None:
            number = Text(
                left + (cells.width - 1) / 2,
                y + (cells.height - 1) / 2 + 0.36 * cells.number,
                percent(weight, cells.digits),
                cells.number,
                ink_on(fill),
                "middle",
            )
            drawing.add(number)


def percent(weight: float, digits: int) -> str:
    """Return a share in percent; all of it is 100, whatever the digits."""
    return "100" if weight >= 0.9995 else f"{100 * weight:.{digits}f}"
