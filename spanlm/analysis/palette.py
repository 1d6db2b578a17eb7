"""Colours and marks that stay apart on white paper, on a black-and-white printer and for every eye."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MarkShape = Literal["circle", "square", "triangle", "diamond", "inverted", "plus", "cross"]

INK, MUTED, FAINT, PAPER = "#1c1f24", "#5b626d", "#dfe3e8", "#ffffff"
MEASURED, PUBLISHED_INK = "#2171b5", "#b8480a"
UNKNOWN_INK = PUBLISHED_INK
"""Of words that the vocabulary lacks."""

CAME_INK = "#b3420a"
"""Of the word that came, among those that were expected."""

# ColorBrewer "Blues": one hue, lightness falls evenly, so it survives a black-and-white printer
_BLUES = ("#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b")


@dataclass(frozen=True)
class Style:
    """How a series looks: never by colour alone."""

    colour: str
    mark: MarkShape


# every colour has a contrast of 3 : 1 on white, and every pair stays apart under protanopia, deuteranopia and
# tritanopia (CIELAB distance at least 17); the first four differ most
STYLES = (
    Style(MEASURED, "circle"),
    Style(PUBLISHED_INK, "square"),
    Style("#009e73", "triangle"),
    Style(INK, "diamond"),
    Style("#cc79a7", "inverted"),
    Style("#332288", "plus"),
    Style("#882255", "cross"),
)


def blue(share: float) -> str:
    """Return the colour for `share` in [0, 1] of a one-hue scale from almost white to dark blue."""
    place = min(max(share, 0.0), 1.0) * (len(_BLUES) - 1)
    low = min(int(place), len(_BLUES) - 2)
    return mixed(_BLUES[low], _BLUES[low + 1], place - low)


def ink_on(fill: str) -> str:
    """Return black or white, whichever stands out more from `fill`: never less than 4.5 : 1 (WCAG 2)."""
    # where both have the same contrast: (1.05 · 0.05)^½ - 0.05
    return "#000000" if _luminance(fill) > 0.1791 else PAPER


def lighter(colour: str) -> str:
    """Return a paler shade of `colour`, for what stands beside the thing itself."""
    return mixed(colour, PAPER, 0.4)


def mixed(one: str, other: str, share: float) -> str:
    """Return the colour that is `share` of the way from `one` to `other`."""
    pairs = zip(_channels(one), _channels(other), strict=True)
    return "#{:02x}{:02x}{:02x}".format(*(round(a + (b - a) * share) for a, b in pairs))


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    red, green, blue_part = (_linear(channel / 255) for channel in _channels(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue_part


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)
