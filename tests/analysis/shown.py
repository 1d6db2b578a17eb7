"""What a reader sees on a figure of matplotlib."""

from __future__ import annotations

from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D
from matplotlib.text import Text


def texts(figure: Any, *, bold: bool = False) -> list[str]:
    """Return all words that can be seen, or only those in bold."""
    FigureCanvasAgg(figure).draw()
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [text.get_text() for text in found if not bold or text.get_weight() == "bold"]


def lines(figure: Any) -> list[Line2D]:
    """Return the lines of all plots, keys of legends and grids left out."""
    return [line for axes in figure.axes for line in axes.lines]


def marks(figure: Any) -> int:
    """Count the marks of all plots."""
    return sum(len(line.get_xdata()) for line in lines(figure) if line.get_marker() not in ("None", "", None))
