"""Additive window attention: against the textbook form, and its hand-written gradients checked."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from spanlm.models.ops import attention as window_attention
from spanlm.models.ops.attention import additive_window_attention, masked_softmax, window_filled
from tests.models.small import assert_same, bitwise, values

# steps, batch, window, key size, value size
SHAPES = [(1, 1, 1, 1, 1), (5, 2, 3, 3, 2), (2, 3, 7, 1, 5), (7, 1, 2, 4, 1), (3, 2, 3, 2, 3)]
FILLED = ["none", "some", "holes", "all"]

every_shape = pytest.mark.parametrize(
    ("steps", "batch", "window", "size", "value_size"), SHAPES, ids=["-".join(map(str, s)) for s in SHAPES]
)


def inputs(steps: int, batch: int, window: int, size: int, value_size: int) -> list[Tensor]:
    """Query, keys, values and w."""
    shapes = [
        (steps, batch, size),
        (window + steps, batch, size),
        (window + steps, batch, value_size),
        (size,),
    ]
    return [values(*shape, seed=n).requires_grad_() for n, shape in enumerate(shapes)]


def carried(kind: str, window: int, batch: int) -> Tensor:
    """Which carried slots hold something; "some" as in a young stream, "holes" in no order at all."""
    slot = torch.arange(window)[:, None]
    stream = torch.arange(batch)
    return {
        "none": (slot < 0) & (stream >= 0),
        "some": slot >= window - 1 - stream,
        "holes": (slot + stream) % 2 == 0,
        "all": (slot >= 0) & (stream >= 0),
    }[kind]


def textbook(query: Tensor, keys: Tensor, items: Tensor, weight: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
    """The same with every (step, stream, slot, unit) at once."""
    steps, window = len(query), len(filled)
    index = torch.arange(steps)[:, None] + torch.arange(window)
    scores = (keys[index] + query[:, None]).tanh() @ weight  # (T, L, B)
    every = torch.cat([filled, torch.ones(steps, filled.shape[1], dtype=torch.bool)])
    exponentials = torch.where(every[index], scores.exp(), 0)
    weights = exponentials / exponentials.sum(1, keepdim=True).clamp_min(1e-300)
    return torch.einsum("tlb,tlbd->tbd", weights, items[index]), weights.transpose(1, 2)


@every_shape
@pytest.mark.parametrize("kind", FILLED)
def test_agrees_with_the_textbook(steps: int, batch: int, window: int, size: int, value_size: int, kind: str) -> None:
    leaves, filled = inputs(steps, batch, window, size, value_size), carried(kind, window, batch)
    actual = additive_window_attention(*leaves, filled)
    expected = textbook(*leaves, filled)
    assert_same(list(actual), list(expected))
    grads = [values(*x.shape, seed=9) for x in expected]
    assert_same(list(torch.autograd.grad(actual, leaves, grads)), list(torch.autograd.grad(expected, leaves, grads)))


@every_shape
@pytest.mark.parametrize("kind", FILLED)
def test_gradients(steps: int, batch: int, window: int, size: int, value_size: int, kind: str) -> None:
    filled = carried(kind, window, batch)
    assert gradcheck(lambda *x: additive_window_attention(*x, filled), inputs(steps, batch, window, size, value_size))


@given(
    shape=st.tuples(*[st.integers(1, 6)] * 5),
    holes=st.integers(0, 2**36 - 1),
)
@settings(max_examples=40, deadline=None)
def test_any_shape_and_any_holes(shape: tuple[int, int, int, int, int], holes: int) -> None:
    _, batch, window, _, _ = shape
    filled = torch.tensor([holes >> n & 1 for n in range(window * batch)], dtype=torch.bool).view(window, batch)
    leaves = inputs(*shape)
    actual, expected = additive_window_attention(*leaves, filled), textbook(*leaves, filled)
    assert_same(list(actual), list(expected))
    grads = [values(*x.shape, seed=9) for x in expected]
    assert_same(list(torch.autograd.grad(actual, leaves, grads)), list(torch.autograd.grad(expected, leaves, grads)))


def test_last_key_and_value_are_never_read() -> None:
    """They are the current step's: every query looks at what came before it."""
    query, keys, items, weight = inputs(4, 2, 3, 3, 2)
    filled = carried("all", 3, 2)
    results = additive_window_attention(query, keys, items, weight, filled)
    gradients = torch.autograd.grad(sum(x.sum() for x in results), [keys, items])
    assert not any(g[-1].any() for g in gradients)
    poisoned = [x.detach().clone() for x in (keys, items)]
    for x in poisoned:
        x[-1] = torch.nan
    assert bitwise(list(additive_window_attention(query, *poisoned, weight, filled)), list(results))


def test_nothing_to_read_reads_zero() -> None:
    leaves = inputs(1, 2, 3, 3, 2)
    read, weights = additive_window_attention(*leaves, carried("none", 3, 2))
    assert not read.any()
    assert not weights.any()


def test_large_scores_do_not_overflow() -> None:
    query, keys, items, weight = inputs(4, 2, 3, 3, 2)
    read, weights = additive_window_attention(query, 100 * keys, items, 1e4 * weight, carried("some", 3, 2))
    assert read.isfinite().all()
    sums = weights.sum(-1)
    torch.testing.assert_close(sums, (sums > 0).double())


def test_inputs_need_not_be_contiguous() -> None:
    query, keys, items, weight = inputs(5, 2, 3, 4, 4)
    filled = carried("holes", 3, 2)

    def results(change: bool) -> list[Tensor]:
        def lay_out(x: Tensor) -> Tensor:
            return x.movedim(0, -1).contiguous().movedim(-1, 0) if change else x

        read, weights = additive_window_attention(*map(lay_out, (query, keys, items)), weight, filled)
        loss = lay_out(read).expand(2, *read.shape).sum() + weights.flip(-1).square().sum()
        return [read, weights, *torch.autograd.grad(loss, [query, keys, items, weight])]

    assert_same(results(change=True), results(change=False))


@pytest.mark.parametrize("index", range(4))
def test_only_what_needs_a_gradient_gets_one(index: int) -> None:
    leaves, filled = inputs(4, 2, 3, 3, 2), carried("some", 3, 2)
    expected = torch.autograd.grad(additive_window_attention(*leaves, filled)[0].sum(), leaves)[index]
    alone = [x.detach().requires_grad_(n == index) for n, x in enumerate(leaves)]
    (actual,) = torch.autograd.grad(additive_window_attention(*alone, filled)[0].sum(), [alone[index]])
    assert torch.equal(actual, expected)


def test_float32_is_float64_but_for_rounding() -> None:
    leaves, filled = inputs(6, 3, 4, 8, 5), carried("some", 4, 3)
    narrow = [x.detach().float().requires_grad_() for x in leaves]
    wide_results = additive_window_attention(*leaves, filled)
    narrow_results = additive_window_attention(*narrow, filled)
    grads = [values(*x.shape, seed=9) for x in wide_results]
    wide = [*wide_results, *torch.autograd.grad(wide_results, leaves, grads)]
    close = [*narrow_results, *torch.autograd.grad(narrow_results, narrow, [g.float() for g in grads])]
    assert {x.dtype for x in close} == {torch.float32}
    torch.testing.assert_close([x.double() for x in close], wide, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backward_inside", [False, True])
def test_autocast_does_not_touch_it(backward_inside: bool) -> None:
    """Forward and backward are float32 under autocast, to the last bit, wherever backward is called from."""
    filled = carried("some", 4, 3)

    def results(forward: bool, backward: bool) -> list[Tensor]:
        leaves = [x.detach().float().requires_grad_() for x in inputs(6, 3, 4, 8, 5)]
        with torch.autocast("cpu", torch.bfloat16, enabled=forward):
            outputs = additive_window_attention(*leaves, filled)
            loss = sum((x * values(*x.shape, seed=3).float()).sum() for x in outputs)
        with torch.autocast("cpu", torch.bfloat16, enabled=backward):
            return [*outputs, *torch.autograd.grad(loss, leaves)]

    assert bitwise(results(True, backward_inside), results(False, False))


def test_narrow_inputs_are_widened() -> None:
    leaves, filled = inputs(6, 3, 4, 8, 5), carried("some", 4, 3)
    narrow = [x.detach().bfloat16().requires_grad_() for x in leaves]
    wide = [x.detach().float().requires_grad_() for x in narrow]
    results = additive_window_attention(*narrow, filled)
    expected = additive_window_attention(*wide, filled)
    assert bitwise(list(results), list(expected))
    gradients = torch.autograd.grad(results[0].sum(), narrow)
    assert bitwise(list(gradients), [g.bfloat16() for g in torch.autograd.grad(expected[0].sum(), wide)])


def test_what_no_gradient_needs_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """In evaluation, too, the weights are parameters; every slice goes over the one before."""
    leaves, filled, kept = inputs(4, 2, 3, 3, 2), carried("some", 3, 2), list[bool]()
    real = window_attention._sigmoid

    def spied(query: Tensor, keys: Tensor, room: Tensor | None) -> Tensor:
        kept.append(room is None)
        return real(query, keys, room)

    monkeypatch.setattr(window_attention, "_sigmoid", spied)
    read, _ = additive_window_attention(*leaves, filled)
    assert all(kept)
    kept.clear()
    with torch.no_grad():
        again, _ = additive_window_attention(*leaves, filled)
    assert kept
    assert not any(kept)
    assert torch.equal(read, again)


def test_window_filled_slides() -> None:
    filled = torch.tensor([[False, True], [False, False], [True, True]])
    expected = [[[0, 0, 1], [1, 0, 1]], [[0, 1, 1], [0, 1, 1]], [[1, 1, 1], [1, 1, 1]]]
    assert window_filled(filled, 3, 3).int().tolist() == expected


def test_window_filled_with_the_current_step() -> None:
    filled = torch.tensor([[False, True], [True, False]])
    expected = [[[0, 1, 1], [1, 0, 1]], [[1, 1, 1], [0, 1, 1]]]
    assert window_filled(filled, 2, 3).int().tolist() == expected
    assert window_filled(filled[:0], 2, 1).int().tolist() == [[[1], [1]], [[1], [1]]]


def test_masked_softmax_ignores_what_is_masked() -> None:
    scores = torch.tensor([[1.0, torch.nan, 1.0], [torch.nan, torch.inf, torch.nan], [2.0, 5.0, 0.0]])
    filled = torch.tensor([[True, False, True], [False, False, False], [False, True, False]])
    expected = torch.tensor([[0.5, 0.0, 0.5], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert torch.equal(masked_softmax(scores, filled), expected)
