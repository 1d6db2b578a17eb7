"""Drawings as SVG: one file, no script, no font to load."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.sax.saxutils import escape

from spanlm.analysis.drawing import HOLLOW_EDGE, Drawing, Line, Mark, Rect, Shape, Text
from spanlm.analysis.palette import PAPER

FONTS = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
# what XML 1.0 cannot hold even when escaped: control characters, surrogates, two non-characters
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def render_svg(drawing: Drawing) -> str:
    """Return `drawing` as an SVG document."""
    size: dict[str, str | float] = {"width": drawing.width, "height": drawing.height}
    root = _attributes(
        {
            "xmlns": "http://www.w3.org/2000/svg",
            **size,
            "viewBox": f"0 0 {_number(drawing.width)} {_number(drawing.height)}",
            "role": "img",
            "aria-labelledby": "title description",
            "font-family": FONTS,
        }
    )
    title, description = xml_text(drawing.title), xml_text(drawing.description)
    lines = [
        f"<svg{root}>",
        f'<title id="title">{title}</title>',
        f'<desc id="description">{description}</desc>',
        f"<rect{_attributes({**size, 'fill': PAPER})}/>",
        *map(_element, drawing.shapes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def xml_text(text: str) -> str:
    """Return `text` safe inside an element or a quoted attribute; characters XML forbids become U+FFFD."""
    return escape(_ILLEGAL.sub("\ufffd", text), {'"': "&quot;", "'": "&#39;"})


def _element(shape: Shape) -> str:
    match shape:
        case Rect():
            return _rect(shape)
        case Text():
            return _text(shape)
        case Line():
            return _line(shape)
        case Mark():
            return _mark(shape)


def _rect(rect: Rect) -> str:
    return _tipped(
        "rect", {"x": rect.x, "y": rect.y, "width": rect.width, "height": rect.height, "fill": rect.fill}, rect.tip
    )


def _text(text: Text) -> str:
    turn: dict[str, str | float] = (
        {"transform": f"rotate(-90 {_number(text.x)} {_number(text.y)})"} if text.upwards else {}
    )
    attributes = _attributes(
        {
            "x": text.x,
            "y": text.y,
            **turn,
            "font-size": text.size,
            "font-weight": "bold" if text.bold else "normal",
            "fill": text.fill,
            "text-anchor": text.anchor,
            "pointer-events": "none",  # a label over a cell must not hide the cell's own tooltip
        }
    )
    return f"<text{attributes}>{xml_text(text.text)}</text>"


def _line(line: Line) -> str:
    look: dict[str, str | float] = {"fill": "none", "stroke": line.stroke, "stroke-width": line.width}
    if line.dash:
        look["stroke-dasharray"] = " ".join(map(_number, line.dash))
    return f"<polyline{_attributes({'points': _points(line.points), **look})}/>"


def _mark(mark: Mark) -> str:
    # a filled mark has a thin edge of paper, to stand out from lines and other marks below it
    look: dict[str, str | float] = {
        "fill": PAPER if mark.hollow else mark.colour,
        "stroke": mark.colour if mark.hollow else PAPER,
        "stroke-width": HOLLOW_EDGE if mark.hollow else 1,
    }
    if mark.outline:
        return _tipped("polygon", {"points": _points(mark.outline), **look}, mark.tip)
    return _tipped("circle", {"cx": mark.x, "cy": mark.y, "r": mark.radius, **look}, mark.tip)


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _tipped(name: str, values: dict[str, str | float], tip: str) -> str:
    start = f"<{name}{_attributes(values)}"
    return f"{start}><title>{xml_text(tip)}</title></{name}>" if tip else f"{start}/>"


def _attributes(values: dict[str, str | float]) -> str:
    shown = ((name, value if isinstance(value, str) else _number(value)) for name, value in values.items())
    return "".join(f' {name}="{xml_text(value)}"' for name, value in shown)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
