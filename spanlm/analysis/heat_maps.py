"""Heat maps of attention: a text by lag (Daniluk et al., 2017, Fig. 3a), sentences word by word (Salton et al., 2017).

A cell is a weight in equal shares of its row: 1 where all slots of the row have the same. Coloured by weight, a short
row would be dark and a long one pale, whatever the model does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanlm.analysis.figures import INK, PAPER, TEXT_SIZE, clip, finished, sheet, styled, wrap
from spanlm.analysis.flatness import mean_flatness
from spanlm.analysis.lags import axis_title, signed
from spanlm.data.vocabulary import UNK
from spanlm.errors import InputError
from spanlm.scoring.attention import AttentionRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW_LIMIT = 400
_CELL, _LETTERS = 13, 26  # side of a cell in points, letters of a word
_LEAST_WIDTH = 200  # of a panel, so that its title has room
_MOST_VECTORS = 2000  # cells of a map that are drawn as shapes; of more the file would be slow to open
_USUAL = 0.95  # of all cells are paler than the darkest colour: scaled to single peaks the rest would be pale


class _Map(NamedTuple):
    """A panel: weights (R, C), NaN where there is no slot, with the names of rows (left, right) and columns (top)."""

    title: str
    weights: NDArray[np.float32]
    rows: Sequence[str]
    columns: Sequence[str]
    row_title: str
    column_title: str
    beside: Sequence[str] = ()


def by_word(record: AttentionRecord) -> NDArray[np.float32]:
    """(N, N) the weight of `words[s]` in the prediction of `targets[t]`; NaN where no slot held that word."""
    matrix = np.full((len(record), len(record)), np.nan, dtype=np.float32)
    rows, columns = np.nonzero(record.occupied)
    matrix[rows, rows - np.asarray(record.lags)[columns]] = record.weights[rows, columns]
    return matrix


def marked(record: AttentionRecord, word: str) -> str:
    """Write a word with ` <unk>` behind it if the vocabulary lacks it."""
    return f"{clip(word, _LETTERS)} {UNK}" if word in record.unknown else clip(word, _LETTERS)


def text_figure(record: AttentionRecord) -> Figure:
    """Draw a row for each word read and a column for each lag: the cell at −i is the word i rows above."""
    if len(record) > ROW_LIMIT:
        raise InputError(f"a figure of {len(record)} words: must be at most {ROW_LIMIT}; write .html, .csv or .npz")
    bits = [f"{bits:.1f}".replace("nan", "–") for bits in record.bits.tolist()]
    panel = _Map(
        title="",
        weights=np.where(record.occupied, record.weights, np.float32(np.nan)),
        rows=[marked(record, word) for word in record.words],
        columns=[signed(lag) for lag in record.lags],
        row_title="word just read",
        column_title=axis_title(record.nearest_lag),
        beside=[f"{number}  {marked(record, word)}" for number, word in zip(bits, record.targets, strict=True)],
    )
    caption = [record.about, "Right: surprisal in bits, and the word that came next"]
    return _figure(record.title, [[panel]], ". ".join(filter(None, caption)), unknown=bool(record.unknown))


def sentence_figure(
    sentences: Sequence[Sequence[AttentionRecord]], title: str = "Attention to the words of the sentence"
) -> Figure:
    """Draw a row of panels for each sentence, a panel for each model, with a row for each predicted word."""
    records = [record for row in sentences for record in row]
    caption = "Flatness: entropy of a row over that of equal weights, mean over rows with a choice; 1 is flat"
    panels = [[_sentence(record) for record in row] for row in sentences]
    return _figure(title, panels, caption, unknown=any(record.unknown for record in records))


def _sentence(record: AttentionRecord) -> _Map:
    flatness, missing = mean_flatness([record]), 1 - record.weights.sum(axis=1)[record.occupied.any(axis=1)]
    about = [record.about, *([] if flatness is None else [f"flatness {flatness.overall.flatness:.3f}"])]
    if missing.size and missing.mean() >= 0.0005:
        about.append(f"{100 * missing.mean():.1f} % on no word")
    return _Map(
        title=record.title,
        weights=by_word(record),
        rows=[marked(record, word) for word in record.targets],
        columns=[marked(record, word) for word in record.words],
        row_title="next word",
        column_title=f"{wrap(', '.join(about), TEXT_SIZE, _LEAST_WIDTH)}\nword looked at",
    )


@styled()
def _figure(title: str, panels: Sequence[Sequence[_Map]], caption: str, *, unknown: bool) -> Figure:
    shares = [[panel.weights * (~np.isnan(panel.weights)).sum(1, keepdims=True) for panel in row] for row in panels]
    cells = np.concatenate([table[~np.isnan(table)] for row in shares for table in row])
    darkest = max(2.0, float(np.quantile(cells, _USUAL))) if cells.size else 2.0  # equal shares are half as dark
    columns = range(max(map(len, panels)))
    letters = _CELL * 0.5 * _LETTERS
    widths = [max(_LEAST_WIDTH, *(_CELL * len(row[n].columns) for row in panels if n < len(row))) for n in columns]
    heights = [_CELL * max(len(panel.rows) for panel in row) for row in panels]
    size = sum(widths) + letters * len(widths), sum(heights) + letters * len(heights)
    figure, plots = sheet(*size, len(panels), len(columns), width_ratios=widths, height_ratios=heights)
    for row, tables, axes_of_row in zip(panels, shares, plots, strict=True):
        for axes in axes_of_row[len(row) :]:
            axes.remove()
        for panel, table, axes in zip(row, tables, axes_of_row, strict=False):
            look = {"cmap": "Blues", "vmin": 0, "vmax": darkest, "edgecolors": PAPER, "linewidths": 0.75}
            axes.set(xlim=(0, table.shape[1]), ylim=(table.shape[0], 0), aspect="equal", anchor="NW")
            filled = axes.pcolor(np.ma.masked_invalid(table), rasterized=table.size > _MOST_VECTORS, **look)
            axes.spines["bottom"].set_visible(False)
            axes.xaxis.tick_top()
            axes.xaxis.set_label_position("top")
            axes.set_xlabel(panel.column_title, loc="left")
            axes.set_ylabel(panel.row_title, loc="top")
            axes.set_xticks(np.arange(table.shape[1]) + 0.5, panel.columns, rotation=90, color=INK)
            axes.set_yticks(np.arange(table.shape[0]) + 0.5, panel.rows, color=INK)
            axes.set_title(clip(panel.title, 34))
            axes.grid(visible=False)
            if panel.beside:
                beside = axes.secondary_yaxis("right")
                beside.set_yticks(np.arange(table.shape[0]) + 0.5, panel.beside)
                beside.spines["right"].set_visible(False)
    shrink = min(0.6, 160 / widths[0])
    key = figure.colorbar(filled, ax=plots[-1][0], location="bottom", extend="max", shrink=shrink, aspect=16)
    key.set_label("attention, in equal shares of the row")
    key.outline.set_visible(False)
    note = f"{UNK}: the vocabulary lacks the word before it, which was read as {UNK}"
    return finished(figure, title, [], ". ".join([caption, *[note] * unknown]) + ".")
