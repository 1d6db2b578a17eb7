"""A figure as a list of shapes in pixels: drawn once, written as SVG or PNG, so that both show the same."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import Literal

from spanlm.analysis.palette import INK, MarkShape

Anchor = Literal["start", "middle", "end"]


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
    """A line of text whose baseline is at y or, read from the bottom to the top, at x."""

    x: float
    y: float
    text: str
    size: float = 11
    fill: str = INK
    anchor: Anchor = "start"
    bold: bool = False
    upwards: bool = False


@dataclass(frozen=True)
class Line:
    """A line through two or more points; `dash` gives the lengths of strokes and gaps."""

    points: tuple[tuple[float, float], ...]
    stroke: str
    width: float = 1
    dash: tuple[float, ...] = ()


@dataclass(frozen=True)
class Mark:
    """A point of a series, of about the same area in every shape; `hollow` draws its outline alone."""

    x: float
    y: float
    shape: MarkShape
    radius: float
    colour: str
    hollow: bool = False
    tip: str = ""

    @property
    def outline(self) -> tuple[tuple[float, float], ...]:
        """The corners in pixels; none for a circle."""
        return tuple((self.x + self.radius * x, self.y + self.radius * y) for x, y in _OUTLINES[self.shape])


Shape = Rect | Text | Line | Mark

HOLLOW_EDGE = 1.6
"""How wide the outline of a hollow mark is, in pixels."""

_ARM, _THIN = 1.2, 0.42
_PLUS = (
    *((-_THIN, -_ARM), (_THIN, -_ARM), (_THIN, -_THIN), (_ARM, -_THIN), (_ARM, _THIN), (_THIN, _THIN)),
    *((_THIN, _ARM), (-_THIN, _ARM), (-_THIN, _THIN), (-_ARM, _THIN), (-_ARM, -_THIN), (-_THIN, -_THIN)),
)
# in units of the radius, y downwards
_OUTLINES: dict[MarkShape, tuple[tuple[float, float], ...]] = {
    "circle": (),
    "square": ((-0.89, -0.89), (0.89, -0.89), (0.89, 0.89), (-0.89, 0.89)),
    "triangle": ((0, -1.3), (1.2, 0.85), (-1.2, 0.85)),
    "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    "inverted": ((0, 1.3), (1.2, -0.85), (-1.2, -0.85)),
    "plus": _PLUS,
    "cross": tuple(((x - y) * 0.5**0.5, (x + y) * 0.5**0.5) for x, y in _PLUS),
}


_NARROW, _WIDE = frozenset(" .,:;!|'()[]-/ijlft"), frozenset("mwMWOQ%@—…")


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


def text_width(text: str, size: float) -> float:
    """Estimate the width of `text` in pixels, from above: it must fit in whatever font the reader has."""
    return sum(map(_ems, text)) * size


def _ems(letter: str) -> float:
    # a little more than DejaVu Sans, the widest font that figures are commonly shown in
    if letter in _NARROW:
        return 0.42
    return 1.0 if letter in _WIDE or unicodedata.east_asian_width(letter) in "WF" else 0.65


def clip(text: str, size: float, width: float) -> str:
    """Return `text`, cut and ended by … where it would be wider than `width` pixels."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "…", size) > width:
        text = text[:-1]
    return text + "…"


def wrap(text: str, size: float, width: float) -> list[str]:
    """Cut `text` at its spaces into lines of at most `width` pixels; a word that is wider is cut, too."""
    lines: list[str] = []
    for piece in (piece for word in text.split() for piece in _pieces(word, size, width)):
        longer = f"{lines[-1]} {piece}" if lines else piece
        if lines and text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(piece)
    return lines or [""]


def _pieces(word: str, size: float, width: float) -> list[str]:
    pieces = [""]
    for letter in word:
        if pieces[-1] and text_width(pieces[-1] + letter, size) > width:
            pieces.append("")
        pieces[-1] += letter
    return pieces
