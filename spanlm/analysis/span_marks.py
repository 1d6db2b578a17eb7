"""What the parts of a span buffer's figure share: how probabilities are written, and the bar of a gate."""

from __future__ import annotations

from spanlm.analysis.drawing import Drawing, Line, Rect
from spanlm.analysis.palette import FAINT, MUTED, blue

Box = tuple[float, float, float, float]
"""Left, top, width and height, in pixels."""


def percent(share: float) -> str:
    """Write a probability in percent: one digit after the point, or the first that is not 0."""
    value = 100 * share
    if value >= 9.95:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if value >= 0.095 else f"{value:.1g} %"


def gate_bar(drawing: Drawing, gate: float, box: Box) -> None:
    """Fill a bar from the left by λ, with a tick in the middle, where the preference turns."""
    x, y, width, height = box
    middle = x + width / 2
    drawing.add(
        Rect(x, y, width, height, FAINT),
        Rect(x, y, width * gate, height, blue(0.55), tip=f"λ {gate:.3f}"),
        Line(((middle, y - 2), (middle, y + height + 2)), MUTED),
    )
