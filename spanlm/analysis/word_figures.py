"""Figures of words: the attention of one text and of sentences, drawn by matplotlib.

Each is made of maps whose cells are the weights and whose rows and columns are words; all lengths are in points. The
style is that of `spanlm.analysis.figures`.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    TITLE_SIZE,
    clip,
    finished,
    sheet,
    styled,
    wrap,
)
from spanlm.analysis.lags import axis_title, signed
from spanlm.analysis.sentences import SentenceMap, common_scale, is_above, percent, scale_top
from spanlm.errors import InputError
from spanlm.scoring.attention import AttentionRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOTE_SIZE = 7.5
_NOTE: dict[str, Any] = {
    "xycoords": "axes fraction",
    "textcoords": "offset points",
    "color": MUTED,
    "size": NOTE_SIZE,
}
UNKNOWN_INK = "#b8480a"
"""Colour of words that the vocabulary lacks."""
MOST_VECTORS = 2000
"""Cells of a map that are drawn as shapes; of more the file would be slow to open, and they are an image."""


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


# --- maps ---


def _fill(axes: Axes, table: NDArray[Any], top: float, edge: str = PAPER) -> Any:
    """Fill the cells of a table that are not NaN, darker for more weight; `top` is darkest."""
    look: dict[str, Any] = {"edgecolors": edge, "linewidths": 0.75, "rasterized": table.size > MOST_VECTORS}
    axes.set(xlim=(0, table.shape[1]), ylim=(table.shape[0], 0), xticks=[], yticks=[])
    axes.spines["bottom"].set_visible(False)
    return axes.pcolor(np.ma.masked_invalid(table), cmap="Blues", vmin=0, vmax=top, **look)


def _write(axes: Axes, row: int, column: int, text: str, size: float, share: float) -> None:
    """Write into a cell that is filled with `share` of the darkest colour."""
    look: dict[str, Any] = {"size": size, "color": ink_on(blue(share)), "ha": "center", "va": "center_baseline"}
    axes.text(column + 0.5, row + 0.5, text, **look)


def _inks(record: AttentionRecord, words: Sequence[str], ink: str = INK) -> list[str]:
    """Words that the vocabulary lacks stand out."""
    return [UNKNOWN_INK if record.is_unknown(word) else ink for word in words]


def _name_rows(axes: Axes, names: Sequence[str], inks: Sequence[str], size: float) -> None:
    axes.set_yticks(np.arange(len(names)) + 0.5, names, size=size, va="center_baseline")
    for label, ink in zip(axes.get_yticklabels(), inks, strict=True):
        label.set_color(ink)


def _scale(key: Any, top: float, above: bool, unit: str) -> None:
    """Name the scale of colours of a colour bar from 0 to `top`; where weights are above it, its end says so."""
    most = top if unit == "×" else 100 * top
    labels = [f"0 {unit}", f"{most / 2:g} {unit}", f"{'≥ ' * above}{most:g} {unit}"]
    key.set_ticks([0, top / 2, top], labels=labels, size=NOTE_SIZE)
    key.set_label("attention", size=NOTE_SIZE)
    key.outline.set_visible(False)


# --- one text (Daniluk et al. 2017, Fig. 3a) ---

ROW_LIMIT = 400
_ROW, _CELL = 15, 36
_MAP_WIDTH = 380  # of all cells where long words are named in them; never narrower than `_CELL` each
_MOST_LETTERS = 26
_NAMED = 0.12  # cells with at least this weight carry the word that was looked at
_NAME_SIZE = 6.5
_LETTER = 0.7  # how wide a letter is, in its size: few are wider


@styled()
def heatmap(record: AttentionRecord) -> Figure:
    """Draw one row for each word of `record` and one column for each lag, darker where more was looked.

    The cell at -i stands for the word i rows above it. To the right: the word that came next, its surprisal in bits.
    """
    if len(record) > ROW_LIMIT:
        raise InputError(f"a figure of {len(record)} words: must be at most {ROW_LIMIT}; write .html, .csv or .npz")
    cells = np.argwhere(record.occupied & (record.weights >= _NAMED)).tolist()
    names = [record.words[row - record.lags[column]] for row, column in cells]
    # the longest name is whole, if so many columns have the room
    longest = _LETTER * _NAME_SIZE * max(map(len, names), default=0) + 8
    cell = max(_CELL, min(longest, _MAP_WIDTH / record.window))
    settled = record.settled
    top = scale_top(float((settled if settled.size else record.weights).max()))
    width, height = cell * record.window, _ROW * len(record)
    figure, (axes,) = sheet(width + 230, height + 75)
    filled = _fill(axes, np.where(record.occupied, record.weights, np.nan), top)
    for (row, column), name in zip(cells, names, strict=True):
        text = clip(name, int((cell - 6) / (_LETTER * _NAME_SIZE)))
        _write(axes, row, column, text, _NAME_SIZE, float(record.weights[row, column]) / top)
    axes.xaxis.set_ticks_position("top")
    axes.xaxis.set_label_position("top")
    axes.set_xticks(np.arange(record.window) + 0.5, [signed(lag) for lag in record.lags], size=NOTE_SIZE)
    axes.set_xlabel(axis_title(record.nearest_lag), size=NOTE_SIZE)
    read = [clip(word, _MOST_LETTERS) for word in record.words]
    _name_rows(axes, read, _inks(record, record.words), TEXT_SIZE)
    beside = axes.twinx()
    beside.set(ylim=axes.get_ylim())
    beside.spines["bottom"].set_visible(False)
    for side, text, aside, ha in ((0, "just read", -6, "right"), (1, "bits, came next", 6, "left")):
        axes.annotate(text, (side, 1), (aside, 5), ha=ha, **_NOTE)
    bits = [f"{bits:.1f}".replace("nan", "–") for bits in record.bits.tolist()]
    came = [
        f"{number:\u2007>4}  {clip(word, _MOST_LETTERS)}" for number, word in zip(bits, record.targets, strict=True)
    ]
    _name_rows(beside, came, _inks(record, record.targets, MUTED), TEXT_SIZE)
    how: dict[str, Any] = {"location": "bottom", "anchor": (0, 1), "aspect": 16, "shrink": min(1, 120 / width)}
    key = figure.colorbar(filled, ax=axes, fraction=7.5 / height, pad=12 / height, **how)
    _scale(key, top, is_above(float(record.weights.max()), top), "%")
    unknown = any(map(record.is_unknown, (*record.words, *record.targets)))
    caption = [record.about, "Coloured words: the vocabulary lacks them; they were read as <unk>." * unknown]
    return finished(figure, record.title, [], ". ".join(filter(None, caption)))


# --- sentences as triangles (Salton et al. 2017, Figures 2 and 3) ---

TITLE = "Attention to the words of the sentence"
_GUTTER = 30
_WIDEST = 1460  # panels of a sentence stand side by side up to here
_WORD_LETTERS = 20
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
    from matplotlib.figure import Figure

    every = [one for maps in sentences for one in maps]
    top, above = common_scale(every)
    # an inch of paper; what stands outside makes it larger when it is saved
    figure, y, widest = Figure(figsize=(1, 1)), 0.0, 380.0
    figure.set_label(TITLE)
    for maps in sentences:
        count = max(len(one.record) for one in maps)
        cells = next((cells for most, cells in _SIZES if count <= most), _SMALL)
        longest = _LETTER * cells.word * max(len(label) for one in maps for label in _labels(one, one.record.words))
        step = longest + max(count * cells.width + longest, 177.0) + _GUTTER
        across = max(int((_WIDEST + _GUTTER) // step), 1)
        height = (count + 1) * cells.height + 80 + (cells.digits != 1) * longest
        for number, one in enumerate(maps):
            y += height * (number > 0 and number % across == 0)
            filled = _triangle(figure, one, cells, (number % across * step + longest, y), top)
        widest = max(widest, min(len(maps), across) * step - _GUTTER)
        y += height
    figure.text(0, 75 / 72, TITLE, size=TITLE_SIZE, weight="bold", color=INK)
    key = figure.colorbar(filled, cax=figure.add_axes((0, -(y - 72) / 72, 2, 0.1)), orientation="horizontal")
    _scale(key, top, above, "×")
    caption = wrap(_triangle_caption(every), TEXT_SIZE, widest)
    figure.text(0, -(y - 30) / 72, caption, size=TEXT_SIZE, color=MUTED, va="top", linespacing=1.5)
    return figure


def _labels(one: SentenceMap, words: Sequence[str]) -> list[str]:
    return [clip(word, _WORD_LETTERS) + one.mark(word) for word in words]


def _triangle(figure: Figure, one: SentenceMap, cells: _Cells, place: tuple[float, float], top: float) -> Any:
    """Draw a map, its upper left corner at a place, of which y points down; return what has its colours."""
    lag, count, words = one.record.nearest_lag, len(one.record), one.record.words
    # the head of a column stands above it, and nothing above that of the first
    first = cells.height * (lag == 0)
    size = count * cells.width, count * cells.height
    axes = figure.add_axes((place[0] / 72, -(place[1] + first + size[1]) / 72, size[0] / 72, size[1] / 72))
    # lines between cells: the palest are seen to be there
    filled = _fill(axes, one.relative, top, FAINT)
    targets, heads = _labels(one, one.record.targets), _labels(one, words)
    _name_rows(axes, targets, _inks(one.record, one.record.targets), cells.word)
    for column, (head, ink) in enumerate(zip(heads, _inks(one.record, words), strict=True)):
        beside: dict[str, Any] = {"va": "center_baseline", "size": cells.word, "color": ink}
        axes.text(column + 2 / cells.width, column + lag - 0.5, head, **beside)
    if cells.digits is not None:
        for row, column in np.argwhere(~np.isnan(one.matrix)).tolist():
            share = percent(float(one.matrix[row, column]), cells.digits)
            _write(axes, row, column, share, cells.number, float(one.relative[row, column]) / top)
    if cells.digits != 1:  # the heads of the last row's columns are far away
        again = np.flatnonzero(~np.isnan(one.matrix[-1])).tolist()
        axes.set_xticks([n + 0.5 for n in again], [heads[n] for n in again], rotation=90, size=cells.word)
    elsewhere = float(one.on_no_word[one.slots > 0].mean()) if (one.slots > 0).any() else 0.0
    flatness = [] if one.flatness is None else [f"flatness {one.flatness.overall.flatness:.3f}"]
    shares = ", ".join([*flatness, *[f"{100 * elsewhere:.1f} % on no word"] * (elsewhere >= _LEAST_SHOWN)])
    about = "\n".join(wrap(text, NOTE_SIZE, 200) for text in (one.memory, shares) if text)
    axes.annotate("next word", (0, 1), (-5, first + 15), ha="right", **_NOTE)
    axes.annotate("word read: heads a column", (0, 1), (2, first + 15), **_NOTE)
    axes.annotate(about, (0, 1), (0, first + 29), **_NOTE)
    named = first + 31 + 10.5 * len(about.split("\n"))
    bold = {"size": LEGEND_SIZE, "weight": "bold", "color": INK}
    axes.annotate(clip(one.name, 34), (0, 1), (0, named), **{**_NOTE, **bold})
    return filled


def _triangle_caption(maps: Sequence[SentenceMap]) -> str:
    itself = " and that word itself" * any(one.record.nearest_lag == 0 for one in maps)
    parts = [
        f"A row: the next word (left), and the weights of the words before the one just read{itself} while it is "
        "predicted, in percent; its colour is that weight in equal shares of the row (1 ×: what each word has where "
        "all have the same). A column: the word at its head, on the diagonal.",
        "Flatness: entropy of a row over that of equal weights, mean over rows with a choice; 1 is flat.",
    ]
    if any(one.record.unknown for one in maps):
        parts.append("<unk>: the vocabulary lacks the word beside it, which was read as <unk>.")
    return " ".join(parts)
