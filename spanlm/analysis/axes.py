"""What plots of numbers share: a plot area with its scales, a grid, series and a legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spanlm.analysis.drawing import Drawing, Line, Mark, Text, text_width, wrap
from spanlm.analysis.lags import axis_title, signed
from spanlm.analysis.palette import FAINT, INK, MUTED, Style, lighter

DASH = (6.0, 4.0)
"""Of what was published, beside what was measured."""

MARK = 4.2
TICK_SIZE = 11
LEGEND_SIZE = 12
LEGEND_ROW = 20
CAPTION_SIZE = 11.5
CAPTION_ROW = 18
_SAMPLE, _SPACE = 30, 22
_LAG_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # labels closer than 32 pixels would touch


@dataclass(frozen=True)
class Axes:
    """A rectangle of the drawing, in pixels, and the numbers at its edges."""

    left: float
    right: float
    top: float
    bottom: float
    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        """Return where `value` stands from the left."""
        return self.left + (value - self.x_low) / (self.x_high - self.x_low) * (self.right - self.left)

    def y(self, value: float) -> float:
        """Return where `value` stands from the top."""
        return self.bottom - (value - self.y_low) / (self.y_high - self.y_low) * (self.bottom - self.top)


def tick_step(span: float, most: int = 6) -> float:
    """Return the smallest of …, 0.1, 0.2, 0.5, 1, 2, 5, 10, … that fits at most `most` times into `span`."""
    power = 10.0 ** math.floor(math.log10(span / most))
    # a hair wider: 6 · 0.1 is more than 0.6
    return next(step * power for step in (1, 2, 5, 10) if span <= most * step * power * (1 + 1e-9))


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return the round numbers from `low` to `high`."""
    step = tick_step(high - low, most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def rounded_up(largest: float) -> float:
    """Return the round number where a scale from 0 to at least `largest` ends."""
    step = tick_step(largest)
    return step * math.ceil(largest / step - 1e-9)


def horizontal_grid(drawing: Drawing, axes: Axes, values: Sequence[float], unit: str = "") -> None:
    """Rule a line at each of `values`, named to its left; the one at the bottom is the axis."""
    drawing.add(Line(((axes.left, axes.bottom), (axes.right, axes.bottom)), MUTED))
    for value in values:
        y = axes.y(value)
        if y < axes.bottom - 0.5:
            drawing.add(Line(((axes.left, y), (axes.right, y)), FAINT))
        drawing.add(Text(axes.left - 8, y + 4, f"{value:.6g}{unit}", TICK_SIZE, MUTED, "end"))


def lag_axis(drawing: Drawing, axes: Axes, span: int = 1) -> None:
    """Name the lags below the plot, the present to the right: lag i stands at x = -i, half a slot from the edge.

    Of spans of several words only the lags where they end are named.
    """
    nearest = -round(axes.x_high - span / 2)
    lags = range(nearest, -round(axes.x_low + span / 2) + 1, span)
    slot = axes.x(span) - axes.x(0)
    every = next(step for step in _LAG_STEPS if step * slot >= 32 or step == _LAG_STEPS[-1])
    for lag in lags:
        if lag == nearest or (lag if span == 1 else lags.index(lag)) % every == 0:
            drawing.add(Text(axes.x(-lag), axes.bottom + 18, signed(lag), TICK_SIZE, MUTED, "middle"))
    middle = (axes.left + axes.right) / 2
    drawing.add(Text(middle, axes.bottom + 38, axis_title(nearest, span), TICK_SIZE, MUTED, "middle"))


def series(drawing: Drawing, points: Sequence[tuple[float, float, str]], style: Style) -> None:
    """Join pixels (x, y) by a line and mark each; a mark shows its text to a viewer that hovers."""
    if len(points) > 1:
        drawing.add(Line(tuple((x, y) for x, y, _ in points), style.colour, 2))
    drawing.add(*(Mark(x, y, style.mark, MARK, style.colour, tip=tip) for x, y, tip in points))


def published_series(drawing: Drawing, points: Sequence[tuple[float, float, str]], style: Style) -> None:
    """Join pixels (x, y) by a lighter, dashed line, with small marks."""
    published_line(drawing, points, style)
    drawing.add(*(Mark(x, y, style.mark, 0.7 * MARK, lighter(style.colour), tip=tip) for x, y, tip in points))


def published_line(drawing: Drawing, points: Sequence[tuple[float, float, str]], style: Style) -> None:
    """Join pixels (x, y) by a lighter, dashed line."""
    if len(points) > 1:
        drawing.add(Line(tuple((x, y) for x, y, _ in points), lighter(style.colour), 2, DASH))


@dataclass(frozen=True)
class Entry:
    """A line of the legend: measured, or published."""

    label: str
    style: Style
    published: bool = False


def legend(drawing: Drawing, entries: Sequence[Entry], left: float, top: float, width: float) -> float:
    """Write `entries` from left to right, in rows of at most `width`; return where the last row ends."""
    row = -1
    for (x, row), entry in zip(_places(entries, width), entries, strict=True):
        y = top + (row + 0.5) * LEGEND_ROW
        start, end = left + x, left + x + _SAMPLE
        draw = published_series if entry.published else series
        drawing.add(Line(((start, y), (end, y)), *_stroke(entry)))
        draw(drawing, [((start + end) / 2, y, "")], entry.style)
        drawing.add(Text(end + 7, y + 4, entry.label, LEGEND_SIZE, INK))
    return top + LEGEND_ROW * (row + 1)


def end_with_caption(drawing: Drawing, text: str, left: float, top: float, width: float) -> None:
    """Write what must be known below a plot, and end the paper there."""
    drawing.description = text
    lines = wrap(text, CAPTION_SIZE, width)
    for number, line in enumerate(lines):
        drawing.add(Text(left, top + CAPTION_ROW * number, line, CAPTION_SIZE, MUTED))
    drawing.height = top + CAPTION_ROW * len(lines) + 6


def _stroke(entry: Entry) -> tuple[str, float, tuple[float, ...]]:
    return (lighter(entry.style.colour), 2, DASH) if entry.published else (entry.style.colour, 2, ())


def _places(entries: Sequence[Entry], width: float) -> list[tuple[float, int]]:
    places, x, row = [], 0.0, 0
    for entry in entries:
        needed = _SAMPLE + 7 + text_width(entry.label, LEGEND_SIZE)
        if x > 0 and x + needed > width:
            x, row = 0.0, row + 1
        places.append((x, row))
        x += needed + _SPACE
    return places
