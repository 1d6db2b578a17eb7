"""Excerpts of a corpus, and mean attention over a whole split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spanlm.analysis.flatness import Flatness, FlatnessAccumulator
from spanlm.analysis.lags import LagAccumulator, LagProfile
from spanlm.data.batching import Batcher
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, named, require
from spanlm.models.interfaces import NextWordModel
from spanlm.scoring.attention import Place, attention_of
from spanlm.scoring.protocol import STANDARD
from spanlm.scoring.stream import Reading, read


@dataclass(frozen=True)
class Excerpt:
    """Consecutive words of a corpus."""

    words: list[str]  # as the model reads them: `<unk>` for words outside the vocabulary, `<eos>` at line ends
    source: str  # the place in the corpus, in words
    first: int  # number of the first word, from 1, in the document or split
    # index of the first word of each document, or of each other context that begins with an empty state
    starts: Sequence[int] = (0,)
    places: Sequence[Place] = ()  # of items of a table, those of its words, see `spanlm.scoring.words.places_of`


def excerpt(
    corpus: Corpus, split: str, *, document: int | None = None, start: int | None = None, length: int = 60
) -> Excerpt:
    """Take `length` tokens of a split, line ends included, or fewer where it ends.

    `document` counts from 1; None: the whole split. `start` is a token of it, from 1; the excerpt begins with its line.

    Raises:
        InputError: there is no such document or token, or `length` is below 1.
    """
    require(length >= 1, "length", length, "at least 1")
    tokens, name = corpus.splits[split], f"{corpus.name} {split}"
    bounds = [*tokens.documents.tolist(), len(tokens)]
    first, end, count = 0, len(tokens), len(tokens.documents)
    if document is not None:
        if count == 1 and document != 1:
            limit = f"{name} is not cut into documents; {named('start=TOKEN')} takes a place from 1 to {end:,}"
            raise InputError("document", document, limit)
        require(1 <= document <= count, "document", document, f"from 1 to {count:,}, the documents of {name}")
        first, end = bounds[document - 1 : document + 1]
        name = f"{name}, document {document:,} of {count:,}"
    at = 0
    if start is not None:
        require(1 <= start <= end - first, "start", start, f"from 1 to {end - first:,}, the tokens of {name}")
        line_ends = np.flatnonzero(tokens.ids[first : first + start - 1] == corpus.vocabulary.eos_id)
        at = int(line_ends[-1]) + 1 if len(line_ends) else 0
    ids = tokens.ids[first + at : min(first + at + length, end)].tolist()
    place = f"{name}, tokens {at + 1:,} to {at + len(ids):,} of {end - first:,}"
    starts = [0, *(begin - first - at for begin in bounds if 0 < begin - first - at < len(ids))]
    return Excerpt([corpus.vocabulary.word(i) for i in ids], place, at + 1, starts)


def attention_by_lag(model: NextWordModel, batcher: Batcher, nearest: int | None = None) -> LagProfile:
    """Mean attention by lag over a whole split (Daniluk et al., 2017, Figure 3b); only sums are kept.

    A span of several words has the lag of its last word. `nearest` says how many lags get a number of their own where
    the window grows with the text; None: all of a window.

    Raises:
        InputError: a model that attends to nothing, or a split without a full window.
    """
    accumulator = LagAccumulator(nearest)
    _read(model, batcher, accumulator)
    return accumulator.profile()


def attention_flatness(model: NextWordModel, batcher: Batcher) -> Flatness:
    """How flat attention is over a whole split, over words or over spans; only sums are kept.

    See `spanlm.analysis.flatness` for the equation.

    Raises:
        InputError: a model that attends to nothing, or a split in which it never has a choice.
    """
    accumulator = FlatnessAccumulator()
    _read(model, batcher, accumulator)
    return accumulator.result()


def _read(model: NextWordModel, batcher: Batcher, accumulator: LagAccumulator | FlatnessAccumulator) -> None:
    """Read a split and sum the attention of its words, segment by segment."""
    attended = Attended()
    for scored in read(model, batcher.segments(), STANDARD, attended):
        accumulator.nearest_lag, accumulator.span = attended.nearest_lag, attended.stride
        accumulator.update(scored.numpy("weights"), scored.numpy("slots"))


class Attended:
    """Asks where a model looked: answers `weights` (N, L) and how many of the slots there were, `slots` (N,).

    Attributes:
        nearest_lag: of the last slot, as `Attention` has it.
        stride: likewise.

    Raises:
        InputError: a model that attends to nothing.
    """

    nearest_lag: int = 1
    stride: int = 1

    def __init__(self) -> None:
        self._read = torch.zeros(1, dtype=torch.long)

    def __call__(self, reading: Reading) -> Mapping[str, Tensor]:
        attention, reset = attention_of(reading.readout), reading.reset
        weights = attention.weights
        steps, _, window = weights.shape
        self.nearest_lag, self.stride = attention.nearest_lag, attention.stride
        # words that each stream remembers; where all are new, they may be more or fewer
        before = torch.where(reset, 0, 0 if reading.fresh else self._read)
        slots = attention.slots(before + torch.arange(steps).unsqueeze(1), window)
        self._read = before + steps
        return {"weights": reading.flat(weights).float(), "slots": reading.flat(slots.to(weights.device))}
