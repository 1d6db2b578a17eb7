"""Additive attention where fewer slots were carried than the window is long, and with a slot that is always empty."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from spanlm.models.ops.attention import additive_window_attention, window_sum
from tests.models.small import assert_same, bitwise, values

# steps, carried slots, window: the triangle of a sentence, a trapezium, a window beyond everything, one of one
SHAPES = [(1, 0, 1), (5, 0, 4), (6, 0, 2), (4, 2, 5), (3, 1, 9), (5, 1, 1), (2, 3, 3), (6, 2, 4)]
BATCH, KEY, VALUE = 2, 3, 4

every_shape = pytest.mark.parametrize(
    ("steps", "carried", "window"), SHAPES, ids=["-".join(map(str, s)) for s in SHAPES]
)
with_and_without_zero_slot = pytest.mark.parametrize("zero_slot", [False, True], ids=["", "zero-slot"])


def inputs(steps: int, carried: int) -> list[Tensor]:
    """Query, keys, values and w."""
    shapes = [(steps, BATCH, KEY), (carried + steps, BATCH, KEY), (carried + steps, BATCH, VALUE), (KEY,)]
    return [values(*shape, seed=n).requires_grad_() for n, shape in enumerate(shapes)]


def filled_slots(carried: int, holes: int = 0) -> Tensor:
    return torch.tensor([not holes >> n & 1 for n in range(carried * BATCH)], dtype=torch.bool).view(carried, BATCH)


def textbook(leaves: list[Tensor], filled: Tensor, window: int, zero_slot: bool) -> tuple[Tensor, Tensor]:
    """A loop over streams, steps and lags."""
    query, keys, items, weight = leaves
    steps, carried = len(query), len(filled)
    reads = torch.zeros(steps, BATCH, VALUE, dtype=torch.float64)
    weights = torch.zeros(steps, BATCH, window, dtype=torch.float64)
    for b in range(BATCH):
        for t in range(steps):
            slots = [carried + t - lag for lag in range(1, window + 1)]
            known = {
                lag: slot for lag, slot in enumerate(slots, 1) if slot >= carried or (slot >= 0 and filled[slot, b])
            }
            each = {lag: weight.dot((keys[slot, b] + query[t, b]).tanh()).exp() for lag, slot in known.items()}
            total = sum(each.values()) + (weight.dot(query[t, b].tanh()).exp() if zero_slot else 0)
            for lag, slot in known.items():
                weights[t, b, window - lag] = each[lag] / total
                reads[t, b] = reads[t, b] + each[lag] / total * items[slot, b]
    return reads, weights


def compare(leaves: list[Tensor], filled: Tensor, window: int, zero_slot: bool) -> None:
    actual = additive_window_attention(*leaves, filled, window, zero_slot)
    expected = textbook(leaves, filled, window, zero_slot)
    assert_same(list(actual), list(expected))
    if expected[1].requires_grad:
        grads = [values(*x.shape, seed=9) for x in expected]
        found = torch.autograd.grad(actual, leaves, grads, materialize_grads=True)
        assert_same(list(found), list(torch.autograd.grad(expected, leaves, grads, materialize_grads=True)))


@every_shape
@with_and_without_zero_slot
def test_agrees_with_a_loop(steps: int, carried: int, window: int, zero_slot: bool) -> None:
    for holes in (0, 0b0110, 0b1111111):
        compare(inputs(steps, carried), filled_slots(carried, holes), window, zero_slot)


@given(steps=st.integers(1, 5), carried=st.integers(0, 4), more=st.integers(0, 4), holes=st.integers(0, 2**8 - 1))
@with_and_without_zero_slot
@settings(max_examples=25, deadline=None)
def test_any_shape_and_any_holes(zero_slot: bool, steps: int, carried: int, more: int, holes: int) -> None:
    compare(inputs(steps, carried), filled_slots(carried, holes), max(1, carried + more), zero_slot)


@every_shape
@with_and_without_zero_slot
def test_gradients(steps: int, carried: int, window: int, zero_slot: bool) -> None:
    filled = filled_slots(carried, 0b0110)
    assert gradcheck(lambda *x: additive_window_attention(*x, filled, window, zero_slot), inputs(steps, carried))


@every_shape
@with_and_without_zero_slot
def test_slots_that_were_not_carried_are_empty_slots(steps: int, carried: int, window: int, zero_slot: bool) -> None:
    """Bit by bit what it would be if they stood there and nothing in them."""
    query, keys, items, weight = inputs(steps, carried)
    missing = window - carried
    if missing <= 0:
        return
    longer = [torch.cat([torch.full((missing, BATCH, x.shape[-1]), 7.0).double(), x]) for x in (keys, items)]
    filled = filled_slots(carried, 0b10)
    known = torch.cat([filled.new_zeros(missing, BATCH), filled])
    one = additive_window_attention(query, keys, items, weight, filled, window, zero_slot)
    two = additive_window_attention(query, *longer, weight, known, window, zero_slot)
    assert bitwise(list(one), list(two))


@with_and_without_zero_slot
def test_later_steps_change_nothing_before_them(zero_slot: bool) -> None:
    """Bit by bit, in the triangle, NaN included."""
    leaves = [x.detach() for x in inputs(6, 0)]
    one = additive_window_attention(*leaves, filled_slots(0), 5, zero_slot)
    for x in leaves[:3]:
        x[3:] = torch.nan
    two = additive_window_attention(*leaves, filled_slots(0), 5, zero_slot)
    assert bitwise([x[:3] for x in two], [x[:3] for x in one])


def test_the_zero_slot_alone_takes_everything() -> None:
    reads, weights = additive_window_attention(*inputs(1, 0), filled_slots(0), 1, zero_slot=True)
    assert not reads.any() and not weights.any()


@every_shape
def test_window_sum(steps: int, carried: int, window: int) -> None:
    """Against the sum over all lags, weights where there is no slot being zero."""
    items = values(carried + steps, BATCH, VALUE).requires_grad_()
    there = torch.arange(window, 0, -1) <= (carried + torch.arange(steps))[:, None]
    weights = (values(steps, BATCH, window, seed=1) * there[:, None]).requires_grad_()
    padded = torch.cat([torch.zeros(window, BATCH, VALUE).double(), items])
    index = carried + torch.arange(steps)[:, None] + torch.arange(window)
    expected = torch.einsum("tbl,tlbd->tbd", weights, padded[index])
    actual = window_sum(weights, items)
    assert_same(actual, expected)
    grad = values(*expected.shape, seed=2)
    of_weights, of_items = torch.autograd.grad(expected, [weights, items], grad, materialize_grads=True)
    assert_same(list(torch.autograd.grad(actual, [weights, items], grad)), [of_weights * there[:, None], of_items])
    assert gradcheck(window_sum, [weights, items])
    assert window_sum(weights.detach(), items.detach()).equal(actual)


def test_narrow_types() -> None:
    """bfloat16 in, float32 within: what float32 gives for the same numbers."""
    narrow = [x.detach().bfloat16() for x in inputs(6, 2)]
    for zero_slot in (False, True):
        one = additive_window_attention(*narrow, filled_slots(2), 4, zero_slot)
        two = additive_window_attention(*(x.float() for x in narrow), filled_slots(2), 4, zero_slot)
        assert {x.dtype for x in one} == {torch.float32}
        assert bitwise(list(one), list(two))
        with torch.autocast("cpu", torch.bfloat16):
            assert bitwise(list(additive_window_attention(*narrow, filled_slots(2), 4, zero_slot)), list(two))
