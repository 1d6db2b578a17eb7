"""Attention in one sentence, and the flatness of attention (Salton et al., 2017, §5, Figures 2 and 3).

In the map of a sentence each row is a word to predict, and each column a word read. Flatness measures what the paper
saw in such maps:

    flatness = 1/|R| · Σ_{t in R} H_t / ln n_t,    H_t = -Σ_i p_ti ln p_ti,    p_ti = a_ti / Σ_j a_tj

At step t, n_t slots held a word. R are the steps with n_t >= 2: a single slot leaves no choice. Flatness 1 is equal
weight on every word, 0 all weight on one. p excludes weight on no word (a pointer's sentinel), which is
reported beside it. In a span buffer a slot holds a span.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from textwrap import wrap
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError, require
from spanlm.models.interfaces import NextWordModel
from spanlm.scoring.attention import AttentionRecord, attention_record

# --- flatness ---

GROUPS: dict[str, tuple[int, float]] = {
    "2-5": (2, 5),
    "6-10": (6, 10),
    "11-20": (11, 20),
    "21-35": (21, 35),
    "36-100": (36, 100),
    "101-255": (101, 255),
    ">255": (256, math.inf),
}
"""Name -> the least and the greatest number of slots."""
ALL = "all"


class FlatnessRow(NamedTuple):
    """Means over the rows of one group, as shares of the weight on words."""

    slots: str  # the number of slots to choose from, a name in `GROUPS` or `ALL`
    rows: int
    flatness: float
    largest: float  # the largest weight; `nearest` is that of the nearest slot
    nearest: float
    equal: float  # `largest` and `nearest` of equal weights, 1 / n
    on_no_word: float  # the share that lies on no word, before the row is scaled


@dataclass(frozen=True)
class Flatness:
    """Flatness of the attention over a text: by number of slots, where there are rows, and over all rows."""

    groups: tuple[FlatnessRow, ...]
    overall: FlatnessRow
    left_out: int  # rows without a choice, or with no weight on any word
    nearest_lag: int  # the lag of the nearest slot: 1 is the word before the one just read, 0 that itself
    span: int = 1  # number of words in a slot; the nearest of several spans is the one that ended last


class FlatnessAccumulator:
    """Sums flatness over a corpus of any size."""

    def __init__(self, nearest_lag: int = 1) -> None:
        self.nearest_lag, self.span, self.left_out = nearest_lag, 1, 0
        self._counts = np.zeros(len(GROUPS), dtype=np.int64)
        self._sums = np.zeros((len(GROUPS), len(FlatnessRow._fields) - 2))

    @property
    def rows(self) -> int:
        return int(self._counts.sum())

    def update(self, weights: ArrayLike, slots: ArrayLike) -> None:
        """Add attention (N, L), oldest first, of which (N,) slots from the nearest on held a word; L may change."""
        rows, held = np.asarray(weights, dtype=np.float64), np.asarray(slots)
        if not (np.isfinite(rows).all() and (rows >= 0).all()):
            raise InputError("weights", limit="every weight must be a finite number that is not negative")
        window = rows.shape[1]
        rows = np.where(np.arange(window) >= window - held[:, None], rows, 0.0)
        counted = (held >= 2) & (rows.sum(axis=1) > 0)
        self.left_out += int((~counted).sum())
        measured, held = _measured(rows[counted], held[counted]), held[counted]
        for number, (least, most) in enumerate(GROUPS.values()):
            inside = (held >= least) & (held <= most)
            self._counts[number] += inside.sum()
            self._sums[number] += measured[inside].sum(axis=0)

    def result(self) -> Flatness:
        """Return the means so far."""
        if self.rows == 0:
            what = "words" if self.span == 1 else "spans"
            raise InputError("flatness", limit=f"none of {self.left_out} positions has two {what} to look at")
        found = zip(GROUPS, self._counts.tolist(), self._sums, strict=True)
        groups = tuple(_row(name, count, sums) for name, count, sums in found if count > 0)
        overall = _row(ALL, self.rows, self._sums.sum(axis=0))
        return Flatness(groups, overall, self.left_out, self.nearest_lag, self.span)


def _measured(rows: NDArray[np.float64], slots: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the quantities to average, (N, 5), for rows with weight and at least two slots to choose from."""
    on_words = rows.sum(axis=1)
    shares = rows / on_words[:, None]
    # 0 ln 0 = 0
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=1)
    largest = shares.max(axis=1, initial=0)
    return np.stack([entropy / np.log(slots), largest, shares[:, -1], 1 / slots, 1 - on_words], axis=1)


def _row(slots: str, count: int, sums: NDArray[np.float64]) -> FlatnessRow:
    row = FlatnessRow(slots, count, *(float(total) / count for total in sums))
    # softmax rows miss 1 by rounding
    return row._replace(on_no_word=max(0.0, row.on_no_word))


# --- one sentence ---

MOST_WORDS = 120
"""Of a sentence: more do not fit on a page."""
_USUAL = 0.95
_TOPS = (2, 3, 4, 6, 8, 10, 15, 20, 30, 60, 120)


@dataclass(frozen=True, eq=False)
class SentenceMap:
    """The attention of one model over one sentence, read alone from an empty state."""

    name: str  # of the model, for headings
    memory: str  # description of the model's memory
    # N words read, the opening `<eos>` first if there is one, and the N that came next, the closing `<eos>` last
    record: AttentionRecord

    @cached_property
    def slots(self) -> NDArray[np.int64]:
        """(N,) how many words could be looked at."""
        return np.clip(np.arange(len(self.record)) + 1 - self.record.nearest_lag, 0, self.record.window)

    @cached_property
    def matrix(self) -> NDArray[np.float32]:
        """(N, N) the weight of `words[s]` in the prediction of `targets[t]`; NaN where it could not be looked at."""
        count, window = len(self.record), self.record.window
        matrix = np.full((count, count), np.nan, dtype=np.float32)
        for t, slots in enumerate(self.slots.tolist()):
            end = t + 1 - self.record.nearest_lag
            matrix[t, max(end - slots, 0) : max(end, 0)] = self.record.weights[t, window - slots :]
        return matrix

    @cached_property
    def relative(self) -> NDArray[np.float32]:
        """(N, N) `matrix` over the equal share of its row, 1 / n_t: where attention is flat, all of it is 1.

        Shades are of this: by weight, a short row would be dark and a long one pale, whatever the model does.
        """
        return np.asarray(self.matrix * np.maximum(self.slots, 1)[:, None], dtype=np.float32)

    @property
    def on_no_word(self) -> NDArray[np.float64]:
        """(N,) the share of each row that lies on no word, such as a pointer's gate; 0 where the memory is empty."""
        missing = 1 - np.nansum(self.matrix, axis=1, dtype=np.float64)
        return np.where(self.slots > 0, np.maximum(missing, 0.0), 0.0)

    @cached_property
    def flatness(self) -> Flatness | None:
        """Flatness of the rows; None where no row has a choice."""
        return mean_flatness([self])

    def mark(self, word: str) -> str:
        """Return ` <unk>` for a word that the vocabulary lacks, to stand beside it."""
        return f" {UNK}" if word in self.record.unknown else ""


def attend_sentence(
    model: NextWordModel,
    vocabulary: Vocabulary,
    words: Sequence[str],
    *,
    name: str,
    memory: str,
    predict_first: bool = True,
) -> SentenceMap:
    """Read one sentence, opened and closed by `<eos>`, from an empty state.

    Words outside the vocabulary are read as <unk> and shown as written. Without `predict_first` no `<eos>` opens the
    sentence, and its first word is read and not predicted. `name` and `memory` describe the model.
    """
    require(len(words) > 0, "sentence", "''", "at least one word")
    if len(words) > MOST_WORDS:
        raise InputError(f"a sentence of {len(words):,} words: must be at most {MOST_WORDS}; --text takes longer texts")
    record = attention_record(model, vocabulary, [*words, EOS], title=f"{name}, {memory}", predict_first=predict_first)
    return SentenceMap(name, memory, record)


def mean_flatness(maps: Sequence[SentenceMap]) -> Flatness | None:
    """Return the flatness over all rows of several sentences of one model; None where no row has a choice."""
    accumulator = FlatnessAccumulator(maps[0].record.nearest_lag)
    for one in maps:
        accumulator.update(one.record.weights, one.slots)
    return accumulator.result() if accumulator.rows else None


def common_scale(maps: Sequence[SentenceMap]) -> tuple[float, bool]:
    """Return how many equal shares are darkest in every map of a sentence, and whether there are larger weights."""
    # at most one in twenty is larger: scaled to single peaks all the rest would be pale
    shares = np.concatenate([one.relative[~np.isnan(one.relative)] for one in maps])
    usual = float(np.quantile(shares, _USUAL)) if shares.size else 1.0
    top = next((top for top in _TOPS if not is_above(usual, top)), _TOPS[-1])
    return top, is_above(float(shares.max(initial=0)), top)


def scale_top(largest: float) -> float:
    """Return the weight that is darkest, a round one that is not below `largest`; 1 where there are no weights."""
    if not 0 < largest < 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if not is_above(largest, step * power))


def is_above(largest: float, top: float) -> bool:
    """Return whether a weight is larger than the one that is darkest."""
    # a hair wider: 0.1 as a float32 is more than 0.1
    return largest > top * (1 + 1e-6)


def percent(weight: float, digits: int) -> str:
    """Return a share in percent; all of it is 100, whatever the digits."""
    return "100" if weight >= 0.9995 else f"{100 * weight:.{digits}f}"


SHADES = "·░▒▓█"
_LINE, _LABEL, _WIDE = 96, 18, 78


def triangle_lines(one: SentenceMap, top: float) -> Iterator[str]:
    """Yield a map as text: a line for each predicted word, with percents or, where those do not fit, shades.

    A row ends with the word just read, which heads the column that begins below it. The darkest
    shade is `top` equal shares. The last line explains the rest.
    """
    record, empty = one.record, np.full(len(one.record), np.nan)
    targets, heads = (
        [(word if len(word) <= _LABEL else f"{word[: _LABEL - 1]}…") + one.mark(word) for word in words]
        for words in (record.targets, record.words)
    )
    width = max(map(len, targets))
    cell = next((cell for cell in (4, 2) if width + cell * len(targets) <= _LINE), 1)
    for row in range(-1, len(targets)):
        label, weights = (targets[row], one.matrix[row]) if row >= 0 else ("", empty)
        column = row + 1 - record.nearest_lag
        if cell < 4 and row >= 0:
            weights = one.relative[row]
        cells = "".join(_cell(float(weight), top, cell) for weight in weights[: max(column, 0)])
        head = heads[column] if 0 <= column < len(heads) else ""
        if label or head:
            yield f"{label:>{width}} {cells}{' ' * max(cell - 1, 1)}{head}".rstrip()
    shades = "percent" if cell == 4 else f"{SHADES[0]} little, {SHADES[-1]} {top:g} times an equal share or more"
    yield from wrap(f"({shades}; row: the next word; column: the word at its head, on the diagonal)", _WIDE)


def _cell(weight: float, top: float, width: int) -> str:
    if np.isnan(weight):
        return " " * width
    if width == 4:
        return f"{percent(weight, 0):>4}"
    return SHADES[min(round(weight / top * (len(SHADES) - 1)), len(SHADES) - 1)] * width
