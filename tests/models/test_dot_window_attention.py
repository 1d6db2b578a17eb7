"""Dot-product window attention: against the textbook form, whatever the blocks, bit by bit causal."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spanlm.models.ops import attention as module
from spanlm.models.ops.attention import dot_window_attention
from tests.models.small import assert_same, bitwise, values

# steps, batch, window, key size, value size
SHAPES = [(1, 1, 1, 1, 1), (5, 2, 3, 3, 2), (2, 3, 7, 1, 5), (7, 1, 2, 4, 1), (4, 2, 1, 2, 3)]
FILLED = ["none", "some", "holes", "all"]

every_shape = pytest.mark.parametrize("shape", SHAPES, ids=["-".join(map(str, s)) for s in SHAPES])


def inputs(shape: tuple[int, ...], lags: bool = True) -> list[Tensor]:
    """Query, keys, values, and with `lags` the rows of the lags."""
    steps, batch, window, size, value_size = shape
    shapes = [(steps, batch, size), (window - 1 + steps, batch, size), (window - 1 + steps, batch, value_size)]
    shapes += [(window, size), (window, value_size)] if lags else []
    return [values(*s, seed=n).requires_grad_() for n, s in enumerate(shapes)]


def carried(kind: str, slots: int, batch: int) -> Tensor:
    """Which of the carried slots hold something; "some" as in a young stream, "holes" in no order at all."""
    slot, stream = torch.arange(slots)[:, None], torch.arange(batch)
    return {
        "none": (slot < 0) & (stream >= 0),
        "some": slot >= slots - 1 - stream,
        "holes": (slot + stream) % 2 == 0,
        "all": (slot >= 0) & (stream >= 0),
    }[kind]


def attend(leaves: list[Tensor], filled: Tensor) -> tuple[Tensor, Tensor]:
    query, keys, items, *lags = leaves
    return dot_window_attention(query, keys, items, filled, *lags)


def textbook(leaves: list[Tensor], filled: Tensor) -> tuple[Tensor, Tensor]:
    """The same with every (step, slot, stream, unit) at once, the lags' rows added to every slot."""
    query, keys, items, *lags = leaves
    steps, window = len(query), len(filled) + 1
    index = torch.arange(steps)[:, None] + torch.arange(window)
    key, item = keys[index], items[index]  # (T, L, B, ·)
    if lags:
        key, item = key + lags[0][:, None], item + lags[1][:, None]
    scores = (key * query[:, None]).sum(-1)
    every = torch.cat([filled, torch.ones(steps, filled.shape[1], dtype=torch.bool)])
    exponentials = torch.where(every[index], scores.exp(), 0)
    weights = exponentials / exponentials.sum(1, keepdim=True)
    return torch.einsum("tlb,tlbd->tbd", weights, item), weights.transpose(1, 2)


def assert_agrees(leaves: list[Tensor], filled: Tensor) -> None:
    actual, expected = attend(leaves, filled), textbook(leaves, filled)
    assert_same(list(actual), list(expected))
    grads = [values(*x.shape, seed=9) for x in expected]
    assert_same(list(torch.autograd.grad(actual, leaves, grads)), list(torch.autograd.grad(expected, leaves, grads)))


@every_shape
@pytest.mark.parametrize("kind", FILLED)
@pytest.mark.parametrize("lags", [True, False])
def test_agrees_with_the_textbook(shape: tuple[int, ...], kind: str, lags: bool) -> None:
    assert_agrees(inputs(shape, lags), carried(kind, shape[2] - 1, shape[1]))


@given(shape=st.tuples(*[st.integers(1, 6)] * 5), holes=st.integers(0, 2**30 - 1))
@settings(max_examples=25, deadline=None)
def test_any_shape_and_any_holes(shape: tuple[int, ...], holes: int) -> None:
    slots, batch = shape[2] - 1, shape[1]
    bits = [holes >> n & 1 for n in range(slots * batch)]
    assert_agrees(inputs(shape), torch.tensor(bits, dtype=torch.bool).view(slots, batch))


@pytest.mark.parametrize("window", [1, 2, 4])
@pytest.mark.parametrize("steps", [1, 3, 4, 5, 8, 11])
def test_long_segments_go_block_by_block(steps: int, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (steps, 2, window, 3, 2)
    leaves, filled = inputs(shape), carried("some", window - 1, 2)
    for block in (1, 3, 4):
        monkeypatch.setattr(module, "LEAST_BLOCK", block)
        assert_agrees(leaves, filled)


def test_a_segment_longer_than_a_block() -> None:
    shape = (2 * module.LEAST_BLOCK + 5, 1, 3, 2, 2)
    assert_agrees(inputs(shape), carried("none", 2, 1))


@pytest.mark.parametrize("block", [2, 100])
@pytest.mark.parametrize("last", range(6))
def test_later_steps_change_nothing_before_them(last: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_BLOCK", block)
    window, filled = 3, carried("some", 2, 2)
    leaves = inputs((7, 2, window, 4, 3))
    other = [x.detach().clone() for x in leaves]
    other[0][last + 1 :] = 7.5
    for x in other[1:3]:
        x[last + window :] = -3.25
    one, two = attend(leaves, filled), attend(other, filled)
    assert bitwise([x[: last + 1] for x in one], [x[: last + 1] for x in two])
    assert not torch.equal(one[1][last + 1], two[1][last + 1])


def test_a_window_of_one_is_the_current_step() -> None:
    query, keys, items, *_ = inputs((4, 2, 1, 3, 2))
    read, weights = dot_window_attention(query, keys, items, carried("none", 0, 2))
    assert torch.equal(weights, torch.ones(4, 2, 1, dtype=torch.float64))
    assert torch.equal(read, items)


def test_what_stands_in_empty_slots_is_not_read() -> None:
    leaves, filled = inputs((4, 2, 4, 3, 2)), carried("some", 3, 2)
    other = [x.detach().clone() for x in leaves]
    for x in other[1:3]:
        x[:3] = torch.where(filled[..., None], x[:3], 1e6)
    assert bitwise(list(attend(other, filled)), list(attend(leaves, filled)))


def test_large_scores_do_not_overflow() -> None:
    query, keys, items, *lags = inputs((4, 2, 3, 3, 2))
    read, weights = attend([1e4 * query, 1e4 * keys, items, *lags], carried("some", 2, 2))
    assert read.isfinite().all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, 2, dtype=torch.float64))


def test_inputs_need_not_be_contiguous() -> None:
    leaves, filled = inputs((5, 2, 3, 4, 4)), carried("holes", 2, 2)

    def results(change: bool) -> list[Tensor]:
        def lay_out(x: Tensor) -> Tensor:
            return x.movedim(0, -1).contiguous().movedim(-1, 0) if change else x

        read, weights = attend([lay_out(x) for x in leaves], filled)
        loss = lay_out(read).expand(2, *read.shape).sum() + weights.flip(-1).square().sum()
        return [read, weights, *torch.autograd.grad(loss, leaves)]

    assert_same(results(change=True), results(change=False))


def test_float32_is_float64_but_for_rounding() -> None:
    leaves, filled = inputs((6, 3, 4, 8, 5)), carried("some", 3, 3)
    narrow = [x.detach().float().requires_grad_() for x in leaves]
    wide, close = attend(leaves, filled), attend(narrow, filled)
    assert {x.dtype for x in close} == {torch.float32}
    torch.testing.assert_close([x.double() for x in close], list(wide), rtol=1e-5, atol=1e-5)


def test_autocast_does_not_touch_it() -> None:
    """Forward and backward are float32 to the last bit, whatever the autocast around the call."""
    filled = carried("some", 3, 3)

    def results(autocast: bool) -> list[Tensor]:
        leaves = [x.detach().float().requires_grad_() for x in inputs((6, 3, 4, 8, 5))]
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            outputs = attend(leaves, filled)
        loss = sum((x * values(*x.shape, seed=3).float()).sum() for x in outputs)
        return [*outputs, *torch.autograd.grad(loss, leaves)]

    assert bitwise(results(True), results(False))


def test_narrow_inputs_are_widened() -> None:
    leaves, filled = inputs((6, 3, 4, 8, 5)), carried("some", 3, 3)
    narrow: list[Any] = [x.detach().bfloat16() for x in leaves]
    wide = [x.float() for x in narrow]
    assert bitwise(list(attend([*narrow[:3], *wide[3:]], filled)), list(attend(wide, filled)))
