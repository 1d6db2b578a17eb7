"""Mean attention by lag as a figure: measured bars, and the published line where there is one."""

from __future__ import annotations

import math

from spanlm.analysis.by_lag import LAST, PUBLISHED_SOURCE, LagProfile, published_by_lag
from spanlm.analysis.drawing import FAINT, INK, MEASURED, MUTED, PUBLISHED_INK, Drawing, Line, Rect, Text

_WIDTH, _HEIGHT = 720, 430
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 28, 92, 92
_TICKS = (1, 2, 5, 10, 20, 25)
_LABEL_STEPS = (1, 2, 5, 10, 20, 50, 100)  # labels closer than 32 pixels would touch


def lag_figure(profile: LagProfile, model: str | None = None) -> Drawing:
    """Draw `profile` as bars and, for window 15, the published row of `model` as a line.

    Raises:
        InputError: As `published_by_lag`.
    """
    published = published_by_lag(model, profile.window)
    tick, top = _scale(max((*profile.percent, *(published or ()))))
    drawing = Drawing(_WIDTH, _HEIGHT, "Mean attention by lag", _caption(profile))
    _frame(drawing, tick, top)
    _bars(drawing, profile, top)
    if published:
        points = tuple((_x(index, profile.window), _y(value, top)) for index, value in enumerate(published))
        drawing.add(Line(points, PUBLISHED_INK, 2, dots=4))
    _key(drawing, model if published else None)
    drawing.add(Text(_LEFT, _HEIGHT - 22, _caption(profile), 11, MUTED))
    return drawing


def _caption(profile: LagProfile) -> str:
    recent = min(LAST, profile.window)
    return (
        f"{profile.last_five:.1f} % falls on the last {recent} of {profile.window} words. Mean over "
        f"{profile.positions:,} positions with a full window ({profile.left_out:,} left out)."
    )


def _scale(largest: float) -> tuple[float, float]:
    tick = next((step for step in _TICKS if largest / step <= 6), _TICKS[-1])
    return tick, tick * max(1, math.ceil(largest / tick))


def _x(index: int, window: int) -> float:
    return _LEFT + (index + 0.5) * (_WIDTH - _LEFT - _RIGHT) / window


def _y(percent: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - percent / top * (_HEIGHT - _TOP - _BOTTOM)


def _frame(drawing: Drawing, tick: float, top: float) -> None:
    drawing.add(Text(_LEFT, 36, "Mean attention by lag", size=15, bold=True))
    for number in range(round(top / tick) + 1):
        y = _y(number * tick, top)
        stroke = MUTED if number == 0 else FAINT
        drawing.add(Line(((_LEFT, y), (_WIDTH - _RIGHT, y)), stroke))
        drawing.add(Text(_LEFT - 8, y + 4, f"{number * tick:g} %", 11, MUTED, "end"))


def _bars(drawing: Drawing, profile: LagProfile, top: float) -> None:
    slot = (_WIDTH - _LEFT - _RIGHT) / profile.window
    width = min(0.72 * slot, 60)
    every = next(step for step in _LABEL_STEPS if step * slot >= 32 or step == _LABEL_STEPS[-1])
    for index, (lag, percent) in enumerate(zip(profile.lags, profile.percent, strict=True)):
        x, y = _x(index, profile.window), _y(percent, top)
        tip = f"lag −{lag}: {percent:.1f} %"
        drawing.add(Rect(x - width / 2, y, width, _HEIGHT - _BOTTOM - y, MEASURED, tip))
        if lag == 1 or lag % every == 0:
            drawing.add(Text(x, _HEIGHT - _BOTTOM + 18, f"−{lag}", 11, MUTED, "middle"))
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    drawing.add(Text(middle, _HEIGHT - _BOTTOM + 38, "words back", 11, MUTED, "middle"))


def _key(drawing: Drawing, model: str | None) -> None:
    drawing.add(Rect(_LEFT, 52, 12, 12, MEASURED), Text(_LEFT + 18, 62, "measured", 11, INK))
    if model:
        x = _LEFT + 110
        drawing.add(Line(((x, 58), (x + 22, 58)), PUBLISHED_INK, 2), Line(((x + 11, 58),), PUBLISHED_INK, 2, dots=4))
        drawing.add(Text(x + 30, 62, f"{model}, {PUBLISHED_SOURCE}", 11, INK))
