"""Run a model over a text, or over a corpus, and keep where it looked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spanlm.analysis.by_lag import LagAccumulator, LagProfile
from spanlm.analysis.flatness import Flatness, FlatnessAccumulator
from spanlm.analysis.record import AttentionRecord, Expected
from spanlm.data.batching import Batcher
from spanlm.data.corpora import Corpus
from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError, require
from spanlm.evaluation.scoring import evaluating, scored_segments
from spanlm.models.ensemble import EnsembleReadout
from spanlm.models.interfaces import Attention, NextWordModel, Readout

EXPECTED = 5
"""How many of the most probable next words are kept."""
STEPS = 128
MOST_WEIGHTS = 20_000_000
"""Of one record: of a memory that holds the whole text they are as many as the square of its words."""


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


def _attention(readout: Readout) -> Attention:
    if isinstance(readout, EnsembleReadout):
        raise InputError("several models as one have no attention of their own: look into them one by one")
    if readout.attention is None:
        raise InputError(
            "this model attends to nothing: it has no attention to show. "
            "Train one with model.memory.kind=key_value (attention, key-value, key-value-predict), recurrent_memory, "
            "attentive, pointer_sentinel or span_buffer."
        )
    return readout.attention


def shifted(
    text: list[str], opened: bool, expected: int, starts: Sequence[int]
) -> tuple[list[str], list[str], list[int]]:
    """Return the words that are read, the first of them <eos> if the text is opened, and those that come next.

    The last are the positions at which nothing is predicted: before a context that is not opened.

    Raises:
        InputError: nothing would come next, or `expected`, of which only this is known, is below 1.
    """
    require(expected >= 1, "expected", expected, "at least 1")
    read = [EOS, *text] if opened else text
    require(len(read) > 1, "targets", text, f"at least {1 if opened else 2} words")
    return read[:-1], read[1:], [] if opened else [start - 1 for start in starts[1:]]


def read_parts(
    model: NextWordModel, vocabulary: Vocabulary, words: list[str], targets: list[str], starts: Sequence[int]
) -> Iterator[tuple[Readout, Tensor]]:
    """Read words some steps at a time, each of their contexts from an empty state: only these have probabilities held.

    Yields readouts of N steps and their targets (N, 1); to be used inside `evaluating`.

    Raises:
        InputError: more weights than `MOST_WEIGHTS`.
    """
    inputs, following = vocabulary.encode(words), vocabulary.encode(targets)
    for begin, end in pairwise([*starts, len(inputs)]):
        state = model.init_state(1)
        for start in range(begin, end, STEPS):
            one = slice(start, min(start + STEPS, end))
            read, came = (torch.tensor(ids[one], device=model.device).unsqueeze(1) for ids in (inputs, following))
            readout, state = model(read, state)
            yield readout, came
            attention = _attention(readout)
            held = attention.weights.shape[-1] * attention.stride
            if len(inputs) * held > MOST_WEIGHTS:
                raise InputError(
                    f"a text of {len(inputs):,} words, each with {held:,} weights or more, has too many weights: "
                    f"must be at most {MOST_WEIGHTS:,}. Attend to a part of it."
                )


def spelled(vocabulary: Vocabulary, top: torch.return_types.topk) -> list[Expected]:
    """Spell the most probable words of some steps; `top` is of log-probabilities (N, n)."""
    rows = zip(top.indices.tolist(), top.values.exp().tolist(), strict=True)
    return [[(vocabulary.word(word), chance) for word, chance in zip(*row, strict=True)] for row in rows]


def attend_words(
    model: NextWordModel,
    vocabulary: Vocabulary,
    targets: list[str],
    *,
    expected: int = EXPECTED,
    title: str = "",
    opened: bool = True,
    starts: Sequence[int] = (0,),
) -> AttentionRecord:
    """Read words, line ends among them, opened by <eos> and an empty state: as a document of a corpus is read.

    Where one of several contexts is not opened, nothing is predicted at its first word: no weights, no expected words,
    and a surprisal of NaN.

    Args:
        model: with attention.
        vocabulary: the model's; other words are read as <unk> and shown as written.
        targets: the words, at least one, or two if they are not opened.
        expected: how many of the most probable next words to keep.
        title: for captions.
        opened: <eos> opens the words; if not, the first is read and not predicted.
        starts: the index in `targets` of the first word of each context, which knows nothing of those before.

    Raises:
        InputError: `expected` below 1, too few words, a model that attends to nothing, or more weights than
            `MOST_WEIGHTS`.
    """
    words, targets, unpredicted = shifted(targets, opened, expected, starts)
    with evaluating(model):
        parts = [
            _part(model, readout, came, expected=expected)
            for readout, came in read_parts(model, vocabulary, words, targets, starts)
        ]
    weights = _joined([part.weights.float().numpy() for part in parts])
    surprisal = np.concatenate([part.surprisal.double().numpy() for part in parts])
    expecting = [row for part in parts for row in spelled(vocabulary, part.top)]
    weights[unpredicted], surprisal[unpredicted] = 0, np.nan
    for position in unpredicted:
        expecting[position] = []
    return AttentionRecord(
        words=words,
        targets=targets,
        weights=weights,
        surprisal=surprisal,
        expected=expecting,
        title=title,
        nearest_lag=parts[0].nearest_lag,
    )


def _joined(parts: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Lay rows (N, L) of attention end to end; a window that grew from part to part was empty where it was shorter."""
    widest = max(part.shape[1] for part in parts)
    return np.concatenate([np.pad(part, ((0, 0), (widest - part.shape[1], 0))) for part in parts])


class _Part(NamedTuple):
    """Some positions: weights (N, L), surprisal (N,) in nats, log-probabilities of the most probable next words."""

    weights: Tensor
    surprisal: Tensor
    top: torch.return_types.topk
    nearest_lag: int


def _part(model: NextWordModel, readout: Readout, targets: Tensor, *, expected: int) -> _Part:
    log_p = model.head.log_probs(readout)[:, 0]
    top = log_p.topk(min(expected, log_p.shape[1]), dim=1)
    attention = _attention(readout)
    return _Part(
        attention.by_lag()[:, 0].cpu(),
        -log_p.gather(1, targets).squeeze(1).cpu(),
        type(top)((top.values.cpu(), top.indices.cpu())),
        attention.nearest_lag,
    )


def check_attends(model: NextWordModel) -> None:
    """Read one word to see whether there is attention at all, before any work is done.

    Raises:
        InputError: A model that attends to nothing.
    """
    with evaluating(model):
        word = torch.zeros(1, 1, dtype=torch.long, device=model.device)
        _attention(model(word, model.init_state(1))[0])


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
    for scored in scored_segments(model, batcher.segments()):
        segment, attention = scored.segment, _attention(scored.readout)
        weights = attention.weights
        # words that each stream remembers; where all are new, they may be more or fewer
        read = torch.where(segment.reset.cpu(), 0, 0 if segment.reset.all() else read)
        slots = attention.slots(read + torch.arange(len(weights)).unsqueeze(1), weights.shape[-1])
        mask = segment.mask.cpu()
        yield _Rows(attention, weights[segment.mask].float().cpu().numpy(), slots[mask].numpy())
        read = read + len(weights)
