"""Reading a text from its beginning, some steps at a time, so that the probabilities of only these are held."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor

from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError, require
from spanlm.evaluation.scoring import evaluating
from spanlm.models.interfaces import NextWordModel, Readout

STEPS = 128
MOST_WEIGHTS = 20_000_000
"""Of one record: of a memory that holds the whole text they are as many as the square of its words."""

Expected = list[tuple[str, float]]
"""The most probable next words with their probabilities, best first."""


Kept = TypeVar("Kept", bound=tuple[Any, ...])
"""What is kept of some steps; the weights (N, L) come first."""


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
    model: NextWordModel,
    inputs: list[int],
    targets: list[int],
    see: Callable[[Readout, Tensor], Kept],
    looking: str,
    starts: Sequence[int],
) -> list[Kept]:
    """Read a text, each of its contexts from an empty state.

    Args:
        model: put in evaluation mode meanwhile.
        inputs: ids of the words.
        targets: ids of the words that come next.
        see: what to keep of a readout of N steps and their targets (N, 1).
        looking: how far is looked back, for an error message; {} is the number of weights of a word.
        starts: the index of the first word of each context.

    Raises:
        InputError: more weights than `MOST_WEIGHTS`.
    """
    parts: list[Kept] = []
    for begin, end in pairwise([*starts, len(inputs)]):
        state = model.init_state(1)
        for start in range(begin, end, STEPS):
            one = slice(start, min(start + STEPS, end))
            tokens, following = (torch.tensor(ids[one], device=model.device).unsqueeze(1) for ids in (inputs, targets))
            with evaluating(model):
                readout, state = model(tokens, state)
                parts.append(see(readout, following))
            held = parts[-1][0].shape[1]
            if len(inputs) * held > MOST_WEIGHTS:
                raise InputError(
                    f"a text of {len(inputs):,} words{looking.format(f'{held:,}')} has too many weights: must be at "
                    f"most {MOST_WEIGHTS:,}. Attend to a part of it."
                )
    return parts


def spelled(vocabulary: Vocabulary, top: torch.return_types.topk) -> list[Expected]:
    """Spell the most probable words of some steps; `top` is of log-probabilities (N, n)."""
    rows = zip(top.indices.tolist(), top.values.exp().tolist(), strict=True)
    return [[(vocabulary.word(word), chance) for word, chance in zip(*row, strict=True)] for row in rows]
