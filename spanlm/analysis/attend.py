"""Run a model over a text, or over a corpus, and keep where it looked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from spanlm.analysis.by_lag import LagAccumulator, LagProfile
from spanlm.analysis.record import AttentionRecord
from spanlm.data.batching import Batcher
from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError, require
from spanlm.evaluation.scoring import evaluating, scored_segments
from spanlm.models.interfaces import Readout
from spanlm.models.language_model import LanguageModel

STEPS = 128


def _attention(readout: Readout) -> Tensor:
    if readout.attention is None:
        raise InputError(
            "this model attends to nothing: it has no attention to show. "
            "Train one with model.memory.kind=key_value (attention, key-value, key-value-predict)."
        )
    return readout.attention


def attend(
    model: LanguageModel, vocabulary: Vocabulary, lines: list[list[str]], *, expected: int, title: str
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
    require(expected >= 1, "expected", expected, "at least 1")
    targets = [word for line in lines for word in [*line, EOS]]
    if not any(lines):
        raise InputError("the text to attend to has no words; give --text or --file something to read")
    words = [EOS, *targets[:-1]]
    parts = list(_run(model, vocabulary.encode(words), vocabulary.encode(targets), expected))
    probable = [
        [(vocabulary.word(word), probability) for word, probability in zip(*row, strict=True)]
        for _, _, top in parts
        for row in zip(top.indices.tolist(), top.values.exp().tolist(), strict=True)
    ]
    return AttentionRecord(
        words=words,
        targets=targets,
        weights=np.concatenate([weights.float().numpy() for weights, _, _ in parts]),
        surprisal=np.concatenate([surprisal.double().numpy() for _, surprisal, _ in parts]),
        expected=probable,
        title=title,
    )


def _run(
    model: LanguageModel, inputs: list[int], targets: list[int], expected: int
) -> Iterator[tuple[Tensor, Tensor, torch.return_types.topk]]:
    """Weights (N, L), surprisal (N,) in nats and the most probable next words, a part of the text at a time."""
    device, state = model.embedding.weight.device, model.init_state(1)
    for start in range(0, len(inputs), STEPS):
        tokens = torch.tensor(inputs[start : start + STEPS], device=device)
        following = torch.tensor(targets[start : start + STEPS], device=device)
        with evaluating(model):
            readout, state = model(tokens.unsqueeze(1), state)
            log_p = model.head.log_probs(readout)[:, 0]
        surprisal = -log_p.gather(1, following.unsqueeze(1)).squeeze(1)
        top = log_p.topk(min(expected, log_p.shape[1]), dim=1)
        yield (
            _attention(readout)[:, 0].cpu(),
            surprisal.cpu(),
            type(top)((top.values.cpu(), top.indices.cpu())),
        )


def attention_by_lag(model: LanguageModel, batcher: Batcher) -> LagProfile:
    """Mean attention by lag over a whole split (Daniluk et al., 2017, Figure 3b); nothing but sums is held.

    Raises:
        InputError: a model that attends to nothing.
    """
    accumulator = LagAccumulator()
    for scored in scored_segments(model, batcher.segments()):
        accumulator.update(_attention(scored.readout)[scored.segment.mask].float().cpu().numpy())
    return accumulator.profile()
