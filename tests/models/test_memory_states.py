"""What every registered memory promises of the state that it carries (see `spanlm.models.interfaces`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from spanlm.models.interfaces import Memory, Readout
from spanlm.models.memories import AttentiveConfig, KeyValueConfig
from spanlm.models.state import LMState, Tensors
from tests.models import small
from tests.models.contract import (
    REACH,
    READS_ONLY_WORDS,
    after_prefix,
    answer,
    every_memory,
    only,
    unbounded,
)
from tests.models.small import HIDDEN, VOCABULARY, bitwise, build, read, values

WITHOUT_SLOTS = {"log_total", "mean"}
"""Tensors of a state that have no slots, so that none of them is empty."""


def only_shown(config: Any) -> set[str]:
    """Tensors of the state that the attention follows from, but not the answer: that has its running sums."""
    return (
        {"scores", "filled"}
        if config.kind == "attentive" and config.score in ("single", "mean") and unbounded(config)
        else set()
    )


def marks_empty_slots(memory: Memory) -> bool:
    return "filled" in memory.init_state(1)


def poisoned_where_empty(state: Tensors) -> Tensors:
    """NaN in empty slots, and the word -1, which is none."""

    def poison(name: str, x: Tensor) -> Tensor:
        if x.dtype == torch.bool or name in WITHOUT_SLOTS:
            return x
        empty = ~state["filled"].view(*state["filled"].shape, *[1] * (x.dim() - 2))
        return x.masked_fill(empty, torch.nan if x.is_floating_point() else -1)

    return {name: poison(name, x) for name, x in state.items()}


def with_a_new_stream(memory: Memory, state: Tensors) -> Tensors:
    """The second of two streams is put back to its start."""
    reset = LMState({}, state).reset(torch.tensor([False, True]), LMState({}, memory.init_state(2)))
    return reset.memory


@every_memory
@pytest.mark.parametrize("steps", [1, 4, 9])
def test_state_keeps_its_shape_and_type(config: Any, steps: int) -> None:
    """Where everything is remembered, what has no slot at the start has one for each step."""
    memory = build(config, HIDDEN, VOCABULARY)
    start = state = memory.init_state(3)
    growing = {name for name, x in start.items() if len(x) == 0 and unbounded(config)}
    assert bool(growing) == unbounded(config)
    for total in (steps, steps + 2):
        _, state = read(memory, values(total - len(state[min(growing)]) if growing else steps, 3, HIDDEN), state)
        assert {name: (x.shape, x.dtype) for name, x in state.items()} == {
            name: ((total if name in growing else len(x), *x.shape[1:]), x.dtype) for name, x in start.items()
        }
    assert all(x.shape[1] == 3 for x in state.values())


@every_memory
def test_state_is_a_value(config: Any) -> None:
    """The state that goes in is left as it was, and a call leaves nothing behind on the module."""
    memory, h = build(config, HIDDEN, VOCABULARY), values(7, 2, HIDDEN)
    state = after_prefix(memory, 2)
    copy = {name: x.clone() for name, x in state.items()}
    first = read(memory, h, state)
    assert bitwise(state, copy)
    read(memory, values(3, 2, HIDDEN, seed=9), memory.init_state(2))
    second = read(memory, h, state)
    assert bitwise(first[0], second[0])
    assert bitwise(first[1], second[1])


@pytest.mark.parametrize("config", [p for p in small.memories() if REACH[p.values[0].kind](p.values[0]) > 1])
def test_every_tensor_of_the_state_is_read(config: Any) -> None:
    """(With one slot the keys cannot matter, and what a running mean weighs only once there is something beside it.)"""
    memory, h = build(config, HIDDEN, VOCABULARY), values(2, 2, HIDDEN)
    state = after_prefix(memory, 8)
    for name in state:
        other = {**state, name: torch.zeros_like(state[name])}
        one, two = read(memory, h, state)[0], read(memory, h, other)[0]
        if name in only_shown(config):
            assert bitwise(answer(two), answer(one))
            if (name, config.score) == ("scores", "mean"):
                continue  # they are zeros
            one, two = (Readout(x.attention.weights[..., :-1]) for x in (one, two))  # the last: of this segment
        assert (~torch.isclose(answer(two)[1], answer(one)[1], rtol=0, atol=1e-9)).all(), name


@only(marks_empty_slots)
@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("one_is_new", [False, True])
def test_nothing_leaks_from_empty_slots(config: Any, prefix: int, one_is_new: bool) -> None:
    memory = build(config, HIDDEN, VOCABULARY)
    h = values(3, 2, HIDDEN).requires_grad_()
    clean = after_prefix(memory, prefix)
    clean = with_a_new_stream(memory, clean) if one_is_new else clean

    def results(state: Tensors) -> list[Tensor]:
        readout, after = read(memory, h, state)
        outputs = [*small.tensors(readout), *(x for x in after.values() if x.is_floating_point())]
        loss = sum(x.square().sum() for x in outputs)
        return [*small.tensors(readout), *torch.autograd.grad(loss, [h, *memory.parameters()])]

    expected, actual = results(clean), results(poisoned_where_empty(clean))
    assert all(x.isfinite().all() for x in expected)
    assert bitwise(actual, expected)


@every_memory
def test_gradients_end_where_the_state_is_detached(config: Any) -> None:
    memory = build(config, HIDDEN, VOCABULARY)

    def gradient(detach: bool) -> Tensor:
        first = values(4, 2, HIDDEN).requires_grad_()
        _, state = read(memory, first, memory.init_state(2))
        if detach:
            state = {name: x.detach() for name, x in state.items()}
        readout, _ = read(memory, values(3, 2, HIDDEN, seed=1).requires_grad_(), state)
        (result,) = torch.autograd.grad(answer(readout).sum(), first, materialize_grads=True)
        return result

    assert not gradient(detach=True).any()
    carries_outputs = REACH[config.kind](config) > 0 and config.kind not in READS_ONLY_WORDS
    assert gradient(detach=False).any() == carries_outputs


WINDOWS = [
    *(KeyValueConfig(roles=roles, window=4) for roles in (1, 2, 3)),
    AttentiveConfig(score="single", window=4),
    AttentiveConfig(score="combined", window=4),
]


@pytest.mark.parametrize("config", WINDOWS, ids=lambda config: config.description)
def test_carried_keys_still_train_their_projection(config: Any) -> None:
    """Outputs are carried, not projections: W^Y learns even if all keys came before the segment."""
    memory = build(config, HIDDEN, VOCABULARY)
    features = read(memory, values(1, 2, HIDDEN), after_prefix(memory, 6))[0].features
    (gradient,) = torch.autograd.grad(features.sum(), memory.memory_key.weight)
    assert gradient.abs().max() > 1e-4
