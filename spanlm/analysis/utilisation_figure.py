"""How often a span buffer was used after each epoch, as lines (Li et al., 2020, Figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from spanlm.analysis.axes import (
    DASH,
    LEGEND_ROW,
    LEGEND_SIZE,
    MARK,
    TICK_SIZE,
    Axes,
    Entry,
    end_with_caption,
    horizontal_grid,
    legend,
    rounded_up,
    ticks,
)
from spanlm.analysis.drawing import Drawing, Line, Mark, Text, clip, text_width
from spanlm.analysis.figure_files import check_series
from spanlm.analysis.palette import INK, MUTED, STYLES, Style
from spanlm.analysis.utilisation import EXPLAINED, Utilisation, longest, spread_epochs

check_drawable = partial(check_series, "runs", ".csv or .json")
"""Refuse more runs than can be told apart."""

PUBLISHED = {"oracle": 7.0, "learned": 10.0}
"""Where the paper's example ends, in percent; its text has these two numbers."""

_WIDTH, _LEFT, _RIGHT, _LEGEND_TOP, _PLOT = 820, 60, 132, 52, 300
_INSIDE = _WIDTH - _LEFT - 28
_MOST_MARKS, _FEW_MARKS, _CLOSEST = 26, 12, 14
_SAMPLE = 30
_PAPER = (
    "Dashed: where the paper's example ends; it begins near 50 % and falls to almost nothing before it rises "
    "(Li et al. 2020, Figure 4, as its text says)."
)


def utilisation_figure(title: str, measured: Sequence[Utilisation], caption: str = "") -> Drawing:
    """Draw PoU as a line for each run, and its oracle PoU as a thin one with hollow marks, over the epochs.

    Args:
        title: above all.
        measured: the runs.
        caption: below all, before what the figure itself needs to be read.

    Raises:
        InputError: there are more runs than can be told apart.
    """
    check_drawable(len(measured))
    drawing = Drawing(_WIDTH, 0, title, "")
    drawing.add(Text(_LEFT, 36, clip(title, 15 * 1.1, _INSIDE), 15, bold=True))
    styled = list(zip(measured, STYLES, strict=False))
    top = legend(drawing, [Entry(one.name, style) for one, style in styled], _LEFT, _LEGEND_TOP, _INSIDE)
    top = _line_key(drawing, top) + 18
    axes = _axes(measured, top)
    horizontal_grid(drawing, axes, ticks(0, axes.y_high), " %")
    _epoch_axis(drawing, axes, longest(measured))
    _published(drawing, axes)
    for one, style in styled:
        _lines(drawing, axes, one, style)
    end_with_caption(drawing, " ".join([caption, f"{EXPLAINED}.", _PAPER]).strip(), _LEFT, axes.bottom + 64, _INSIDE)
    return drawing


def _line_key(drawing: Drawing, top: float) -> float:
    """Say which of a run's two lines is which; return where that ends."""
    y, x = top + 0.5 * LEGEND_ROW, float(_LEFT)
    for label, width, hollow in (("PoU", 2, False), ("oracle PoU", 1, True)):
        drawing.add(
            Line(((x, y), (x + _SAMPLE, y)), MUTED, width),
            Mark(x + _SAMPLE / 2, y, "circle", _radius(hollow), MUTED, hollow),
            Text(x + _SAMPLE + 7, y + 4, label, LEGEND_SIZE, INK),
        )
        x += _SAMPLE + 29 + text_width(label, LEGEND_SIZE)
    return top + LEGEND_ROW


def _radius(hollow: bool) -> float:
    return 0.75 * MARK if hollow else MARK


def _axes(measured: Sequence[Utilisation], top: float) -> Axes:
    largest = max(100 * share for one in measured for share in (*one.learned, *one.oracle))
    edge = max(0.02 * (longest(measured) - 1), 0.5)
    high = rounded_up(max(largest, *PUBLISHED.values()))
    return Axes(_LEFT, _WIDTH - _RIGHT, top, top + _PLOT, 1 - edge, longest(measured) + edge, 0, high)


def _epoch_axis(drawing: Drawing, axes: Axes, epochs: int) -> None:
    whole = [value for value in ticks(1, epochs, 12) if value == round(value)] if epochs > 1 else []
    for value in dict.fromkeys([1.0, *whole]):
        drawing.add(Text(axes.x(value), axes.bottom + 18, f"{value:g}", TICK_SIZE, MUTED, "middle"))
    drawing.add(Text((axes.left + axes.right) / 2, axes.bottom + 38, "epoch", TICK_SIZE, MUTED, "middle"))


def _published(drawing: Drawing, axes: Axes) -> None:
    """Rule a line where each of the paper's two ends, named to the right."""
    room = _CLOSEST - abs(axes.y(PUBLISHED["learned"]) - axes.y(PUBLISHED["oracle"]))
    for name, percent in PUBLISHED.items():
        y = axes.y(percent)
        # on a long scale the two names would touch
        aside = max(room, 0) / 2 * (1 if name == "oracle" else -1)
        label = f"paper: {'oracle ' if name == 'oracle' else 'about '}{percent:g} %"
        drawing.add(
            Line(((axes.left, y), (axes.right, y)), MUTED, 1, DASH),
            Text(axes.right + 6, y + 4 + aside, label, TICK_SIZE, MUTED),
        )


def _lines(drawing: Drawing, axes: Axes, one: Utilisation, style: Style) -> None:
    for what, shares, hollow in (("oracle PoU", one.oracle, True), ("PoU", one.learned, False)):
        points = [(axes.x(epoch), axes.y(100 * share)) for epoch, share in enumerate(shares, start=1)]
        if len(points) > 1:
            drawing.add(Line(tuple(points), style.colour, 1 if hollow else 2))
        # of a long line only some are marked, or they would hide it
        marked = _FEW_MARKS if len(points) > _MOST_MARKS else len(points)
        for epoch in spread_epochs(len(points), marked):
            tip = f"{one.name}, epoch {epoch + 1}: {what} {100 * shares[epoch]:.1f} %"
            drawing.add(Mark(*points[epoch], style.mark, _radius(hollow), style.colour, hollow, tip))
