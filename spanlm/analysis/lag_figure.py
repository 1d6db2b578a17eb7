"""Mean attention by lag as a figure: measured bars, and the published line where there is one."""

from __future__ import annotations

from spanlm.analysis.axes import Axes, end_with_caption, horizontal_grid, lag_axis, rounded_up, ticks
from spanlm.analysis.by_lag import LAST, LEAST_SHOWN, LagProfile
from spanlm.analysis.drawing import Drawing, Line, Mark, Rect, Text
from spanlm.analysis.lags import in_words
from spanlm.analysis.palette import INK, MEASURED, PUBLISHED_INK
from spanlm.analysis.published_lags import (
    ABOUT,
    HOLLOW,
    PUBLISHED_SOURCE,
    PublishedRow,
    published_by_lag,
    published_notes,
)

_WIDTH, _LEFT, _RIGHT, _TOP, _PLOT = 720, 60, 28, 92, 246


def lag_figure(profile: LagProfile, model: str | None = None) -> Drawing:
    """Draw `profile` as bars and, for window 15, the published row of `model` as a line.

    A number of that row that was inferred is a hollow mark, and a note says so.

    Raises:
        InputError: As `published_by_lag`.
    """
    published = published_by_lag(model, profile.window)
    text = " ".join([_caption(profile), *published_notes([published] if published else [], HOLLOW)])
    axes = _axes(max((*profile.percent, *(published.percent if published else ()))), profile)
    drawing = Drawing(_WIDTH, 0, "Mean attention by lag", text)
    drawing.add(Text(_LEFT, 36, "Mean attention by lag", size=15, bold=True))
    horizontal_grid(drawing, axes, ticks(0, axes.y_high), " %")
    _bars(drawing, profile, axes)
    if published:
        _line(drawing, published, axes)
    _key(drawing, model if published else None)
    end_with_caption(drawing, text, _LEFT, axes.bottom + 64, _WIDTH - _LEFT - _RIGHT)
    return drawing


def _caption(profile: LagProfile) -> str:
    positions = f"{profile.positions:,} positions {profile.counted} ({profile.left_out:,} left out)."
    shares = []
    if profile.window > LAST:
        among = f" of {profile.window}" if profile.older is None else ""
        shares.append(f"{profile.last_five:.1f} % falls on the last {LAST}{among} {profile.slots}.")
    if profile.older is not None:
        shares.append(f"{profile.older:.1f} % lies on older words than these {profile.window}.")
    if profile.on_no_step >= LEAST_SHOWN:
        shares.append(f"{profile.on_no_step:.1f} % lies on no word.")
    return " ".join([*shares, f"Mean over {positions}", profile.about_spans]).rstrip()


def _axes(largest: float, profile: LagProfile) -> Axes:
    low, high = -profile.lags[0] - profile.span / 2, -profile.nearest_lag + profile.span / 2
    return Axes(_LEFT, _WIDTH - _RIGHT, _TOP, _TOP + _PLOT, low, high, 0, rounded_up(largest))


def _bars(drawing: Drawing, profile: LagProfile, axes: Axes) -> None:
    slot = (axes.right - axes.left) / profile.window
    width = min(0.72 * slot, 60)
    for lag, percent in zip(profile.lags, profile.percent, strict=True):
        x, y = axes.x(-lag), axes.y(percent)
        tip = f"lag {profile.label(lag)}: {percent:.1f} %"
        drawing.add(Rect(x - width / 2, y, width, axes.bottom - y, MEASURED, tip))
    lag_axis(drawing, axes, profile.span)


def _line(drawing: Drawing, published: PublishedRow, axes: Axes) -> None:
    points = [(axes.x(-lag), axes.y(value)) for lag, value in zip(published.lags, published.percent, strict=True)]
    drawing.add(Line(tuple(points), PUBLISHED_INK, 2))
    for (x, y), lag, percent in zip(points, published.lags, published.percent, strict=True):
        inferred = lag in published.inferred_lags
        tip = f"paper, lag {in_words(lag)}: {ABOUT * inferred}{percent:.1f} %"
        drawing.add(Mark(x, y, "circle", 4, PUBLISHED_INK, inferred, tip))


def _key(drawing: Drawing, model: str | None) -> None:
    drawing.add(Rect(_LEFT, 52, 12, 12, MEASURED), Text(_LEFT + 18, 62, "measured", 11, INK))
    if model:
        x = _LEFT + 110
        drawing.add(Line(((x, 58), (x + 22, 58)), PUBLISHED_INK, 2), Mark(x + 11, 58, "circle", 4, PUBLISHED_INK))
        drawing.add(Text(x + 30, 62, f"{model}, {PUBLISHED_SOURCE}", 11, INK))
