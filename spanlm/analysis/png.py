"""Drawings as PNG, through matplotlib's Agg renderer (no display, no global state)."""

from __future__ import annotations

import io
import warnings
from typing import Any

from spanlm.analysis.drawing import HOLLOW_EDGE, Drawing, Line, Mark, Rect, Shape, Text
from spanlm.analysis.palette import PAPER
from spanlm.errors import InputError

PIXELS_PER_INCH = 96
_SCALE = 2  # two device pixels for one of the drawing: sharp in print and on dense screens
_POINTS = 72 / PIXELS_PER_INCH
_ALIGN = {"start": "left", "middle": "center", "end": "right"}


def render_png(drawing: Drawing) -> bytes:
    """Return `drawing` as a PNG of twice its width and height in pixels.

    Raises:
        InputError: If matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(
            'a .png figure needs matplotlib: pip install "spanlm[plot]", or write .svg, which needs nothing'
        ) from error
    size = (drawing.width / PIXELS_PER_INCH, drawing.height / PIXELS_PER_INCH)
    figure = Figure(figsize=size, dpi=PIXELS_PER_INCH * _SCALE, facecolor=PAPER)
    FigureCanvasAgg(figure)
    axes: Any = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    for order, shape in enumerate(drawing.shapes):
        _paint(axes, shape, order)
    image = io.BytesIO()
    with warnings.catch_warnings():
        # a script the font lacks is drawn as boxes; the SVG and the page show it
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(
            image,
            format="png",
            metadata={"Title": drawing.title.encode("latin-1", "replace").decode("latin-1")},
        )
    return image.getvalue()


def _paint(axes: Any, shape: Shape, order: int) -> None:
    match shape:
        case Rect():
            _rect(axes, shape, order)
        case Text():
            _text(axes, shape, order)
        case Line():
            _line(axes, shape, order)
        case Mark():
            _mark(axes, shape, order)


def _rect(axes: Any, rect: Rect, order: int) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((rect.x, rect.y), rect.width, rect.height, facecolor=rect.fill, linewidth=0, zorder=order))


def _text(axes: Any, text: Text, order: int) -> None:
    axes.text(
        text.x,
        text.y,
        text.text.encode("utf-8", "replace").decode("utf-8"),
        fontsize=text.size * _POINTS,
        color=text.fill,
        ha=_ALIGN[text.anchor],
        va="baseline",
        rotation=90 if text.upwards else 0,
        rotation_mode="anchor",
        fontweight="bold" if text.bold else "normal",
        zorder=order,
        parse_math=False,  # a word may be $x$
    )


def _line(axes: Any, line: Line, order: int) -> None:
    x, y = zip(*line.points, strict=True)
    # matplotlib counts dashes in widths of the line, a drawing in pixels
    dashes = (0, tuple(length / line.width for length in line.dash)) if line.dash else "solid"
    axes.plot(
        x,
        y,
        color=line.stroke,
        linewidth=line.width * _POINTS,
        linestyle=dashes,
        dash_capstyle="butt",
        solid_capstyle="butt",
        zorder=order,
    )


def _mark(axes: Any, mark: Mark, order: int) -> None:
    from matplotlib.patches import Circle, Polygon

    shape = Polygon(mark.outline) if mark.outline else Circle((mark.x, mark.y), mark.radius)
    shape.set(
        facecolor=PAPER if mark.hollow else mark.colour,
        edgecolor=mark.colour if mark.hollow else PAPER,
        linewidth=(HOLLOW_EDGE if mark.hollow else 1) * _POINTS,
        zorder=order,
    )
    axes.add_patch(shape)
