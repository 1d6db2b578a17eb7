"""Log-probabilities of many short texts with common beginnings: n-best hypotheses, minimal pairs, cloze candidates.

The texts are the paths of a tree, which is cut into segments for `spanlm.scoring.stream.read`: a common beginning is
one stream, which splits where the texts differ. A stream predicts one word per step, so each branch reads the last
common word again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spanlm.data.batching import Segment
from spanlm.models.interfaces import NextWordModel
from spanlm.options import Precision
from spanlm.scoring.protocol import Protocol
from spanlm.scoring.stream import Reading, as_steps, log_sum, read

STREAMS = 1024
"""Texts side by side, at most."""

STATE_BYTES = 1 << 28
"""Limit for all states held at once: a model with large states reads fewer texts side by side."""

TOKENS = 4096
"""Tokens read at a time, over all streams; any number gives the same result, up to rounding."""

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Prefixes:
    """How many tokens were read, as common beginnings are read once.

    Attributes:
        tokens: tokens of all texts, with the <eos> that opens each.
        read: tokens read.
    """

    tokens: int = 0
    read: int = 0

    def __add__(self, other: Prefixes) -> Prefixes:
        return Prefixes(self.tokens + other.tokens, self.read + other.read)


def read_texts(
    model: NextWordModel,
    firsts: Mapping[Ids, int],
    precision: Precision = "fp32",
    streams: int = STREAMS,
    word_ends: Sequence[int] | None = None,
) -> tuple[dict[Ids, NDArray[np.float64]], int]:
    """Return log p of each text's words from index `firsts[text]` on, (n,), in nats, and how many words were read.

    The model keeps its training mode. At most `streams` texts are read side by side, fewer if their states are large.
    With `word_ends`, ids of tokens, the values are (n, 2), the second log Σ p of these tokens.
    """
    ends = None if word_ends is None else torch.tensor(word_ends, device=model.device)
    question = partial(_log_p, ends=ends)
    values, count = dict[Ids, NDArray[np.float64]](), 0
    by_state = STATE_BYTES // max(1, model.init_state(1).nbytes)
    most = max(1, min(streams, by_state))
    # texts share a stream only if scoring begins at the same index: no shared word then lacks a log p that one needs
    ordered = sorted(firsts, key=lambda text: (firsts[text], text))
    for start in range(0, len(ordered), most):
        tree = _Tree(ordered[start : start + most], firsts)
        log_p = np.zeros((tree.ids.size, *([2] if ends is not None else [])))
        for block in read(model, tree.segments(), Protocol(precision=precision), question):
            log_p[block.place.numpy()] = block.numpy()
        for text, row in zip(tree.texts, tree.of_texts(log_p.reshape(*tree.ids.shape, *log_p.shape[1:])), strict=True):
            values[text] = row[firsts[text] : len(text)]
        count += tree.read
    return values, count


def _log_p(reading: Reading, ends: Tensor | None = None) -> Mapping[str, Tensor]:
    """Answer log p of the predicted words only, (N,) or with `ends` (N, 2); the head skips words that are only read."""
    if not len(reading.rows):
        nothing = reading.rows.double()
        return {"log_p": nothing if ends is None else nothing.unsqueeze(1).expand(-1, 2)}
    readout = reading.readout.map(partial(as_steps, reading.rows))
    targets = reading.flat(reading.segment.targets).unsqueeze(1)
    if ends is None:
        return {"log_p": reading.model.head.log_prob(readout, targets).squeeze(1)}
    log_probs = reading.model.head.log_probs(readout).squeeze(1)
    return {"log_p": torch.stack([log_probs.gather(1, targets).squeeze(1).double(), log_sum(log_probs, ends)], 1)}


class _Tree:
    """Sorted texts, so that texts with a common beginning are neighbours.

    Attributes:
        ids: (L, n) words of the texts by column, -1 after the end.
        read: words read by the segments so far.
    """

    def __init__(self, texts: Sequence[Ids], firsts: Mapping[Ids, int]) -> None:
        self.texts, self.read = texts, 0
        self._steps = np.array([len(text) - 1 for text in texts], np.int64)
        self._firsts = np.array([firsts[text] for text in texts])
        self.ids = np.full((self._steps.max() + 1, len(texts)), -1)
        for column, text in enumerate(texts):
            self.ids[: len(text), column] = text
        # the first step, from one word to the next, at which a text differs from its left neighbour
        parts = np.argmax(self.ids[:, 1:] != self.ids[:, :-1], axis=0) - 1
        self._parts = np.concatenate([[0], np.where(np.diff(self._firsts), 0, np.maximum(parts, 0))])

    def segments(self) -> Iterator[Segment]:
        before = np.zeros(0, np.int64)
        for begin, end in pairwise(np.unique([*self._parts, *self._steps]).tolist()):
            streams = np.flatnonzero((self._parts <= begin) & (begin < self._steps))
            for first in range(begin, end, size := max(1, TOKENS // len(streams))):
                last = min(first + size, end)
                self.read += (last - first) * len(streams)
                steps = np.arange(first + 1, last + 1)[:, None]
                yield Segment(
                    torch.from_numpy(self.ids[first:last, streams]),
                    torch.from_numpy(self.ids[first + 1 : last + 1, streams]),
                    torch.from_numpy(steps >= self._firsts[streams]),
                    torch.full((len(streams),), first == 0),
                    torch.from_numpy(steps * len(self.texts) + streams),
                    after=torch.from_numpy(np.searchsorted(before, streams, side="right") - 1),
                )
                before = streams

    def of_texts(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Distribute values (L, n, …) to texts, (n, L, …); a shared beginning has those of the first text with it."""
        steps, texts = np.arange(len(self.ids))[:, None] - 1, np.arange(len(self.texts))
        owners = np.maximum.accumulate(np.where(self._parts <= steps, texts, 0), axis=1)
        return np.stack([values[step, places] for step, places in enumerate(owners)], axis=1)


@dataclass(frozen=True)
class TextScore:
    """Log-probabilities of a text by written word.

    Attributes:
        words: log p of each word between white space, nats, summed over its tokens, and its end (`fold`); 0 for words
            that are not predicted.
        end: log p of the line end, or of all sentence ends if the model reads sentences; −inf for a text without words
            if first words are not predicted.
        oov: number of words with a token outside the vocabulary.
    """

    words: list[float]
    end: float
    oov: int

    @property
    def log_prob(self) -> float:
        return math.fsum([*self.words, self.end])
