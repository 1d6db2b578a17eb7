"""A figure as a list of shapes in pixels: drawn once, written as SVG or PNG, so that both show the same."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import Literal

Anchor = Literal["start", "middle", "end"]

INK, MUTED, FAINT, PAPER = "#1c1f24", "#5b626d", "#dfe3e8", "#ffffff"
MEASURED, PUBLISHED_INK = (
    "#2171b5",
    "#b8480a",
)  # blue and vermilion stay apart under every common colour blindness

# ColorBrewer "Blues": one hue, lightness falls evenly, so it survives a black-and-white printer
_BLUES = ("#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b")
_BLUES_RGB = tuple(tuple(int(stop[i : i + 2], 16) for i in (1, 3, 5)) for stop in _BLUES)


@dataclass(frozen=True)
class Rect:
    """A filled rectangle; `tip` is shown where a viewer can hover."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    tip: str = ""


@dataclass(frozen=True)
class Text:
    """A line of text whose baseline is at y."""

    x: float
    y: float
    text: str
    size: float = 11
    fill: str = INK
    anchor: Anchor = "start"
    bold: bool = False


@dataclass(frozen=True)
class Line:
    """A line through two or more points; `dots` marks each of them with a circle of that radius."""

    points: tuple[tuple[float, float], ...]
    stroke: str
    width: float = 1
    dots: float = 0


Shape = Rect | Text | Line


@dataclass
class Drawing:
    """Shapes on white paper, painted in order."""

    width: float
    height: float
    title: str
    description: str
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        """Paint `shapes` over what is there."""
        self.shapes.extend(shapes)


def blue(share: float) -> str:
    """Return the colour for `share` in [0, 1] of a one-hue scale from almost white to dark blue."""
    place = min(max(share, 0.0), 1.0) * (len(_BLUES_RGB) - 1)
    low = min(int(place), len(_BLUES_RGB) - 2)
    mixed = (round(a + (b - a) * (place - low)) for a, b in zip(_BLUES_RGB[low], _BLUES_RGB[low + 1], strict=True))
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def text_width(text: str, size: float) -> float:
    """Estimate the width of `text` in pixels, from above: it must fit in whatever font the reader has."""
    ems = sum(1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.62 for letter in text)
    return ems * size


def clip(text: str, size: float, width: float) -> str:
    """Return `text`, cut and ended by … where it would be wider than `width` pixels."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "…", size) > width:
        text = text[:-1]
    return text + "…"
