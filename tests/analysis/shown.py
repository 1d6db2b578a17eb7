"""What a reader sees on a figure of matplotlib."""

import warnings
from itertools import combinations
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D
from matplotlib.text import Text


def texts(figure: Any, *, bold: bool = False) -> list[str]:
    """Return all words that can be seen, or only those in bold."""
    return [text.get_text() for text in _texts(figure) if not bold or text.get_weight() == "bold"]


def lines(figure: Any) -> list[Line2D]:
    """Return the lines of all plots, keys of legends and grids left out."""
    return [line for axes in figure.axes for line in axes.lines]


def assert_texts_apart(figure: Any) -> None:
    """No words stand on others."""
    boxes = [(text.get_text(), text.get_window_extent()) for text in _texts(figure)]
    for (one, a), (other, b) in combinations(boxes, 2):
        inside = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        # letters stand in boxes that are a little larger
        assert min(inside) <= 0.2 * min(a.height, b.height), (one, other)


def _texts(figure: Any) -> list[Text]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        FigureCanvasAgg(figure).draw()
    axes = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    ticks = [(tick, sorted(axis.get_view_interval())) for axis in axes for tick in axis.get_major_ticks()]
    beyond = {tick.label1 for tick, (low, high) in ticks if not low <= tick.get_loc() <= high}
    shown = (text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip())
    return [text for text in shown if text not in beyond]
