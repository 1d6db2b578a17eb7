"""Mean attention by lag of several models as a figure: a line for each, and the paper's beside (Fig. 3b)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from spanlm.analysis.axes import (
    MARK,
    Axes,
    Entry,
    end_with_caption,
    horizontal_grid,
    lag_axis,
    legend,
    published_line,
    rounded_up,
    series,
    ticks,
)
from spanlm.analysis.drawing import Drawing, Mark, Text
from spanlm.analysis.figure_files import check_series
from spanlm.analysis.lag_comparison import MeasuredLags, check_alike, notes
from spanlm.analysis.lags import in_words
from spanlm.analysis.palette import STYLES, Style, lighter
from spanlm.analysis.published_lags import HOLLOW, PublishedRow

check_drawable = partial(check_series, "models", ".csv, .json or .md")
"""Refuse more models than can be told apart."""

_TITLE = "Mean attention by lag"
_WIDTH, _LEFT, _RIGHT, _LEGEND_TOP, _PLOT = 820, 60, 28, 52, 330


def lag_comparison_figure(measured: Sequence[MeasuredLags]) -> Drawing:
    """Draw a line for each model and, where its window is the paper's 15, the paper's row: lighter and dashed.

    A number of the paper that was inferred is a hollow mark.

    Raises:
        InputError: If there are more models than can be told apart, or as `check_alike`.
    """
    check_drawable(len(measured))
    check_alike({one.name: one.profile.alike for one in measured})
    styled = list(zip(measured, STYLES, strict=False))
    published = _published(styled)
    rows = [row for _, row, _ in published]
    width = _WIDTH - _LEFT - _RIGHT
    drawing = Drawing(_WIDTH, 0, _TITLE, "")
    drawing.add(Text(_LEFT, 36, _TITLE, size=15, bold=True))
    top = legend(drawing, [Entry(one.name, style) for one, style in styled], _LEFT, _LEGEND_TOP, width)
    papers = [Entry(f"{model}, paper", style, published=True) for model, _, style in published]
    top = legend(drawing, papers, _LEFT, top, width)
    axes = _axes(measured, rows, top + 18)
    horizontal_grid(drawing, axes, ticks(0, axes.y_high), " %")
    lag_axis(drawing, axes, measured[0].profile.span)
    _lines(drawing, axes, styled, published)
    end_with_caption(drawing, _description(measured, rows), _LEFT, axes.bottom + 64, width)
    return drawing


def _published(styled: Sequence[tuple[MeasuredLags, Style]]) -> list[tuple[str, PublishedRow, Style]]:
    """Return the rows of the paper to be drawn, once each, in the style of the first model they belong to."""
    found: dict[str, tuple[str, PublishedRow, Style]] = {}
    for one, style in styled:
        row = one.published
        if one.model is not None and row is not None and not row.scaled:
            found.setdefault(one.model, (one.model, row, style))
    return list(found.values())


def _description(measured: Sequence[MeasuredLags], drawn: Sequence[PublishedRow]) -> str:
    text = notes(measured, drawn, HOLLOW)
    if any(one.published is not None and one.published.scaled for one in measured):
        text.append("The paper's figure has windows of 15 only: none stands beside shorter ones.")
    return " ".join(text)


def _axes(measured: Sequence[MeasuredLags], rows: Sequence[PublishedRow], top: float) -> Axes:
    spans = [one.profile.lags for one in measured] + [row.lags for row in rows]
    largest = max(max(each) for each in (*(one.profile.percent for one in measured), *(row.percent for row in rows)))
    oldest, nearest = max(span[0] for span in spans), min(span[-1] for span in spans)
    left, right, half = _LEFT, _WIDTH - _RIGHT, measured[0].profile.span / 2
    return Axes(left, right, top, top + _PLOT, -oldest - half, -nearest + half, 0, rounded_up(largest))


def _lines(
    drawing: Drawing,
    axes: Axes,
    styled: Sequence[tuple[MeasuredLags, Style]],
    published: Sequence[tuple[str, PublishedRow, Style]],
) -> None:
    for model, row, style in published:
        pairs = zip(row.lags, row.percent, strict=True)
        points = [(axes.x(-lag), axes.y(value), _tip(f"{model}, paper", in_words(lag), value)) for lag, value in pairs]
        published_line(drawing, points, style)
        for lag, (x, y, tip) in zip(row.lags, points, strict=True):
            if lag in row.inferred_lags:
                drawing.add(Mark(x, y, style.mark, MARK, lighter(style.colour), hollow=True, tip=tip))
    for one, style in styled:
        label = one.profile.label
        pairs = zip(one.profile.lags, one.profile.percent, strict=True)
        series(
            drawing, [(axes.x(-lag), axes.y(value), _tip(one.name, label(lag), value)) for lag, value in pairs], style
        )


def _tip(name: str, lag: str, percent: float) -> str:
    return f"{name}, lag {lag}: {percent:.1f} %"
