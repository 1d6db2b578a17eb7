"""The pointer sentinel against its loop: weights, gates, mixtures, states, gradients, in float64; and a whole model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from spanlm.models.heads import SoftmaxConfig
from spanlm.models.memories import PointerSentinelConfig
from spanlm.models.memories.pointer_sentinel import PointerSentinelMemory
from tests import reference
from tests.models.small import VOCABULARY, assert_same, build, values, words
from tests.models.twins import gradients, past_outputs, slots

SIZE = 3
SHAPES = [(1, 1, 1), (1, 3, 4), (7, 2, 3), (5, 3, 9), (6, 1, 1), (4, 2, 4), (2, 1, 5)]


def sentinel(memory: PointerSentinelMemory) -> reference.Sentinel:
    return reference.Sentinel(memory.query.weight, memory.query.bias, memory.sentinel)


def past_states(kind: str, capacity: int, batch: int) -> reference.PastWords:
    """States and the words read there; few words, so that some stand in the window more than once."""
    outputs = past_outputs(kind, capacity, batch, SIZE)
    return [
        list(zip(stream, words(len(stream), seed=b, size=4).tolist(), strict=True)) for b, stream in enumerate(outputs)
    ]


def state_of(past: reference.PastWords, length: int, key: float, word: int) -> dict[str, Tensor]:
    """What is remembered stands at the end; `key` and `word` in the slots before it."""
    states = [[state for state, _ in stream] for stream in past]
    read = [[torch.tensor(word) for _, word in stream] for stream in past]
    yes = torch.ones((), dtype=torch.bool)
    if not length:
        return {
            "keys": torch.zeros(0, len(past), SIZE, dtype=torch.float64),
            "words": torch.zeros(0, len(past), dtype=torch.int64),
            "filled": torch.zeros(0, len(past), dtype=torch.bool),
        }
    return {
        "keys": slots(states, length, lambda x: x, torch.full((SIZE,), key, dtype=torch.float64)),
        "words": slots(read, length, lambda x: x, torch.tensor(word)),
        "filled": slots(states, length, lambda _: yes, ~yes),
    }


@pytest.mark.parametrize("carried", ["fresh", "partial", "full"])
@pytest.mark.parametrize(("steps", "batch", "window"), SHAPES, ids=str)
def test_pointer_sentinel(steps: int, batch: int, window: int, carried: str) -> None:
    memory = build(PointerSentinelConfig(window=window), SIZE, VOCABULARY)
    head = build(SoftmaxConfig(), SIZE, torch.nn.Embedding(VOCABULARY, 9))
    h = values(steps, batch, SIZE, seed=7).requires_grad_()
    tokens, targets = words(steps, batch, seed=8, size=4), words(steps, batch, seed=9)
    past = past_states(carried, window - 1, batch)
    leaves = [h, *memory.parameters(), *head.parameters(), *[x for stream in past for x, _ in stream]]

    readout, after = memory(h, tokens, state_of(past, window - 1, torch.nan, -1))
    weights, gates, copies, remembered = reference.pointer_sentinel(h, tokens, past, window, sentinel(memory))
    every = reference.mixture(reference.linear_softmax(h, head.weight, head.bias), gates, copies)

    assert readout.attention.nearest_lag == 0
    assert readout.features is h
    state = state_of(remembered, window - 1, 0, 0)
    filled = after["filled"]
    assert torch.equal(filled, state["filled"])
    assert torch.equal(torch.where(filled, after["words"], 0), state["words"])
    actual = [readout.attention.weights, readout.mixture.log_gate.exp(), head.log_probs(readout)]
    actual += [head.log_prob(readout, targets), torch.where(filled[..., None], after["keys"], 0)]
    expected = [weights, gates, every, every.gather(-1, targets[..., None]).squeeze(-1), state["keys"]]
    assert_same(actual, expected)
    assert_same(gradients(actual, leaves), gradients(expected, leaves))
