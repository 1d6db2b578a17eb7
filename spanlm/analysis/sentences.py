"""Where a model looked in one sentence: for each predicted word the weights of the words before it.

The figures of Salton et al. (2017, Figures 2 and 3) show this: rows are the words to be predicted, columns those read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spanlm.analysis.flatness import Flatness, FlatnessAccumulator
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError, require
from spanlm.evaluation.attention import AttentionRecord, attend_words
from spanlm.models.interfaces import NextWordModel

MOST_WORDS = 120
"""Of a sentence: more do not fit on a page."""
_USUAL = 0.95


@dataclass(frozen=True, eq=False)
class SentenceMap:
    """The attention of one model over one sentence, read alone from an empty state.

    Attributes:
        name: of the model, for headings.
        memory: what attended, in words.
        record: N words read, the opening `<eos>` first if there is one, and the N that came next, the closing `<eos>`
            last.
        unknown: words that the vocabulary lacks.
    """

    name: str
    memory: str
    record: AttentionRecord
    unknown: frozenset[str]

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

    @property
    def on_no_word(self) -> NDArray[np.float64]:
        """(N,) the share of each row that lies on no word, such as a pointer's gate; 0 where the memory is empty."""
        missing = 1 - np.nansum(self.matrix, axis=1, dtype=np.float64)
        return np.where(self.slots > 0, np.maximum(missing, 0.0), 0.0)

    @cached_property
    def flatness(self) -> Flatness | None:
        """Of its rows; None where no row has a choice."""
        return mean_flatness([self])

    def mark(self, word: str) -> str:
        """Return what stands beside a word that the vocabulary lacks: what it was read as."""
        return f" {UNK}" if word in self.unknown and word != UNK else ""


def attend_sentence(
    model: NextWordModel,
    vocabulary: Vocabulary,
    words: Sequence[str],
    *,
    name: str,
    memory: str,
    opened: bool = True,
) -> SentenceMap:
    """Read one sentence, opened and closed by `<eos>`, from an empty state.

    Args:
        model: with attention.
        vocabulary: the model's; other words are read as <unk> and shown as written.
        words: of the sentence, at least one.
        name: of the model.
        memory: what attends, in words.
        opened: if not, no `<eos>` opens it, and its first word is read and not predicted.

    Raises:
        InputError: no words, more than `MOST_WORDS`, or a model that attends to nothing.
    """
    require(len(words) > 0, "sentence", "''", "at least one word")
    if len(words) > MOST_WORDS:
        raise InputError(f"a sentence of {len(words):,} words: must be at most {MOST_WORDS}; --text takes longer texts")
    record = attend_words(model, vocabulary, [*words, EOS], title=f"{name}, {memory}", opened=opened)
    unknown = frozenset(word for word in words if vocabulary.id(word) == vocabulary.unk_id)
    return SentenceMap(name, memory, record, unknown)


def mean_flatness(maps: Sequence[SentenceMap]) -> Flatness | None:
    """Return the flatness over all rows of several sentences of one model; None where no row has a choice."""
    accumulator = FlatnessAccumulator(maps[0].record.nearest_lag)
    for one in maps:
        accumulator.update(one.record.weights, one.slots)
    return accumulator.result() if accumulator.rows else None


def common_scale(maps: Sequence[SentenceMap]) -> tuple[float, bool]:
    """Return the weight that is darkest in every map of a sentence, and whether there are larger ones.

    At most one weight in twenty is larger, of the rows with at least half as many words as the longest: where few share
    all the weight, each has much, and scaled to them or to single peaks all the rest would be pale.
    """
    settled = _weights([one.matrix[2 * one.slots >= max(one.slots.max(), 1)] for one in maps])
    top = scale_top(float(np.quantile(settled, _USUAL)) if settled.size else 1.0)
    return top, is_above(float(_weights([one.matrix for one in maps]).max(initial=0)), top)


def _weights(matrices: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return those of the words that could be looked at."""
    return np.concatenate([matrix[~np.isnan(matrix)] for matrix in matrices])


SHADES = "·░▒▓█"
_LINE, _LABEL = 96, 18


def triangle_lines(one: SentenceMap, top: float) -> Iterator[str]:
    """Yield a line for each predicted word: percents where they fit on a line, else shades.

    A row ends with the word just read, which heads the column that begins below it. The last line says how to read it.

    Args:
        one: the map.
        top: the weight that has the darkest shade.
    """
    targets, heads = (
        [_cut(word) + one.mark(word) for word in words] for words in (one.record.targets, one.record.words)
    )
    width = max(map(len, targets))
    cell = next((cell for cell in (3, 2) if width + cell * len(targets) <= _LINE), 1)
    for row in range(-1, len(targets)):
        label = targets[row] if row >= 0 else ""
        weights = one.matrix[row] if row >= 0 else np.full(len(heads), np.nan)
        column = row + 1 - one.record.nearest_lag
        cells = "".join(_cell(float(weight), top, cell) for weight in weights[: max(column, 0)])
        head = heads[column] if 0 <= column < len(heads) else ""
        if label or head:
            yield f"{label:>{width}} {cells}{' ' * max(cell - 1, 1)}{head}".rstrip()
    shades = "percent" if cell == 3 else f"{SHADES[0]} little, {SHADES[-1]} {100 * top:g} % or more"
    yield f"({shades}; a row: the next word; a column: the word at its head, on the diagonal)"


def _cell(weight: float, top: float, width: int) -> str:
    if np.isnan(weight):
        return " " * width
    if width == 3:
        return f"{percent(weight, 0):>3}"
    return SHADES[min(round(weight / top * (len(SHADES) - 1)), len(SHADES) - 1)] * width


def _cut(word: str) -> str:
    return word if len(word) <= _LABEL else word[: _LABEL - 1] + "…"


def percent(weight: float, digits: int) -> str:
    """Return a share in percent; all of it is 100, whatever the digits."""
    return "100" if weight >= 0.9995 else f"{100 * weight:.{digits}f}"


def scale_top(largest: float) -> float:
    """Return the weight that is darkest, a round one that is not below `largest`; 1 where there are no weights."""
    if not 0 < largest < 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    step = next(step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if not is_above(largest, step * power))
    return step * power


def is_above(largest: float, top: float) -> bool:
    """Say whether a weight is larger than the one that is darkest."""
    # a hair wider: 0.1 as a float32 is more than 0.1
    return largest > top * (1 + 1e-6)
