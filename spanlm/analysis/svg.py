"""Drawings as SVG: one file, no script, no font to load."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

from spanlm.analysis.drawing import PAPER, Drawing, Line, Rect, Shape, Text

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


def _rect(rect: Rect) -> str:
    box = _attributes({"x": rect.x, "y": rect.y, "width": rect.width, "height": rect.height, "fill": rect.fill})
    return f"<rect{box}><title>{xml_text(rect.tip)}</title></rect>" if rect.tip else f"<rect{box}/>"


def _text(text: Text) -> str:
    attributes = _attributes(
        {
            "x": text.x,
            "y": text.y,
            "font-size": text.size,
            "font-weight": "bold" if text.bold else "normal",
            "fill": text.fill,
            "text-anchor": text.anchor,
            "pointer-events": "none",  # a label over a cell must not hide the cell's own tooltip
        }
    )
    return f"<text{attributes}>{xml_text(text.text)}</text>"


def _line(line: Line) -> str:
    points = " ".join(f"{_number(x)},{_number(y)}" for x, y in line.points)
    path = _attributes({"points": points, "fill": "none", "stroke": line.stroke, "stroke-width": line.width})
    dots = (
        _attributes({"cx": x, "cy": y, "r": line.dots, "fill": line.stroke, "stroke": PAPER})
        for x, y in line.points
        if line.dots
    )
    return "".join([f"<polyline{path}/>", *(f"<circle{dot}/>" for dot in dots)])


def _attributes(values: dict[str, str | float]) -> str:
    shown = ((name, value if isinstance(value, str) else _number(value)) for name, value in values.items())
    return "".join(f' {name}="{xml_text(value)}"' for name, value in shown)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
