"""Attention over spans that stand apart: against every (step, stream, span) at once; what it holds; its gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from spanlm.models.memories.span_buffer.attention import FixedGrid, Grid, SlidingGrid, span_attention, spans
from spanlm.models.ops import attention as window_attention
from tests.models.largest import Largest
from tests.models.small import assert_same, bitwise, values

HIDDEN, SIZE = 5, 7
Make = Callable[[int, int, int, int], Grid]


def fixed(stride: int, count: int, steps: int, batch: int) -> FixedGrid:
    """Each stream is at another place in its block."""
    return FixedGrid(stride, count, steps, torch.arange(batch) % stride)


def sliding(stride: int, count: int, steps: int, batch: int) -> SlidingGrid:
    return SlidingGrid(stride, count, steps)


both_grids = pytest.mark.parametrize("make", [sliding, fixed])


def inputs(grid: Grid, stride: int, steps: int, offset: int, batch: int) -> list[Tensor]:
    """Query, states, the projection of spans and w."""
    carried = type(grid).carried(stride, grid.count, offset)  # type: ignore[attr-defined]
    shapes = [(steps, batch, SIZE), (carried + steps, batch, HIDDEN), (HIDDEN, SIZE), (SIZE,)]
    return [values(*shape, seed=n).requires_grad_() for n, shape in enumerate(shapes)]


def attend(leaves: list[Tensor], filled: Tensor, offset: int, grid: Grid, asked: bool = True) -> list[Tensor]:
    query, states, projection, weight = leaves
    held, there = spans(states, filled, offset, grid)
    return list(span_attention(query if asked else None, held @ projection, held, weight, there, grid))


def textbook(leaves: list[Tensor], filled: Tensor, offset: int, grid: Grid, asked: bool = True) -> list[Tensor]:
    """The same with an index of every span's end."""
    query, states, projection, weight = leaves
    steps, batch, _ = query.shape
    now = len(states) - steps + torch.arange(steps)
    ends = now[:, None, None] - grid.lags().expand(steps, batch, -1)  # (T, B, m)
    streams = torch.arange(batch)[:, None]
    held = states[ends, streams] - states[ends - offset, streams] if offset else states[ends, streams]
    inner = held @ projection
    scores = (inner + query[:, :, None]).tanh() @ weight if asked else inner @ weight
    there = filled[ends - offset, streams]
    exponentials = torch.where(there, scores.exp(), 0)
    weights = exponentials / exponentials.sum(-1, keepdim=True).clamp_min(1e-300)
    return [torch.einsum("tbm,tbmh->tbh", weights, held), weights, there[..., -1]]


def young(length: int, steps: int, batch: int) -> Tensor:
    """(length, batch): stream b has read 3 b steps before these."""
    return torch.arange(length)[:, None] >= length - steps - 3 * torch.arange(batch)


def compare(make: Make, stride: int, count: int, steps: int, batch: int, offset: int, asked: bool) -> None:
    grid = make(stride, count, steps, batch)
    leaves = inputs(grid, stride, steps, offset, batch)
    if not asked:
        leaves[0] = leaves[0].detach()
    filled = young(len(leaves[1]), steps, batch)
    actual, expected = (f(leaves, filled, offset, grid, asked) for f in (attend, textbook))
    assert torch.equal(actual.pop(), expected.pop())
    assert_same(actual, expected)
    if expected[0].requires_grad:
        grads = [values(*x.shape, seed=9) for x in expected]
        wanted = [x for x in leaves if x.requires_grad]
        found, right = (torch.autograd.grad(x, wanted, grads, materialize_grads=True) for x in (actual, expected))
        assert_same(list(found), list(right))


@both_grids
@given(
    stride=st.integers(1, 5),
    count=st.integers(1, 5),
    steps=st.integers(1, 12),
    batch=st.integers(1, 4),
    more=st.integers(0, 1),
    asked=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_shape(make: Make, stride: int, count: int, steps: int, batch: int, more: int, asked: bool) -> None:
    compare(make, stride, count, steps, batch, stride - 1 + more, asked)


@both_grids
@pytest.mark.parametrize(("steps", "stride"), [(1, 3), (2, 3), (7, 2)], ids=str)
def test_gradients(make: Make, steps: int, stride: int) -> None:
    grid = make(stride, 3, steps, 2)
    leaves = inputs(grid, stride, steps, stride, 2)
    filled = young(len(leaves[1]), steps, 2)
    assert gradcheck(lambda *x: tuple(attend(list(x), filled, stride, grid)[:2]), leaves)


@pytest.mark.parametrize("kept", [0, 2**25], ids=["made again", "kept"])
@pytest.mark.parametrize("slice_elements", [0, 2**20], ids=["by lag", "by query"])
def test_every_way_of_the_loop_is_the_same(monkeypatch: pytest.MonkeyPatch, kept: int, slice_elements: int) -> None:
    monkeypatch.setattr(window_attention, "KEPT_ELEMENTS", kept)
    monkeypatch.setattr(window_attention, "_SLICE_ELEMENTS", slice_elements)
    for steps, count in ((1, 4), (5, 4), (9, 2), (30, 3)):
        compare(sliding, 3, count, steps, 2, 2, True)


@both_grids
def test_steps_and_back(make: Make) -> None:
    for steps in range(1, 9):
        grid, x = make(3, 2, steps, 4), values(steps, 4, HIDDEN)
        assert torch.equal(grid.in_steps(grid.of_steps(x)), x)


@pytest.mark.parametrize(("steps", "phases"), [(1, 1), (3, 3), (4, 4), (9, 4)])
def test_a_short_segment_touches_the_spans_of_its_own_phases(steps: int, phases: int) -> None:
    grid = SlidingGrid(4, 2, steps)
    states = values(SlidingGrid.carried(4, 2, 3) + steps, 3, HIDDEN)
    held, there = spans(states, torch.ones(states.shape[:2], dtype=torch.bool), 3, grid)
    assert held.shape[1:] == (phases * 3, HIDDEN) and there.shape == held.shape[:2]


@both_grids
@pytest.mark.parametrize("steps", [3, 200])
def test_nothing_of_every_span_at_every_step_is_ever_held(
    make: Make, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forward and backward: the spans themselves, once a phase where the grid is fixed, and the T·B·m weights."""
    monkeypatch.setattr(window_attention, "KEPT_ELEMENTS", 0)
    stride, count, batch = 4, 40, 2
    grid = make(stride, count, steps, batch)
    leaves = inputs(grid, stride, steps, stride - 1, batch)
    filled = torch.ones(leaves[1].shape[:2], dtype=torch.bool)
    saved: list[int] = []

    def note(x: Tensor) -> Tensor:
        saved.append(x.numel())
        return x

    with Largest() as largest, torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        sum(x.sum() for x in attend(leaves, filled, stride - 1, grid)[:2]).backward()
    once = stride * (count + 2 + -(-steps // stride)) * batch * SIZE
    padded = stride * (1 + -(-steps // stride)) * batch * count
    assert largest.elements <= max(once, 2 * padded)
    if steps > stride:
        everything = steps * batch * count * SIZE
        assert largest.elements < everything / 3
        assert sum(saved) < 1.5 * everything  # what a fixed grid repeats is a third of it


def test_large_scores_do_not_overflow() -> None:
    grid = SlidingGrid(2, 3, 5)
    leaves = inputs(grid, 2, 5, 1, 2)
    read, weights, there = attend([*leaves[:2], 100 * leaves[2], 1e4 * leaves[3]], young(11, 5, 2), 1, grid)
    assert read.isfinite().all()
    torch.testing.assert_close(weights.sum(-1), there.double())


@pytest.mark.parametrize("asked", [True, False])
def test_autocast_does_not_touch_it(asked: bool) -> None:
    grid = SlidingGrid(2, 3, 5)

    def results(enabled: bool) -> list[Tensor]:
        query, states, projection, weight = (x.detach().float() for x in inputs(grid, 2, 5, 1, 2))
        held, there = spans(states, young(11, 5, 2), 1, grid)
        keys = (held @ projection).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            read, weights, _ = span_attention(query if asked else None, keys, held, weight, there, grid)
        return [read, weights, *torch.autograd.grad(read.square().sum(), keys)]

    assert bitwise(results(True), results(False))
