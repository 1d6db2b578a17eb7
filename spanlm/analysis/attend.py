"""Run a model over a text, or over a corpus, and keep where it looked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spanlm.analysis.by_lag import LagAccumulator, LagProfile
from spanlm.analysis.flatness import Flatness, FlatnessAccumulator
from spanlm.analysis.reading import read_parts, shifted, spelled
from spanlm.analysis.record import AttentionRecord
from spanlm.data.batching import Batcher
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError
from spanlm.evaluation.scoring import evaluating, score
from spanlm.models.ensemble import EnsembleReadout
from spanlm.models.interfaces import Attention, NextWordModel, Readout

EXPECTED = 5
"""Words that are told of those that were expected next."""


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
    see = partial(_part, model, expected=expected)
    parts = read_parts(model, vocabulary.encode(words), vocabulary.encode(targets), see, _LOOKING, starts)
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


_LOOKING = ", which look back at up to {} words and more,"


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
    for scored in score(model, batcher.segments()):
        segment, attention = scored.segment, _attention(scored.readout)
        weights = attention.weights
        # words that each stream remembers; where all are new, they may be more or fewer
        read = torch.where(segment.reset.cpu(), 0, 0 if segment.reset.all() else read)
        slots = attention.slots(read + torch.arange(len(weights)).unsqueeze(1), weights.shape[-1])
        mask = segment.mask.cpu()
        yield _Rows(attention, weights[segment.mask].float().cpu().numpy(), slots[mask].numpy())
        read = read + len(weights)
