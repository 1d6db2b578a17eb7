"""`LMState` is a value: every operation gives a new one and leaves the old as it was."""

from __future__ import annotations

import pytest
import torch

from spanlm.models.interfaces import LMState
from spanlm.models.language_model import ModelConfig
from tests.models import small
from tests.models.small import assert_same, bitwise, language_model, words

every_model = pytest.mark.parametrize("config", small.models())


def carried(config: ModelConfig, batch: int = 4) -> LMState:
    model = language_model(config)
    return model(words(3, batch), model.init_state(batch))[1]


@every_model
def test_select_takes_and_repeats_streams(config: ModelConfig) -> None:
    model = language_model(config)
    state = carried(config)
    index = torch.tensor([2, 0, 0, 3, 2])
    chosen = state.select(index)
    assert bitwise(chosen, state.map(lambda x: x[:, index]))
    tokens = words(4, 4, seed=1)
    whole, end = model(tokens, state)
    some, some_end = model(tokens[:, index], chosen)
    assert_same(some, [x[:, index] for x in small.tensors(whole)])
    assert_same(some_end, end.select(index))


@every_model
def test_reset_touches_only_the_marked_streams(config: ModelConfig) -> None:
    """A state that has grown keeps its slots: those that the initial one does not have become empty."""
    state = carried(config)
    before = state.map(torch.clone)
    initial = language_model(config).init_state(4)
    for mask in torch.tensor([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]]).bool():
        result = state.reset(mask, initial)
        for fresh, x in zip(small.tensors(initial), small.tensors(result), strict=True):
            older = len(x) - len(fresh)
            assert torch.equal(x[older:, mask], fresh[:, mask])
            assert not x[:older, mask].any()
        assert (result is initial) == mask.all()
        if result is not initial:
            kept = [[x[:, ~mask] for x in small.tensors(one)] for one in (result, state)]
            assert bitwise(*kept)
        assert bitwise(state, before)


@every_model
def test_streams_of_other_lengths_stand_side_by_side(config: ModelConfig) -> None:
    """Each goes on as if it were alone; what one has grown less is empty."""
    model = language_model(config)
    lengths, tokens = (5, 0, 3), words(4, 3, seed=1)
    states = [model(words(n, 1, seed=n), model.init_state(1))[1] if n else model.init_state(1) for n in lengths]
    beside = LMState.beside(states)
    assert bitwise(LMState.beside(states[:1]), states[0])
    whole, end = model(tokens, beside)
    for b, state in enumerate(states):
        alone, end_alone = model(tokens[:, b : b + 1], state)
        assert_same(whole.features[:, b : b + 1], alone.features)
        if alone.attention is not None:
            # the nearest step is the last column, however far back the others reach
            every, one = whole.attention.weights, alone.attention.weights
            assert_same(every[:, b : b + 1, -one.shape[-1] :], one)
        kept = [x[len(x) - len(y) :, b : b + 1] for x, y in zip(*map(small.tensors, (end, end_alone)), strict=True)]
        assert_same(kept, small.tensors(end_alone))
