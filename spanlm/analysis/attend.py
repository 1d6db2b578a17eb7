"""Run a model over a text, or over a corpus, and keep where it looked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spanlm.analysis.by_lag import LagAccumulator, LagProfile
from spanlm.analysis.flatness import Flatness, FlatnessAccumulator
from spanlm.analysis.record import AttentionRecord
from spanlm.data.batching import Batcher
from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError, require
from spanlm.evaluation.scoring import evaluating, scored_segments
from spanlm.models.interfaces import Readout
from spanlm.models.next_word_model import NextWordModel

STEPS = 128
MOST_WEIGHTS = 20_000_000
"""Of one record: of a memory that holds the whole text they are as many as the square of its words."""


def _attention(readout: Readout) -> Tensor:
    if readout.members:
        raise InputError("several models as one have no attention of their own: look into them one by one")
    if readout.attention is None:
        raise InputError(
            "this model attends to nothing: it has no attention to show. "
            "Train one with model.memory.kind=key_value (attention, key-value, key-value-predict), recurrent_memory, "
            "attentive or pointer_sentinel."
        )
    return readout.attention


def attend(
    model: NextWordModel, vocabulary: Vocabulary, lines: list[list[str]], *, expected: int, title: str
) -> AttentionRecord:
    """Read lines of words, each closed by <eos>, the state carried over them.

    Args:
        model: with attention.
        vocabulary: the model's; other words are read as <unk> and shown as written.
        lines: the text.
        expected: how many of the most probable next words to keep.
        title: for captions.

    Raises:
        InputError: no words, `expected` below 1, or a model that attends to nothing.
    """
    if not any(lines):
        raise InputError("the text to attend to has no words; give --text or --file something to read")
    targets = [word for line in lines for word in [*line, EOS]]
    return attend_words(model, vocabulary, targets, expected=expected, title=title)


def attend_words(
    model: NextWordModel, vocabulary: Vocabulary, targets: list[str], *, expected: int = 5, title: str = ""
) -> AttentionRecord:
    """Read words, line ends among them, opened by <eos> and an empty state: as a document of a corpus is read.

    Args:
        model: with attention.
        vocabulary: the model's; other words are read as <unk> and shown as written.
        targets: the words, at least one.
        expected: how many of the most probable next words to keep.
        title: for captions.

    Raises:
        InputError: `expected` below 1, a model that attends to nothing, or more weights than `MOST_WEIGHTS`.
    """
    require(expected >= 1, "expected", expected, "at least 1")
    words = [EOS, *targets[:-1]]
    parts = list(_run(model, vocabulary.encode(words), vocabulary.encode(targets), expected))
    probable = [
        [(vocabulary.word(word), probability) for word, probability in zip(*row, strict=True)]
        for part in parts
        for row in zip(part.top.indices.tolist(), part.top.values.exp().tolist(), strict=True)
    ]
    return AttentionRecord(
        words=words,
        targets=targets,
        weights=_joined([part.weights.float().numpy() for part in parts]),
        surprisal=np.concatenate([part.surprisal.double().numpy() for part in parts]),
        expected=probable,
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


def _run(model: NextWordModel, inputs: list[int], targets: list[int], expected: int) -> Iterator[_Part]:
    """Read a text part by part, so that only (STEPS, V) probabilities are held."""
    device, state = model.device, model.init_state(1)
    for start in range(0, len(inputs), STEPS):
        tokens = torch.tensor(inputs[start : start + STEPS], device=device)
        following = torch.tensor(targets[start : start + STEPS], device=device)
        with evaluating(model):
            readout, state = model(tokens.unsqueeze(1), state)
            log_p = model.head.log_probs(readout)[:, 0]
        attention = _attention(readout)[:, 0].cpu()
        if len(inputs) * attention.shape[1] > MOST_WEIGHTS:
            raise InputError(
                f"a text of {len(inputs):,} words, which look back at up to {attention.shape[1]:,} words and more, has "
                f"too many weights: must be at most {MOST_WEIGHTS:,}. Attend to a part of it."
            )
        surprisal = -log_p.gather(1, following.unsqueeze(1)).squeeze(1)
        top = log_p.topk(min(expected, log_p.shape[1]), dim=1)
        yield _Part(
            attention,
            surprisal.cpu(),
            type(top)((top.values.cpu(), top.indices.cpu())),
            readout.nearest_lag,
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

    Args:
        model: with attention.
        batcher: of the split.
        nearest: how many lags to tell apart where the window grows with the text; None: all of a window.

    Raises:
        InputError: a model that attends to nothing.
    """
    accumulator = LagAccumulator(nearest)
    for scored in scored_segments(model, batcher.segments()):
        weights = _attention(scored.readout)[scored.segment.mask].float().cpu().numpy()
        accumulator.update(weights, scored.readout.nearest_lag)
    return accumulator.profile()


def attention_flatness(model: NextWordModel, batcher: Batcher) -> Flatness:
    """How flat attention is over a whole split; nothing but sums is held. See `spanlm.analysis.flatness`.

    Raises:
        InputError: a model that attends to nothing, or a split in which it never has a choice.
    """
    accumulator, read = FlatnessAccumulator(), torch.zeros(1, dtype=torch.long)
    for scored in scored_segments(model, batcher.segments()):
        segment, weights = scored.segment, _attention(scored.readout)
        read = torch.where(segment.reset.cpu(), 0, read)  # words that each stream remembers
        accumulator.nearest_lag = scored.readout.nearest_lag
        steps = torch.arange(len(weights)).unsqueeze(1)
        slots = (read + steps + 1 - accumulator.nearest_lag).clamp(0, weights.shape[-1])
        mask = segment.mask.cpu()
        accumulator.update(weights[segment.mask].float().cpu().numpy(), slots[mask].numpy())
        read = read + len(weights)
    return accumulator.result()
