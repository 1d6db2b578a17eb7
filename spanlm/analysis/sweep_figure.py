"""A number measured for several values of one setting, as curves (Daniluk et al. 2017, Figures 2a and 2b).

Panels stand side by side and share the horizontal axis. Each has a vertical axis of its own, so that perplexities
of different texts are not read against each other; but all span the same ratio, so that a step as high in one
panel as in another is the same change in percent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spanlm.analysis.axes import (
    TICK_SIZE,
    Axes,
    Entry,
    end_with_caption,
    horizontal_grid,
    legend,
    published_series,
    series,
    ticks,
)
from spanlm.analysis.drawing import Drawing, Line, Text, clip
from spanlm.analysis.palette import MUTED, STYLES, Style
from spanlm.errors import require

_WIDTH, _LEFT, _RIGHT, _GAP = 840, 64, 20, 72
_INSIDE = _WIDTH - _LEFT - _RIGHT
_LEGEND_TOP, _PLOT = 52, 290
_TITLE_SIZE, _PANEL_SIZE = 16, 13
_ROUNDING = 1e-9
_LEAST_RATIO = 1.02  # a scale for values that are all the same
_MARGIN = 0.12  # of the height, above and below the values
_CAP, _BESIDE, _CLOSEST = 3, 5, 26  # half a bar's end; from bar to bar; from name to name on the axis


@dataclass(frozen=True)
class Point:
    """What was measured at one setting.

    Attributes:
        x: the setting.
        value: what is joined to a curve.
        low: least of several seeds, None for one.
        high: greatest of several seeds, None for one.
    """

    x: float
    value: float
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn on a scale of ratios."""
        low, high = self.span
        # a mean of equal numbers may miss them by a rounding
        ordered = low * (1 - _ROUNDING) <= self.value <= high * (1 + _ROUNDING)
        usable = math.isfinite(self.x) and math.isfinite(high) and low > 0 and ordered
        require(usable, "point", self, "finite, with 0 < low <= value <= high")

    @property
    def span(self) -> tuple[float, float]:
        """The least and the greatest of its numbers."""
        return (
            self.value if self.low is None else self.low,
            self.value if self.high is None else self.high,
        )


@dataclass(frozen=True)
class Series:
    """A curve: the points of one model, in any order.

    Attributes:
        name: of the model; it has one colour and mark in all panels.
        points: at least one.
        published: not measured here: lighter and dashed.
    """

    name: str
    points: tuple[Point, ...]
    published: bool = False

    def __post_init__(self) -> None:
        """Refuse a curve that is not there."""
        require(len(self.points) > 0, f"series {self.name}", "()", "at least one point")


@dataclass(frozen=True)
class Panel:
    """A plot with a vertical axis of its own: what can be read on one scale, such as perplexities of one text."""

    title: str
    series: tuple[Series, ...]

    def __post_init__(self) -> None:
        """Refuse an empty plot."""
        require(len(self.series) > 0, f"panel {self.title}", "()", "at least one series; leave it out")


def sweep_figure(title: str, x_label: str, y_label: str, panels: tuple[Panel, ...], caption: str = "") -> Drawing:
    """Draw `panels` side by side.

    Args:
        title: above all.
        x_label: of the setting; every value of it that occurs is named.
        y_label: of the numbers.
        panels: at least one.
        caption: below all; what the figure itself needs to be read is added.

    Raises:
        InputError: If there is nothing to draw, or there are more curves than can be told apart.
    """
    styles = _styles(panels)
    measured = {one.name for panel in panels for one in panel.series if not one.published}
    entries = [Entry(name, style, published=name not in measured) for name, style in styles.items()]
    drawing = Drawing(_WIDTH, 0, title, "")
    drawing.add(Text(_LEFT, 36, clip(title, 1.1 * _TITLE_SIZE, _INSIDE), _TITLE_SIZE, bold=True))
    top = legend(drawing, entries, _LEFT, _LEGEND_TOP, _INSIDE) + 44
    for panel, axes in zip(panels, _axes(panels, top), strict=True):
        _panel(drawing, panel, axes, styles, (x_label, y_label))
        _settings(drawing, axes, sorted({point.x for point in _points(panels)}))
    text = " ".join([caption, *_notes(panels)]).strip()
    end_with_caption(drawing, text, _LEFT, top + _PLOT + 66, _INSIDE)
    return drawing


def _styles(panels: Sequence[Panel]) -> dict[str, Style]:
    names = list(dict.fromkeys(one.name for panel in panels for one in panel.series))
    require(0 < len(names) <= len(STYLES), "curves of a figure", len(names), f"from 1 to {len(STYLES)}")
    return dict(zip(names, STYLES, strict=False))


def _notes(panels: Sequence[Panel]) -> list[str]:
    notes = []
    if any(point.span[0] < point.span[1] for point in _points(panels)):
        notes.append("Bars go from the least to the greatest of several seeds.")
    if any(one.published for panel in panels for one in panel.series):
        notes.append("Dashed: published.")
    if len(panels) > 1:
        notes.append("Each panel has a scale of its own; all span the same ratio: equal heights are equal percentages.")
    return notes


def _points(panels: Sequence[Panel]) -> list[Point]:
    return [point for panel in panels for one in panel.series for point in one.points]


def _axes(panels: Sequence[Panel], top: float) -> list[Axes]:
    everywhere = [point.x for point in _points(panels)]
    left, right = min(everywhere), max(everywhere)
    edge = 0.06 * (right - left) or 0.5
    spans = [_span(panel) for panel in panels]
    half = max(_LEAST_RATIO, *(high / low for low, high in spans)) ** (0.5 + _MARGIN)
    width = (_INSIDE - _GAP * (len(panels) - 1)) / len(panels)
    found = []
    for number, (low, high) in enumerate(spans):
        middle, start = math.sqrt(low * high), _LEFT + number * (width + _GAP)
        found.append(
            Axes(start, start + width, top, top + _PLOT, left - edge, right + edge, middle / half, middle * half)
        )
    return found


def _span(panel: Panel) -> tuple[float, float]:
    lows, highs = zip(*(point.span for one in panel.series for point in one.points), strict=True)
    return min(lows), max(highs)


def _panel(drawing: Drawing, panel: Panel, axes: Axes, styles: dict[str, Style], labels: tuple[str, str]) -> None:
    x_label, y_label = labels
    heading = clip(panel.title, 1.1 * _PANEL_SIZE, axes.right - axes.left)
    drawing.add(
        Text(axes.left, axes.top - 24, heading, _PANEL_SIZE, bold=True),
        Text(axes.left, axes.top - 7, y_label, TICK_SIZE, MUTED),
        Text((axes.left + axes.right) / 2, axes.bottom + 38, x_label, TICK_SIZE, MUTED, "middle"),
    )
    horizontal_grid(drawing, axes, ticks(axes.y_low, axes.y_high))
    for one, aside in zip(panel.series, _asides(panel), strict=True):
        points = sorted(one.points, key=lambda point: point.x)
        for point in points:
            _bar(drawing, axes.x(point.x) + aside, axes, point, styles[one.name].colour)
        places = [(axes.x(p.x) + aside, axes.y(p.value), f"{one.name}, {x_label} {p.x:g}: {p.value:g}") for p in points]
        (published_series if one.published else series)(drawing, places, styles[one.name])


def _asides(panel: Panel) -> list[float]:
    """Return how many pixels each curve stands beside its setting, so that bars do not hide each other."""
    barred = [one for one in panel.series if any(point.span[0] < point.span[1] for point in one.points)]
    if len(barred) < 2:
        return [0.0] * len(panel.series)
    return [_BESIDE * (barred.index(one) - (len(barred) - 1) / 2) if one in barred else 0.0 for one in panel.series]


def _settings(drawing: Drawing, axes: Axes, values: Sequence[float]) -> None:
    written = -math.inf
    for x, value in ((axes.x(value), value) for value in values):
        if x - written >= _CLOSEST:
            drawing.add(Text(x, axes.bottom + 18, f"{value:g}", TICK_SIZE, MUTED, "middle"))
            written = x


def _bar(drawing: Drawing, x: float, axes: Axes, point: Point, colour: str) -> None:
    low, high = point.span
    if low < high:
        bottom, top = axes.y(low), axes.y(high)
        drawing.add(
            Line(((x, bottom), (x, top)), colour, 1.5),
            *(Line(((x - _CAP, y), (x + _CAP, y)), colour, 1.5) for y in (bottom, top)),
        )
