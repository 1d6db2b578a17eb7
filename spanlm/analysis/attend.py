"""Run a model over a text, or over a corpus, and keep where it looked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from spanlm.analysis.by_lag import LagAccumulator, LagProfile
from spanlm.analysis.flatness import Flatness, FlatnessAccumulator
from spanlm.data.batching import Batcher
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, require
from spanlm.evaluation.attention import attention_of
from spanlm.evaluation.scoring import score
from spanlm.models.interfaces import Attention, NextWordModel


@dataclass(frozen=True)
class Excerpt:
    """Consecutive words of a corpus.

    Attributes:
        words: as the model reads them: `<unk>` for what the vocabulary does not have, `<eos>` at line ends.
        source: where they stand, in words.
        first: number of the first of them, from 1, in the document or split.
        starts: which of them begin a document, or another context that knows nothing of what is before.
    """

    words: list[str]
    source: str
    first: int
    starts: Sequence[int] = (0,)


def excerpt(
    corpus: Corpus, split: str, *, document: int | None = None, start: int | None = None, length: int = 60
) -> Excerpt:
    """Take `length` tokens of a split, or fewer where it ends.

    Args:
        corpus: with the split.
        split: its name in the corpus.
        document: number of the document, from 1; None: the whole split is one.
        start: the token of the document that is wanted, from 1; the excerpt begins with the line it stands in.
        length: how many tokens, line ends counted.

    Raises:
        InputError: There is no such document or token, or `length` is below 1.
    """
    require(length >= 1, "--words", length, "at least 1")
    tokens, name = corpus.splits[split], f"{corpus.name} {split}"
    first, end = 0, len(tokens)
    if document is not None:
        first, end = _document(tokens.documents, end, document, name)
        name = f"{name}, document {document:,} of {len(tokens.documents):,}"
    if start is not None:
        require(1 <= start <= end - first, "--from", start, f"from 1 to {end - first:,}, the tokens of {name}")
    at = _line_start(tokens.ids[first : first + (start or 1) - 1], corpus.vocabulary.eos_id)
    ids = tokens.ids[first + at : min(first + at + length, end)].tolist()
    place = f"{name}, tokens {at + 1:,} to {at + len(ids):,} of {end - first:,}"
    inside = tokens.documents - (first + at)
    starts = [0, *inside[(inside > 0) & (inside < len(ids))].tolist()]
    return Excerpt([corpus.vocabulary.word(i) for i in ids], place, at + 1, starts)


def _document(starts: NDArray[np.int64], tokens: int, document: int, name: str) -> tuple[int, int]:
    count = len(starts)
    if count == 1 and document != 1:
        raise InputError(
            f"--document={document}: {name} is not cut into documents; --from TOKEN takes a place from 1 to {tokens:,}"
        )
    require(1 <= document <= count, "--document", document, f"from 1 to {count:,}, the documents of {name}")
    bounds = [*starts.tolist(), tokens]
    return bounds[document - 1], bounds[document]


def _line_start(before: NDArray[np.int32], eos_id: int) -> int:
    """Return how many of the tokens `before` the wanted one stand before its line."""
    ends = np.flatnonzero(before == eos_id)
    return int(ends[-1]) + 1 if len(ends) else 0


def attention_by_lag(model: NextWordModel, batcher: Batcher, nearest: int | None = None) -> LagProfile:
    """Mean attention by lag over a whole split (Daniluk et al., 2017, Figure 3b); nothing but sums is held.

    Spans of several words have the lags of their last ones.

    Args:
        model: with attention.
        batcher: of the split.
        nearest: how many lags to tell apart where the window grows with the text; None: all of a window.

    Raises:
        InputError: a model that attends to nothing.
    """
    accumulator, stride = LagAccumulator(nearest), 1
    for attention, weights, slots in _rows(model, batcher):
        accumulator.update(weights, slots, attention.nearest_lag)
        stride = attention.stride
    return replace(accumulator.profile(), span=stride)


def attention_flatness(model: NextWordModel, batcher: Batcher) -> Flatness:
    """How flat attention is over a whole split, over words or over spans; nothing but sums is held.

    See `spanlm.analysis.flatness`.

    Raises:
        InputError: a model that attends to nothing, or a split in which it never has a choice.
    """
    accumulator = FlatnessAccumulator()
    for attention, weights, slots in _rows(model, batcher):
        accumulator.nearest_lag, accumulator.span = attention.nearest_lag, attention.stride
        accumulator.update(weights, slots)
    return accumulator.result()


class _Rows(NamedTuple):
    """Of a segment: `weights` (N, m) of what is attended, and how many `slots` (N,) there were to look at."""

    attention: Attention
    weights: NDArray[np.float32]
    slots: NDArray[np.int64]


def _rows(model: NextWordModel, batcher: Batcher) -> Iterator[_Rows]:
    """Read a split and give the attention of its words, segment by segment."""
    read = torch.zeros(1, dtype=torch.long)
    for scored in score(model, batcher.segments()):
        segment, attention = scored.segment, attention_of(scored.readout)
        weights = attention.weights
        # words that each stream remembers; where all are new, they may be more or fewer
        read = torch.where(segment.reset.cpu(), 0, 0 if segment.reset.all() else read)
        slots = attention.slots(read + torch.arange(len(weights)).unsqueeze(1), weights.shape[-1])
        mask = segment.mask.cpu()
        yield _Rows(attention, weights[segment.mask].float().cpu().numpy(), slots[mask].numpy())
        read = read + len(weights)
