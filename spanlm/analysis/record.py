"""What a model looked at while it read one text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spanlm.analysis.by_lag import lag_range
from spanlm.errors import InputError, require

Expected = list[tuple[str, float]]
"""The most probable next words with their probabilities, best first."""


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """The attention of a model over one text of N words with a window of L (Daniluk et al. 2017, Fig. 3a).

    Position t is the moment after `words[t]` was read and before `targets[t]` was known. Column j of
    `weights` is lag i = L - 1 - j + `nearest_lag`: the weight given to `words[t - i]` while predicting `targets[t]`.

    Attributes:
        words: N words that were read; the first is the `<eos>` that opens the text, if one does.
        targets: N words that came next.
        weights: (N, L) float32; a row sums to 1 but for what lies on no word, or is 0 while the memory is empty.
        surprisal: (N,) float64, -ln p(target) in nats; NaN where nothing was predicted.
        expected: For each position the most probable next words with their probabilities, best first.
        title: What produced the record, for captions.
        nearest_lag: The lag of the last column: 1 where the memory ends at the word before the one just read, 0
            where it holds that word, too.

    Raises:
        InputError: If the shapes do not fit together, a number is infinite, or a weight is NaN or negative.
    """

    words: list[str]
    targets: list[str]
    weights: NDArray[np.float32]
    surprisal: NDArray[np.float64]
    expected: list[Expected]
    title: str
    nearest_lag: int = 1

    def __post_init__(self) -> None:
        """Check every shape against the number of words, so that no writer has to."""
        object.__setattr__(self, "weights", np.asarray(self.weights, dtype=np.float32))
        object.__setattr__(self, "surprisal", np.asarray(self.surprisal, dtype=np.float64))
        count = len(self.words)
        require(count > 0, "record.words", "[]", "at least one word")
        shape = self.weights.shape
        fits = len(shape) == 2 and shape[0] == count and shape[1] > 0
        limit = f"({count}, L) for {count} words, with a window L of at least 1"
        require(fits, "record.weights.shape", shape, limit)
        require(self.nearest_lag >= 0, "record.nearest_lag", self.nearest_lag, "at least 0")
        for field, found in (("targets", len(self.targets)), ("expected", len(self.expected))):
            require(found == count, f"len(record.{field})", found, f"{count}, one for each word")
        require(self.surprisal.shape == (count,), "record.surprisal.shape", self.surprisal.shape, f"({count},)")
        if not (np.isfinite(self.weights).all() and (self.weights >= 0).all()):
            raise InputError("record.weights: every weight must be a finite number that is not negative")
        if np.isinf(self.surprisal).any():
            raise InputError("record.surprisal: every surprisal must be a finite number of nats, or NaN")

    def __len__(self) -> int:
        return len(self.words)

    @property
    def window(self) -> int:
        """L, how many words the model could look at."""
        return int(self.weights.shape[1])

    @property
    def lags(self) -> range:
        """The lag of each column of `weights`, down to the nearest."""
        return lag_range(self.window, self.nearest_lag)

    @cached_property
    def bits(self) -> NDArray[np.float64]:
        """(N,) surprisal in bits, -log2 p(target)."""
        return np.asarray(self.surprisal / np.log(2.0), dtype=np.float64)

    @cached_property
    def occupied(self) -> NDArray[np.bool_]:
        """(N, L) which slots held a word.

        A memory fills from its nearest lag on, so all that is older than the oldest weight is empty.
        """
        seen = np.logical_or.accumulate(self.weights > 0, axis=1)
        exists = np.arange(len(self))[:, None] >= np.asarray(self.lags)[None, :]
        return np.asarray(seen & exists, dtype=np.bool_)

    @property
    def settled(self) -> NDArray[np.float32]:
        """(M, L) the rows that scales of colours are for: few words share all the weight, so each has much.

        Full windows or, of a window that grows with the text, rows with at least half as many words as the longest.
        """
        slots = self.occupied.sum(axis=1)
        full = slots == self.window
        rows = full if full.sum() > 1 else 2 * slots >= max(int(slots.max()), 1)
        return np.asarray(self.weights[rows], dtype=np.float32)


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
