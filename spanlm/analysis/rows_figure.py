"""A number for each of several models as dots on a line each, with whiskers over seeds, in one panel or more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spanlm.analysis.axes import tick_step
from spanlm.analysis.drawing import Drawing, Line, Mark, Text, text_width
from spanlm.analysis.palette import FAINT, INK, MUTED, STYLES, Style

_ROW, _TOP, _BOTTOM, _PANEL, _GAP, _MARGIN = 26, 96, 62, 250, 34, 24
_DOT, _LABEL = 4.5, 12
_TICKS = 4
_MEASURED, _PUBLISHED = STYLES[:2]


@dataclass(frozen=True)
class Value:
    """A number, with the least and the greatest of several seeds."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class RowsPanel:
    """One scale.

    Attributes:
        title: what is shown.
        measured: a value for every row, or None.
        published: a number for every row, or None; on the same scale.
        digits: after the point.
    """

    title: str
    measured: tuple[Value | None, ...]
    published: tuple[float | None, ...]
    digits: int = 1


def rows_figure(title: str, rows: Sequence[str], panels: Sequence[RowsPanel], caption: str) -> Drawing:
    """Draw a line for each of `rows`, in that order from the top, in every panel."""
    label = max(text_width(row, _LABEL) for row in rows)
    width = _MARGIN + label + len(panels) * (_GAP + _PANEL) + _MARGIN
    height = _TOP + _ROW * len(rows) + _BOTTOM
    drawing = Drawing(width, height, title, caption)
    drawing.add(Text(_MARGIN, 34, title, 15, bold=True))
    for number, row in enumerate(rows):
        drawing.add(Text(_MARGIN + label, _y(number) + 4, row, _LABEL, INK, "end"))
    for number, panel in enumerate(panels):
        _panel(drawing, panel, _MARGIN + label + _GAP + number * (_GAP + _PANEL), len(rows))
    drawing.add(Text(_MARGIN, height - 16, caption, 11, MUTED))
    return drawing


def _y(row: int) -> float:
    return _TOP + _ROW * (row + 0.5)


def _panel(drawing: Drawing, panel: RowsPanel, left: float, rows: int) -> None:
    low, high, tick = _scale(panel)

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * _PANEL

    drawing.add(Text(left, _TOP - 14, panel.title, 12, INK, bold=True))
    bottom = _TOP + _ROW * rows
    for number in range(round((high - low) / tick) + 1):
        value = low + number * tick
        drawing.add(Line(((x(value), _TOP), (x(value), bottom)), FAINT))
        drawing.add(Text(x(value), bottom + 16, f"{value:.6g}", 11, MUTED, "middle"))
    for number, (mark, published) in enumerate(zip(panel.measured, panel.published, strict=True)):
        y = _y(number)
        drawing.add(Line(((left, y), (left + _PANEL, y)), FAINT))
        if published is not None:
            _dot(drawing, x(published), y, _PUBLISHED, None if mark else f"{published:.{panel.digits}f}", x(high))
        if mark is not None:
            if mark.high > mark.low:
                drawing.add(Line(((x(mark.low), y), (x(mark.high), y)), _MEASURED.colour, 2))
            _dot(drawing, x(mark.value), y, _MEASURED, f"{mark.value:.{panel.digits}f}", x(high))


def _dot(drawing: Drawing, x: float, y: float, style: Style, label: str | None, right: float) -> None:
    """Draw a dot, and its value on the side where there is room."""
    drawing.add(Mark(x, y, style.mark, _DOT, style.colour))
    if label is None:
        return
    beyond = x + 8 + text_width(label, 11) > right
    drawing.add(Text(x - 8 if beyond else x + 8, y + 4, label, 11, style.colour, "end" if beyond else "start"))


def _scale(panel: RowsPanel) -> tuple[float, float, float]:
    """Return the least and the greatest value of the axis, and the step between its ticks."""
    values = [value for value in panel.published if value is not None]
    values += [edge for mark in panel.measured if mark is not None for edge in (mark.low, mark.high)]
    low, high = min(values), max(values)
    step = tick_step(max(high - low, 1e-6 * max(abs(high), 1.0)), _TICKS)
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    return low, high if high > low else low + step, step
