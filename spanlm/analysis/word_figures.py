"""Figures of words: the attention of one text and of sentences, drawn by matplotlib.

Each is made of maps whose cells are the weights and whose rows and columns are words; all lengths are in points. The
style is that of `spanlm.analysis.figures`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanlm.analysis.figures import (
    FAINT,
    INK,
    LEGEND_SIZE,
    MUTED,
    PAPER,
    TEXT_SIZE,
    clip,
    footnote,
    heading,
    note,
    styled,
    text_width,
    wrap,
    xml_text,
)
from spanlm.analysis.lags import axis_title, signed
from spanlm.analysis.sentences import SentenceMap, common_scale, is_above, percent, scale_top
from spanlm.data.vocabulary import UNK
from spanlm.errors import InputError
from spanlm.scoring.attention import AttentionRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOTE_SIZE = 7.5
UNKNOWN_INK = "#b8480a"
"""Colour of words that the vocabulary lacks."""
CAME_INK = "#b3420a"
"""Colour of the word that came, among those that were expected."""
MOST_VECTORS = 2000
"""Cells of a map that are drawn as shapes; of more the file would be slow to open, and they are an image."""
_GAP = 9


def blue(share: float) -> str:
    """Return the colour for `share` in [0, 1] of a one-hue scale from almost white to dark blue (ColorBrewer)."""
    import matplotlib
    from matplotlib.colors import to_hex

    # lightness falls evenly, so it survives a black-and-white printer
    return to_hex(matplotlib.colormaps["Blues"](float(min(max(share, 0.0), 1.0))))


def ink_on(fill: str) -> str:
    """Return black or white, whichever stands out more from `fill`: never less than 4.5 : 1 (WCAG 2)."""
    channels = [int(fill[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    # where both have the same contrast: (1.05 · 0.05)^½ - 0.05
    return "#000000" if np.dot((0.2126, 0.7152, 0.0722), linear) > 0.1791 else PAPER


def _inks(words: Sequence[str], unknown: frozenset[str], ink: str = INK) -> list[str]:
    """Words that the vocabulary lacks stand out, also where the text itself has <unk>."""
    return [UNKNOWN_INK if word == UNK or word in unknown else ink for word in words]


# --- maps ---


def _sheet(title: str) -> Figure:
    """Make an inch of paper; what stands outside makes it larger when it is saved."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1, 1))
    figure.set_label(title)
    return figure


def _area(figure: Figure, x: float, y: float, size: tuple[float, float], cell: tuple[float, float] = (1, 1)) -> Axes:
    """Return an area of so many columns and rows of `cell` points; its upper left corner is at x, y points down."""
    width, height = size[0] * cell[0], size[1] * cell[1]
    axes = figure.add_axes((x / 72, -(y + height) / 72, width / 72, height / 72))
    axes.set(xlim=(0, size[0]), ylim=(size[1], 0), xticks=[], yticks=[])
    axes.spines["bottom"].set_visible(False)
    return axes


def _fill(axes: Axes, table: NDArray[Any], top: float, edge: str = PAPER) -> None:
    """Fill the cells of a table that are not NaN, darker for more weight; `top` is darkest."""
    look: dict[str, Any] = {"edgecolors": edge, "linewidths": 0.75, "rasterized": table.size > MOST_VECTORS}
    axes.pcolor(np.ma.masked_invalid(table), cmap="Blues", vmin=0, vmax=top, **look)


def _write(
    axes: Axes, x: float, row: float, text: str, size: float, colour: str, ha: str = "left", **look: Any
) -> None:
    axes.text(x, row + 0.5, xml_text(text), size=size, color=colour, ha=ha, va="center_baseline", **look)


def _column(
    axes: Axes, aside: float, head: str, words: Iterable[str], inks: Iterable[str], size: float = TEXT_SIZE, **look: Any
) -> None:
    """Write a word beside each row, so many points to the right of the map, or to the left of it if that is below 0."""
    look = {"ha": "right" if aside < 0 else "left", "va": "center_baseline", **look}
    where = {"xycoords": ("axes fraction", "data"), **look}
    note(axes, head, (aside > 0, 0), (aside, 7), size=NOTE_SIZE, **where)
    for row, (word, ink) in enumerate(zip(words, inks, strict=True)):
        note(axes, word, (aside > 0, row + 0.5), (aside, 0), size=size, color=ink, **where)


def _key(figure: Figure, x: float, y: float, top: float, above: bool, unit: str = "%") -> None:
    """Draw the scale of colours from 0 to `top`, % or × equal shares; where weights are `above` it, its end says so."""
    steps = 24
    axes = _area(figure, x, y, (steps, 1), (6, 7.5))
    _fill(axes, (np.arange(steps)[None] + 0.5) / steps, 1, "face")
    most = top if unit == "×" else 100 * top
    labels = [f"0 {unit}", f"{most / 2:g} {unit}", f"{'≥ ' * above}{most:g} {unit}"]
    axes.set_xticks([0, steps / 2, steps], labels, size=NOTE_SIZE)
    note(axes, "attention", (0, 0.5), (-_GAP, 0), ha="right", va="center", size=NOTE_SIZE)


# --- one text (Daniluk et al. 2017, Fig. 3a) ---

ROW_LIMIT = 400
_ROW, _CELL = 15, 36
_MAP_WIDTH = 380  # of all cells where long words are named in them; never narrower than `_CELL` each
_LABEL_LIMIT = 140
_NAMED = 0.12  # cells with at least this weight carry the word that was looked at
_NAME_SIZE = 6.5


@styled()
def heatmap(record: AttentionRecord) -> Figure:
    """Draw one row for each word of `record` and one column for each lag, darker where more was looked.

    The cell at -i stands for the word i rows above it. To the right: the word that came next, its surprisal in bits.
    """
    if len(record) > ROW_LIMIT:
        raise InputError(f"a figure of {len(record)} words: must be at most {ROW_LIMIT}; write .html, .csv or .npz")
    words, targets = ([clip(word, TEXT_SIZE, _LABEL_LIMIT) for word in each] for each in (record.words, record.targets))
    cells = np.argwhere(record.occupied & (record.weights >= _NAMED)).tolist()
    names = [record.words[row - record.lags[column]] for row, column in cells]
    # the longest name is whole, if so many columns have the room
    longest = max((text_width(name, _NAME_SIZE) for name in names), default=0.0) + 8
    cell = max(_CELL, min(longest, _MAP_WIDTH / record.window))
    settled = record.settled
    top = scale_top(float((settled if settled.size else record.weights).max()))
    figure = _sheet(record.title)
    axes = _area(figure, 0, 0, (record.window, len(record)), (cell, _ROW))
    _fill(axes, np.where(record.occupied, record.weights, np.nan), top)
    for (row, column), name in zip(cells, names, strict=True):
        ink = ink_on(blue(float(record.weights[row, column]) / top))
        _write(axes, column + 0.5, row, clip(name, _NAME_SIZE, cell - 6), _NAME_SIZE, ink, "center")
    axes.xaxis.tick_top()
    axes.set_xticks(np.arange(record.window) + 0.5, [signed(lag) for lag in record.lags], size=NOTE_SIZE)
    note(axes, axis_title(record.nearest_lag), (0, 1), (0, 20), size=NOTE_SIZE)
    _column(axes, -_GAP, "just read", words, _inks(record.words, record.unknown))
    _column(axes, _GAP, "came next", targets, _inks(record.targets, record.unknown, MUTED))
    bits = [f"{bits:.1f}".replace("nan", "–") for bits in record.bits.tolist()]
    right = 39 + max(text_width(word, TEXT_SIZE) for word in (*targets, "came next"))
    _column(axes, right, "bits", bits, [MUTED] * len(bits), ha="right")
    _key(figure, 0, _ROW * len(record) + 13, top, is_above(float(record.weights.max()), top))
    left = _GAP + max(text_width(word, TEXT_SIZE) for word in (*words, "just read"))
    width = max(left + record.window * cell + right, 360)
    heading(axes, record.title, width, above=33, left=left, about=record.about)
    if record.unknown or UNK in (*record.words, *record.targets):
        footnote(axes, "Coloured words: the vocabulary lacks them; they were read as <unk>.", width, 50, left)
    return figure


# --- sentences as triangles (Salton et al. 2017, Figures 2 and 3) ---

TITLE = "Attention to the words of the sentence"
_GUTTER = 30
_WIDEST = 1460  # panels of a sentence stand side by side up to here
_WORD_LIMIT = 112
_LEAST_SHOWN = 0.0005


class _Cells(NamedTuple):
    """How large cells and their words are; the digits after the point of their percents, None: none fit."""

    width: float
    height: float
    word: float
    number: float
    digits: int | None


_SIZES = ((24, _Cells(21.5, 15, 8.5, 6.2, 1)), (40, _Cells(13.5, 12, 7.8, 5.6, 0)))
_SMALL = _Cells(9, 9, 7, 0, None)


@styled()
def triangle_figure(sentences: Sequence[Sequence[SentenceMap]]) -> Figure:
    """Draw a panel for each model of each sentence; all share a scale of colours.

    Where a row ends, the word just read heads the column that begins below it.
    """
    every = [one for maps in sentences for one in maps]
    top, above = common_scale(every)
    figure, y, widest, left = _sheet(TITLE), 0.0, 380.0, 0.0
    for maps in sentences:
        count = max(len(one.record) for one in maps)
        cells = next((cells for most, cells in _SIZES if count <= most), _SMALL)
        labels = [label for one in maps for words in _labels(one, cells) for label in words]
        longest = max(text_width(label, cells.word) for label in labels)
        step = longest + max(count * cells.width + longest, 177.0) + _GUTTER
        across = max(int((_WIDEST + _GUTTER) // step), 1)
        height = (count + 1) * cells.height + 80 + (cells.digits != 1) * longest
        for number, one in enumerate(maps):
            y += height * (number > 0 and number % across == 0)
            _triangle(figure, one, cells, (number % across * step, y), top)
        left = left or longest + 5
        widest = max(widest, min(len(maps), across) * step - _GUTTER)
        y += height
    heading(_area(figure, -left, -75, (1, 1)), TITLE, widest, above=0)
    _key(figure, max(0, 52 - left), y - 80, top, above, "×")
    footnote(_area(figure, -left, y - 50, (1, 1)), _triangle_caption(every), widest, 0)
    return figure


def _labels(one: SentenceMap, cells: _Cells) -> tuple[list[str], list[str]]:
    targets, heads = (
        [clip(word, cells.word, _WORD_LIMIT) + one.mark(word) for word in words]
        for words in (one.record.targets, one.record.words)
    )
    return targets, heads


def _triangle(figure: Figure, one: SentenceMap, cells: _Cells, place: tuple[float, float], top: float) -> None:
    lag, count, (targets, heads) = one.record.nearest_lag, len(one.record), _labels(one, cells)
    # the head of a column stands above it, and nothing above that of the first
    first = cells.height * (lag == 0)
    axes = _area(figure, place[0], place[1] + first, (count, count), cells[:2])
    # lines between cells: the palest are seen to be there
    _fill(axes, one.relative, top, FAINT)
    _column(axes, -5, "", targets, _inks(one.record.targets, one.unknown), cells.word)
    for column, (head, ink) in enumerate(zip(heads, _inks(one.record.words, one.unknown), strict=True)):
        note(
            axes,
            head,
            (column, column + lag - 0.5),
            (2, 0),
            xycoords="data",
            va="center_baseline",
            size=cells.word,
            color=ink,
        )
    if cells.digits is not None:
        for row, column in np.argwhere(~np.isnan(one.matrix)).tolist():
            ink = ink_on(blue(float(one.relative[row, column]) / top))
            share = percent(float(one.matrix[row, column]), cells.digits)
            _write(axes, column + 0.5, row, share, cells.number, ink, "center")
    if cells.digits != 1:  # the heads of the last row's columns are far away
        again = np.flatnonzero(~np.isnan(one.matrix[-1])).tolist()
        axes.set_xticks([n + 0.5 for n in again], [heads[n] for n in again], rotation=90, size=cells.word)
    elsewhere = float(one.on_no_word[one.slots > 0].mean()) if (one.slots > 0).any() else 0.0
    flatness = [] if one.flatness is None else [f"flatness {one.flatness.overall.flatness:.3f}"]
    shares = ", ".join([*flatness, *[f"{100 * elsewhere:.1f} % on no word"] * (elsewhere >= _LEAST_SHOWN)])
    about = "\n".join(wrap(text, NOTE_SIZE, 200) for text in (one.memory, shares) if text)
    note(axes, "next word", (0, 1), (-5, first + 15), ha="right", size=NOTE_SIZE)
    note(axes, "word read: heads a column", (0, 1), (2, first + 15), size=NOTE_SIZE)
    note(axes, about, (0, 1), (0, first + 29), size=NOTE_SIZE)
    named = first + 31 + 10.5 * len(about.split("\n"))
    note(axes, clip(one.name, LEGEND_SIZE, 200), (0, 1), (0, named), size=LEGEND_SIZE, weight="bold", color=INK)


def _triangle_caption(maps: Sequence[SentenceMap]) -> str:
    itself = " and that word itself" * any(one.record.nearest_lag == 0 for one in maps)
    parts = [
        f"A row: the next word (left), and the weights of the words before the one just read{itself} while it is "
        "predicted, in percent; its colour is that weight in equal shares of the row (1 ×: what each word has where "
        "all have the same). A column: the word at its head, on the diagonal.",
        "Flatness: entropy of a row over that of equal weights, mean over rows with a choice; 1 is flat.",
    ]
    if any(one.unknown for one in maps):
        parts.append("<unk>: the vocabulary lacks the word beside it, which was read as <unk>.")
    return " ".join(parts)
