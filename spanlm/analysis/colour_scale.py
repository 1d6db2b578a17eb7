"""The key of a scale of one hue, from none to the darkest."""

from __future__ import annotations

import math

from spanlm.analysis.drawing import Drawing, Rect, Text
from spanlm.analysis.palette import FAINT, MUTED, blue

_STEPS, _STEP, _HEIGHT, _SIZE, _GAP = 24, 8, 10, 10.0, 12
KEY_WIDTH = _STEPS * _STEP


def colour_key(drawing: Drawing, x: float, y: float, top: float, above: bool) -> None:
    """Draw the scale from 0 to `top`; where some weights are `above` it, its end says so."""
    drawing.add(Rect(x - 1, y - 1, KEY_WIDTH + 2, _HEIGHT + 2, FAINT))
    for number in range(_STEPS):
        drawing.add(Rect(x + number * _STEP, y, _STEP, _HEIGHT, blue((number + 0.5) / _STEPS)))
    for share in (0.0, 0.5, 1.0):
        label = f"{'≥ ' if above and share == 1 else ''}{100 * top * share:g} %"
        drawing.add(Text(x + share * KEY_WIDTH, y + 24, label, _SIZE, MUTED, "middle"))
    drawing.add(Text(x - _GAP, y + 9, "attention", _SIZE, MUTED, "end"))


def scale_top(largest: float) -> float:
    """Return the weight that is darkest, a round one that is not below `largest`; 1 where there are no weights."""
    if not 0 < largest < 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    step = next(step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if not is_above(largest, step * power))
    return step * power


def is_above(largest: float, top: float) -> bool:
    """Say whether a weight is larger than the one that is darkest."""
    # a hair wider: 0.1 as a float32 is more than 0.1
    return largest > top * (1 + 1e-6)
