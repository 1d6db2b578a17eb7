"""Figures of words: the attention of one text, of sentences, and of a span buffer, drawn by matplotlib.

They are sheets on which one unit is a point and y goes downwards; the style is that of `spanlm.analysis.figures`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanlm.analysis.figures import (
    FAINT,
    HEAD_SIZE,
    INK,
    LEGEND_SIZE,
    MUTED,
    PAPER,
    TEXT_SIZE,
    TITLE_SIZE,
    clip,
    styled,
    text_width,
    wrap,
    xml_text,
)
from spanlm.analysis.lags import axis_title, signed
from spanlm.analysis.sentences import SentenceMap, common_scale, is_above, percent, scale_top
from spanlm.data.vocabulary import UNK
from spanlm.errors import InputError
from spanlm.evaluation.attention import PARTS, AttentionRecord, Expected, Look, SpanRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTE_SIZE = 7.5
UNKNOWN_INK = "#b8480a"
"""Colour of words that the vocabulary lacks."""
CAME_INK = "#b3420a"
"""Colour of the word that came, among those that were expected."""
MOST_VECTORS = 2000
"""Cells of a map that are drawn as shapes; of more the file would be slow to open, and they are an image."""
_GAP = 9

Box = tuple[float, float, float, float]
"""Left, top, width and height."""


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


def _ink_of(word: str, unknown: frozenset[str], ink: str) -> str:
    """Return the colour of a word: one that the vocabulary lacks stands out, also where the text itself has <unk>."""
    return UNKNOWN_INK if word == UNK or word in unknown else ink


class _Sheet:
    """A figure that grows downwards; `y` is where what comes next can begin."""

    def __init__(self, title: str, width: float, about: str = "") -> None:
        from matplotlib.figure import Figure

        self.figure, self.width, self.y = Figure(), width, 0.0
        self.axes: Any = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.figure.set_label(title)
        for line in wrap(title, 1.1 * TITLE_SIZE, width).split("\n"):
            self.y += 15
            self.text(0, self.y, line, TITLE_SIZE, weight="bold")
        for line in wrap(about, TEXT_SIZE, width).split("\n") if about else []:
            self.y += 13
            self.text(0, self.y, line, colour=MUTED)

    def text(
        self, x: float, y: float, text: str, size: float = TEXT_SIZE, colour: str = INK, ha: str = "left", **look: Any
    ) -> None:
        """Write a line whose baseline is at y."""
        self.axes.text(x, y, xml_text(text), size=size, color=colour, ha=ha, va="baseline", **look)

    def bar(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        from matplotlib.patches import Rectangle

        self.axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, linewidth=0))

    def cells(self, boxes: Sequence[Box], weights: Sequence[float], top: float, edge: str = PAPER) -> None:
        """Fill rectangles, darker for more weight; `top` is darkest."""
        from matplotlib.collections import PolyCollection

        corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in boxes]
        filled = PolyCollection(corners, array=np.asarray(weights), cmap="Blues", edgecolors=edge, linewidths=0.75)
        filled.set(clim=(0, top), rasterized=len(boxes) > MOST_VECTORS)
        self.axes.add_collection(filled, autolim=False)

    def grid(
        self, table: NDArray[Any], corner: tuple[float, float], size: tuple[float, float], top: float, edge: str = PAPER
    ) -> list[tuple[Box, float]]:
        """Fill the cells of a table that are not NaN, from its upper left corner on; return each with its weight."""
        found = np.argwhere(~np.isnan(table)).tolist()
        boxes = [(corner[0] + column * size[0], corner[1] + row * size[1], *size) for row, column in found]
        weights = [float(table[row, column]) for row, column in found]
        self.cells(boxes, weights, top, edge)
        return list(zip(boxes, weights, strict=True))

    def key(self, x: float, top: float, above: bool, unit: str = "%") -> None:
        """Draw the scale of colours from 0 to `top`; where some weights are `above` it, its end says so.

        The unit is %, or × for equal shares.
        """
        steps, step = 24, 6
        shares = [(number + 0.5) / steps for number in range(steps)]
        boxes = [(x + number * step, self.y, step, 7.5) for number in range(steps)]
        self.cells(boxes, shares, 1, "face")
        for share in (0.0, 0.5, 1.0):
            shown = top * share if unit == "×" else 100 * top * share
            label = f"{'≥ ' if above and share == 1 else ''}{shown:g} {unit}"
            self.text(x + share * steps * step, self.y + 18, label, NOTE_SIZE, MUTED, "center")
        self.text(x - _GAP, self.y + 7, "attention", NOTE_SIZE, MUTED, "right")
        self.y += 24

    def finish(self, caption: str = "") -> Figure:
        """Write what must be known below all, and cut the paper."""
        for line in wrap(caption, TEXT_SIZE, self.width).split("\n") if caption else []:
            self.y += 13
            self.text(0, self.y, line, colour=MUTED)
        self.figure.set_size_inches(self.width / 72, self.y / 72)
        self.axes.set(xlim=(0, self.width), ylim=(self.y, 0))
        return self.figure


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

    Raises:
        InputError: the text has more than 400 words: no page holds them.
    """
    if len(record) > ROW_LIMIT:
        raise InputError(f"a figure of {len(record)} words: must be at most {ROW_LIMIT}; write .html, .csv or .npz")
    left = _widest([*record.words, "just read"]) + _GAP
    cell = _cell_width(record)
    next_x = left + record.window * cell + _GAP
    bits_x = next_x + _widest([*record.targets, "came next"]) + 39
    sheet = _Sheet(record.title, max(bits_x, 360), record.about)
    sheet.text(left, sheet.y + 20, axis_title(record.nearest_lag), NOTE_SIZE, MUTED)
    sheet.y += 33
    sheet.text(left - _GAP, sheet.y, "just read", NOTE_SIZE, MUTED, "right")
    sheet.text(next_x, sheet.y, "came next", NOTE_SIZE, MUTED)
    sheet.text(bits_x, sheet.y, "bits", NOTE_SIZE, MUTED, "right")
    for column, lag in enumerate(record.lags):
        sheet.text(left + (column + 0.5) * cell, sheet.y, signed(lag), NOTE_SIZE, MUTED, "center")
    sheet.y += 6
    settled = record.settled
    top = scale_top(float((settled if settled.size else record.weights).max()))
    _lag_cells(sheet, record, (left, cell), top)
    for word, target, bits in zip(record.words, record.targets, record.bits.tolist(), strict=True):
        line = sheet.y + 0.72 * _ROW
        inks = [_ink_of(each, record.unknown, ink) for each, ink in ((word, INK), (target, MUTED))]
        sheet.text(left - _GAP, line, clip(word, TEXT_SIZE, _LABEL_LIMIT), colour=inks[0], ha="right")
        sheet.text(next_x, line, clip(target, TEXT_SIZE, _LABEL_LIMIT), colour=inks[1])
        sheet.text(bits_x, line, f"{bits:.1f}".replace("nan", "–"), colour=MUTED, ha="right")
        sheet.y += _ROW
    sheet.y += 13
    sheet.key(left, top, is_above(float(record.weights.max()), top))
    lacking = bool(record.unknown) or UNK in (*record.words, *record.targets)
    sheet.y += 6 * lacking
    return sheet.finish("Coloured words: the vocabulary lacks them; they were read as <unk>." * lacking)


def _widest(labels: Sequence[str]) -> float:
    return min(max(text_width(label, TEXT_SIZE) for label in labels), _LABEL_LIMIT)


def _named(record: AttentionRecord) -> Iterator[str]:
    """Yield the words that stand in cells: those with much weight."""
    for row, column in np.argwhere(record.occupied & (record.weights >= _NAMED)).tolist():
        yield record.words[row - record.lags[column]]


def _cell_width(record: AttentionRecord) -> float:
    """Return a width in which the longest word that is named is whole, if so many columns have the room."""
    longest = max((text_width(word, _NAME_SIZE) for word in _named(record)), default=0.0) + 8
    return max(_CELL, min(longest, _MAP_WIDTH / record.window))


def _lag_cells(sheet: _Sheet, record: AttentionRecord, place: tuple[float, float], top: float) -> None:
    """Fill the slots that held a word, and name the word where the weight is large; `place`: left, width of a cell."""
    left, cell = place
    seen = sheet.grid(np.where(record.occupied, record.weights, np.nan), (left, sheet.y), (cell, _ROW), top)
    for (row, column), ((x, y, _, _), weight) in zip(np.argwhere(record.occupied).tolist(), seen, strict=True):
        if weight >= _NAMED:
            name = clip(record.words[row - record.lags[column]], _NAME_SIZE, cell - 6)
            sheet.text(x + cell / 2, y + 0.65 * _ROW, name, _NAME_SIZE, ink_on(blue(weight / top)), "center")


# --- sentences as triangles (Salton et al. 2017, Figures 2 and 3) ---

TITLE = "Attention to the words of the sentence"
_GUTTER = 30
_WIDEST = 1460  # panels of a sentence stand side by side up to here
_WORD_LIMIT, _AXIS = 112, 13
_LEAST_SHOWN = 0.0005


@dataclass(frozen=True)
class _Cells:
    """How large cells and their words are; the digits after the point of their percents, None: none fit."""

    width: float
    height: float
    word: float
    number: float
    digits: int | None


_SIZES = ((24, _Cells(21.5, 15, 8.5, 6.2, 1)), (40, _Cells(13.5, 12, 7.8, 5.6, 0)))
_SMALL = _Cells(9, 9, 7, 0, None)


class _Triangle:
    """The panel of one map: where a row ends, the word just read heads the column that begins below it."""

    def __init__(self, one: SentenceMap) -> None:
        self.map, count = one, len(one.record)
        self.cells = next((cells for most, cells in _SIZES if count <= most), _SMALL)
        self.targets, self.heads = (
            [clip(word, self.cells.word, _WORD_LIMIT) + one.mark(word) for word in words]
            for words in (one.record.targets, one.record.words)
        )
        self.left = 5 + max(text_width(label, self.cells.word) for label in self.targets)
        ends = (n * self.cells.width + text_width(label, self.cells.word) + 3 for n, label in enumerate(self.heads))
        self.width = self.left + max(*ends, 172.0)
        notes = [] if one.flatness is None else [f"flatness {one.flatness.overall.flatness:.3f}"]
        elsewhere = float(one.on_no_word[one.slots > 0].mean()) if (one.slots > 0).any() else 0.0
        if elsewhere >= _LEAST_SHOWN:
            notes.append(f"{100 * elsewhere:.1f} % on no word")
        room = self.width - self.left
        below = [wrap(text, NOTE_SIZE, room).split("\n") for text in (one.memory, ", ".join(notes)) if text]
        self.heading = [clip(one.name, LEGEND_SIZE, room), *(line for lines in below for line in lines)]

    def draw(self, sheet: _Sheet, x: float, y: float, top: float) -> float:
        """Draw it from y on, `x` being where its cells begin; return where it ends."""
        one, cells, lag = self.map, self.cells, self.map.record.nearest_lag
        sheet.text(x - 5, y + 6, "next word", NOTE_SIZE, MUTED, "right")
        sheet.text(x + 2, y + 6, "word read: heads a column", NOTE_SIZE, MUTED)
        # the head of a column stands above it, and nothing above that of the first
        first = min(0, lag - 1)
        start = y + _AXIS - first * cells.height
        self._fill(sheet, x, start, top)
        for row in range(first, len(self.targets)):
            # centred: capitals are about 0.7 of the size high
            line = start + (row + 0.5) * cells.height + 0.35 * cells.word
            if row >= 0:
                sheet.text(x - 5, line, self.targets[row], cells.word, self._ink(one.record.targets[row]), "right")
            column = row + 1 - lag
            if 0 <= column < len(self.heads):
                ink = self._ink(one.record.words[column])
                sheet.text(x + column * cells.width + 2, line, self.heads[column], cells.word, ink)
        end = start + len(self.targets) * cells.height
        return end if cells.digits == 1 else self._name_again(sheet, x, end + 4)

    def _name_again(self, sheet: _Sheet, x: float, y: float) -> float:
        """Name the columns of the last row once more, below it, for their heads are far away."""
        size = self.cells.word
        for column in np.flatnonzero(~np.isnan(self.map.matrix[-1])).tolist():
            place = x + (column + 0.5) * self.cells.width + 0.35 * size
            ink = self._ink(self.map.record.words[column])
            sheet.text(place, y, self.heads[column], size, ink, "right", rotation=90, rotation_mode="anchor")
        return y + max(text_width(label, size) for label in self.heads)

    def _ink(self, word: str) -> str:
        return _ink_of(word, self.map.unknown, INK)

    def _fill(self, sheet: _Sheet, x: float, y: float, top: float) -> None:
        cells = self.cells
        # lines between cells: the palest are seen to be there
        seen = sheet.grid(self.map.relative, (x, y), (cells.width, cells.height), top, FAINT)
        weights = self.map.matrix[~np.isnan(self.map.matrix)].tolist()
        for ((left, above, width, height), share), weight in zip(seen, weights, strict=True):
            if cells.digits is None:
                break
            line, said = above + height / 2 + 0.36 * cells.number, percent(weight, cells.digits)
            sheet.text(left + width / 2, line, said, cells.number, ink_on(blue(share / top)), "center")


@styled()
def triangle_figure(sentences: Sequence[Sequence[SentenceMap]]) -> Figure:
    """Draw a panel for each model of each sentence; all share a scale of colours."""
    rows = [_side_by_side([_Triangle(one) for one in maps]) for maps in sentences]
    # narrow figures leave room for their words
    sheet = _Sheet(TITLE, max(380.0, *(_together(line) for lines in rows for line in lines)))
    top, above = common_scale([one for maps in sentences for one in maps])
    for lines in rows:
        for line in lines:
            x, y = 0.0, sheet.y + 27
            ends = []
            for panel in line:
                for number, text in enumerate(panel.heading):
                    look = (NOTE_SIZE, MUTED) if number else (LEGEND_SIZE, INK)
                    sheet.text(x + panel.left, y + 12 * number, text, *look, weight="normal" if number else "bold")
                start = y + 12 * max(len(panel.heading) for panel in line)
                ends.append(panel.draw(sheet, x + panel.left, start, top))
                x += panel.width + _GUTTER
            sheet.y = max(ends)
        sheet.y += 6
    sheet.y += 6
    sheet.key(max(rows[0][0][0].left, 52), top, above, "×")
    sheet.y += 6
    return sheet.finish(_triangle_caption([one for maps in sentences for one in maps]))


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


def _side_by_side(panels: Sequence[_Triangle]) -> list[Sequence[_Triangle]]:
    """Cut panels into rows, as many to a row as fit on the widest paper."""
    fit = next((count for count in range(len(panels), 1, -1) if _together(panels[:count]) <= _WIDEST), 1)
    return [panels[first : first + fit] for first in range(0, len(panels), fit)]


def _together(panels: Sequence[_Triangle]) -> float:
    return sum(panel.width for panel in panels) + _GUTTER * (len(panels) - 1)


# --- a span buffer at the last word of a text (Li et al., 2020, Figure 5 and Table 4) ---

_WIDTH = 738
_NAMES = {"buffer": "buffer alone", "encoder": "encoder alone", "mixture": "both"}
_DATA = 98  # where what is named begins
_SHOWN, _CANDIDATE = 4, 129


@styled()
def span_figure(record: SpanRecord) -> Figure:
    """Draw what the last position of `record` read, expected and looked at, and its last steps, a row each."""
    sheet, last = _Sheet(record.title, _WIDTH, record.about), len(record) - 1
    _context(sheet, record, last)
    _expected(sheet, record, last)
    looks = record.looks(last)
    what = f"{len(looks)} spans of {record.span} words" if record.span > 1 else f"{len(looks)} words"
    empty = "The buffer is empty: no span has passed yet"
    _heading(sheet, f"The buffer: {what}, the newest last" if looks else empty)
    if looks:
        _tiles(sheet, record, last)
        steps = range(max(len(record) - MOST_STEPS, 0), len(record))
        _heading(sheet, f"The last {len(steps)} steps")
        _steps(sheet, record, steps)
    return sheet.finish(_span_caption(record))


def _span_caption(record: SpanRecord) -> str:
    span = f"A span of {record.span} steps stands for the words it ends with" if record.span > 1 else "A span is a word"
    none = ", and the word just read is in none" if record.nearest_lag else ""
    return (
        "λ: how much the gate prefers the buffer, before its temperature; the tick is at ½. "
        f"α: the weights of the spans at a step; they sum to 1. {span}{none}. "
        "What came is orange where it was expected."
        + " Coloured words of the steps: the vocabulary lacks them; they were read as <unk>."
        * bool(record.unknown)
    )


def _as_read(record: SpanRecord, word: str) -> str:
    return UNK if word in record.unknown else word


def _heading(sheet: _Sheet, text: str) -> None:
    sheet.y += 26
    sheet.text(0, sheet.y, text, HEAD_SIZE, weight="bold")
    sheet.y += 11


def _context(sheet: _Sheet, record: SpanRecord, last: int) -> None:
    """Write as many of the words before as fit on a line, what came, and the gate."""
    room = _WIDTH - _DATA
    words = [clip(record.words[last], LEGEND_SIZE, room - 22)]
    for word in reversed(record.words[:last]):
        if text_width(" ".join(["…", word, *words]), LEGEND_SIZE) > room:
            break
        words.insert(0, word)
    sheet.y += 25
    sheet.text(0, sheet.y, "after", LEGEND_SIZE, MUTED)
    sheet.text(_DATA, sheet.y, " ".join([*(["…"] if len(words) <= last else []), *words]), LEGEND_SIZE)
    sheet.y += 16
    sheet.text(0, sheet.y, "came", LEGEND_SIZE, MUTED)
    sheet.text(_DATA, sheet.y, clip(record.targets[last], LEGEND_SIZE, room), LEGEND_SIZE, CAME_INK, weight="bold")
    if record.filled[last]:
        gate = float(record.gate[last])
        sheet.y += 16
        sheet.text(0, sheet.y, "gate", LEGEND_SIZE, MUTED)
        _gate(sheet, gate, (_DATA, sheet.y - 7, 120, 7.5))
        preferred = "buffer" if gate >= 0.5 else "encoder"
        sheet.text(_DATA + 129, sheet.y, f"λ {gate:.3f}: the {preferred} is preferred", LEGEND_SIZE)


def _gate(sheet: _Sheet, gate: float, box: Box) -> None:
    """Fill a bar from the left by λ, with a tick in the middle, where the preference turns."""
    x, y, width, height = box
    sheet.bar(x, y, width, height, FAINT)
    sheet.bar(x, y, width * gate, height, blue(0.55))
    sheet.bar(x + width / 2 - 0.4, y - 1.5, 0.8, height + 3, MUTED)


def _expected(sheet: _Sheet, record: SpanRecord, last: int) -> None:
    """Write what each part expected most, each word over a bar, and what it gave to the word that came (Table 4)."""
    shown = {part: getattr(record, part)[last][:_SHOWN] for part in _NAMES if record.filled[last] or part == "encoder"}
    most = max(chance for row in shown.values() for _, chance in row)
    right, came = _DATA + _SHOWN * _CANDIDATE, record.targets[last]
    sheet.y += 26
    sheet.text(_DATA, sheet.y, "expected most", NOTE_SIZE, MUTED)
    sheet.text(right, sheet.y, f"gave “{clip(came, NOTE_SIZE, 75)}”", NOTE_SIZE, MUTED)
    width = _CANDIDATE - 14
    for part, row in shown.items():
        sheet.y += 19.5
        sheet.text(0, sheet.y, _NAMES[part], LEGEND_SIZE, MUTED)
        for number, (word, chance) in enumerate(row):
            x, is_it = _DATA + number * _CANDIDATE, word == _as_read(record, came)
            ink, pale, fill, bold = (CAME_INK,) * 3 + ("bold",) if is_it else (INK, MUTED, blue(0.6), "normal")
            sheet.text(x, sheet.y, clip(word, LEGEND_SIZE, width - 39), LEGEND_SIZE, ink, weight=bold)
            sheet.text(x + width, sheet.y, span_percent(chance), NOTE_SIZE, pale, "right")
            sheet.bar(x, sheet.y + 4, width, 2.2, FAINT)
            sheet.bar(x, sheet.y + 4, width * chance / most, 2.2, fill)
        sheet.text(right, sheet.y, span_percent(float(record.chance[last, PARTS.index(part)])), LEGEND_SIZE, CAME_INK)


def span_percent(share: float) -> str:
    """Write a probability in percent: one digit after the point, or the first that is not 0."""
    value = 100 * share
    if value >= 9.95:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if value >= 0.095 else f"{value:.1g} %"


_TILE, _BACK, _NUMBER, _PAD = 15.5, 50, 35, 5
_MOST_ROWS, _MOST_COLUMNS = 24, 10
_USUAL = 0.9  # of the spans have room for all their words; of the others the end is cut


def _tiles(sheet: _Sheet, record: SpanRecord, position: int) -> None:
    """Draw the spans looked at as tiles, oldest first; of many rows the heaviest and the newest: count the others."""
    looks = sorted(record.looks(position), key=lambda look: look.last)
    top = scale_top(max(look.weight for look in looks))
    labels = sorted(text_width(record.words_of(look), TEXT_SIZE) for look in looks)
    usual = labels[min(int(_USUAL * len(labels)), len(labels) - 1)] + _NUMBER + 2 * _PAD
    columns = max(min(int((_WIDTH - _BACK) // usual), _MOST_COLUMNS, len(looks)), 1)
    width = (_WIDTH - _BACK) / columns
    sheet.text(_BACK - 6, sheet.y + 3, "words back", NOTE_SIZE, MUTED, "right")
    sheet.y += 8
    # the newest row is full, the oldest may begin late
    first = len(looks) % columns or columns
    rows = [looks[:first], *(looks[start : start + columns] for start in range(first, len(looks), columns))]
    for shown, some in _by_weight(rows):
        if not shown:
            _left_out(sheet, [look for row in some for look in row])
            continue
        for row in some:
            sheet.text(_BACK - 6, sheet.y + 10.5, signed(position - row[0].first), NOTE_SIZE, MUTED, "right")
            places = [_BACK + number * width for number in range(columns - len(row), columns)]
            boxes = [(x, sheet.y, width, _TILE) for x in places]
            sheet.cells(boxes, [look.weight for look in row], top)
            for x, look in zip(places, row, strict=True):
                ink, room = ink_on(blue(look.weight / top)), width - _NUMBER - 2 * _PAD
                sheet.text(x + _PAD, sheet.y + 10.5, clip(record.words_of(look), TEXT_SIZE, room), colour=ink)
                sheet.text(x + width - _PAD, sheet.y + 10.5, f"{100 * look.weight:.1f} %", colour=ink, ha="right")
            sheet.y += _TILE
    sheet.y += 8
    sheet.key(_BACK, top, above=False)


def _by_weight(rows: Sequence[list[Look]]) -> Iterator[tuple[bool, list[list[Look]]]]:
    """Yield rows that are shown, and between them those that are not."""
    order = sorted(range(len(rows) - 1), key=lambda number: -max(look.weight for look in rows[number]))
    kept = {len(rows) - 1, *order[: _MOST_ROWS - 1]}
    for shown, group in groupby(range(len(rows)), key=lambda number: number in kept):
        yield shown, [rows[number] for number in group]


def _left_out(sheet: _Sheet, looks: Sequence[Look]) -> None:
    total = 100 * math.fsum(look.weight for look in looks)
    said = f"⋯ {len(looks)} spans, {total:.1f} % together"
    sheet.text(_BACK + 12, sheet.y + 8, said, NOTE_SIZE, MUTED)
    begin = _BACK + 18 + text_width(said, NOTE_SIZE)
    sheet.bar(_BACK, sheet.y + 5, 8, 0.75, FAINT)
    sheet.bar(begin, sheet.y + 5, _WIDTH - begin, 0.75, FAINT)
    sheet.y += 11


MOST_STEPS = 32
_STEP = 13
_WORD, _LAMBDA, _GUESS = 78, 46, 72
_LEAST_CELL, _MOST_CELL = 3.0, 30.0
_USUAL_STEPS = 0.75  # of the steps have no weight above the darkest


def _steps(sheet: _Sheet, record: SpanRecord, steps: range) -> None:
    """Draw a row for each of `steps`: its spans as columns, and beside them its gate and first guesses."""
    beside = 3 * _GAP + _WORD + _LAMBDA + len(_NAMES) * _GUESS
    room = _WIDTH - _WORD - _GAP - beside
    weights, together = _columns(record, steps, int(room // _LEAST_CELL))
    largest = np.nanmax(weights[~np.isnan(weights).all(axis=1)], axis=1)
    top = scale_top(float(np.quantile(largest, _USUAL_STEPS)))
    width = min(room / weights.shape[1], _MOST_CELL)
    came = _WIDTH - beside + _GAP
    left = came - _GAP - weights.shape[1] * width
    guess = came + _WORD + _LAMBDA + 2 * _GAP
    what = "spans" if record.span > 1 else "words"
    several = f", a column is the largest of {together}" if together > 1 else ""
    head = f"α of its {what}, the newest to the right{several}"
    sheet.text(came - _GAP, sheet.y + 9, head, NOTE_SIZE, MUTED, "right")
    sheet.text(guess, sheet.y + 9, "expected most, by", NOTE_SIZE, MUTED)
    sheet.y += 20
    sheet.text(left - _GAP, sheet.y, "just read", NOTE_SIZE, MUTED, "right")
    sheet.text(came, sheet.y, "came next", NOTE_SIZE, MUTED)
    sheet.text(came + _WORD + _GAP, sheet.y, "λ", NOTE_SIZE, MUTED)
    for number, name in enumerate(("buffer", "encoder", "both")):
        sheet.text(guess + number * _GUESS, sheet.y, name, NOTE_SIZE, MUTED)
    sheet.y += 5
    sheet.grid(weights, (left, sheet.y), (width, _STEP), top)
    for t in steps:
        line, target = sheet.y + 9.3, record.targets[t]
        inks = [_ink_of(word, record.unknown, INK) for word in (record.words[t], target)]
        sheet.text(left - _GAP, line, clip(record.words[t], 8, _WORD), 8, inks[0], "right")
        sheet.text(came, line, clip(target, 8, _WORD - 3), 8, inks[1])
        if record.filled[t]:
            _gate(sheet, float(record.gate[t]), (came + _WORD + _GAP, sheet.y + 3, _LAMBDA, 6))
        else:
            sheet.bar(came + _WORD + _GAP, sheet.y + 5.5, _LAMBDA, 0.75, FAINT)
        for number, part in enumerate(_NAMES):
            guesses: Expected = getattr(record, part)[t]
            for word, _ in guesses[:1]:
                ink = CAME_INK if word == _as_read(record, target) else MUTED
                sheet.text(guess + number * _GUESS, line, clip(word, 8, _GUESS - 4), 8, ink)
        sheet.y += _STEP
    sheet.y += 8
    sheet.key(came - _GAP - 144, top, is_above(float(largest.max()), top))
    sheet.y += 4


def _columns(record: SpanRecord, steps: range, most: int) -> tuple[NDArray[np.float64], int]:
    """Return (steps, columns) weights, NaN for no span, the newest last; and of how many spans each is the largest."""
    rows = [[look.weight for look in sorted(record.looks(t), key=lambda look: -look.last)] for t in steps]
    spans = max(map(len, rows))
    together = max(math.ceil(spans / most), 1)
    table = np.full((len(rows), math.ceil(spans / together)), np.nan)
    for number, row in enumerate(rows):
        for column, first in enumerate(range(0, len(row), together), start=1):
            table[number, -column] = max(row[first : first + together])
    return table, together
