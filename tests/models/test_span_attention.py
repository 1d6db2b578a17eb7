"""Attention over spans that stand apart: against every (step, stream, span) at once; what it holds; its gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from spanlm.models.memories.span_buffer.attention import Grid, span_attention
from spanlm.models.ops import attention as window_attention
from tests.models.largest import Largest
from tests.models.small import assert_same, bitwise, values

HIDDEN, SIZE = 5, 7


def inputs(grid: Grid, batch: int) -> list[Tensor]:
    """Query, states, the projection of spans and w."""
    shapes = [(grid.steps, batch, SIZE), (grid.carried + grid.steps, batch, HIDDEN), (HIDDEN, SIZE), (SIZE,)]
    return [values(*shape, seed=n).requires_grad_() for n, shape in enumerate(shapes)]


def attend(leaves: list[Tensor], filled: Tensor, grid: Grid, asked: bool = True) -> list[Tensor]:
    query, states, projection, weight = leaves
    held, there = grid.spans(states, filled)
    return list(span_attention(query if asked else None, held @ projection, held, weight, there, grid))


def textbook(leaves: list[Tensor], filled: Tensor, grid: Grid, asked: bool = True) -> list[Tensor]:
    """The same with an index of every span's end."""
    query, states, projection, weight = leaves
    steps, batch, _ = query.shape
    now = len(states) - steps + torch.arange(steps)
    lags = 1 + grid.stride * torch.arange(grid.count - 1, -1, -1)
    ends, offset = now[:, None, None] - lags.expand(steps, batch, -1), grid.reach  # (T, B, m)
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


def compare(grid: Grid, batch: int, asked: bool) -> None:
    leaves = inputs(grid, batch)
    if not asked:
        leaves[0] = leaves[0].detach()
    filled = young(len(leaves[1]), grid.steps, batch)
    actual, expected = (f(leaves, filled, grid, asked) for f in (attend, textbook))
    assert torch.equal(actual.pop(), expected.pop())
    assert_same(actual, expected)
    if expected[0].requires_grad:
        grads = [values(*x.shape, seed=9) for x in expected]
        wanted = [x for x in leaves if x.requires_grad]
        found, right = (torch.autograd.grad(x, wanted, grads, materialize_grads=True) for x in (actual, expected))
        assert_same(list(found), list(right))


@given(
    stride=st.integers(1, 5),
    count=st.integers(1, 5),
    steps=st.integers(1, 12),
    batch=st.integers(1, 4),
    asked=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_shape(stride: int, count: int, steps: int, batch: int, asked: bool) -> None:
    compare(Grid(stride, count, steps, stride - 1), batch, asked)


@pytest.mark.parametrize(("steps", "stride"), [(1, 3), (2, 3), (7, 2)], ids=str)
def test_gradients(steps: int, stride: int) -> None:
    grid = Grid(stride, 3, steps, stride - 1)
    leaves = inputs(grid, 2)
    filled = young(len(leaves[1]), steps, 2)
    assert gradcheck(lambda *x: tuple(attend(list(x), filled, grid)[:2]), leaves)


@pytest.mark.parametrize("kept", [0, 2**25], ids=["made again", "kept"])
@pytest.mark.parametrize("slice_elements", [0, 2**20], ids=["by lag", "by query"])
def test_every_way_of_the_loop_is_the_same(monkeypatch: pytest.MonkeyPatch, kept: int, slice_elements: int) -> None:
    monkeypatch.setattr(window_attention, "KEPT_ELEMENTS", kept)
    monkeypatch.setattr(window_attention, "_SLICE_ELEMENTS", slice_elements)
    for steps, count in ((1, 4), (5, 4), (9, 2), (30, 3)):
        compare(Grid(3, count, steps, 2), 2, True)


@pytest.mark.parametrize(("steps", "phases"), [(1, 1), (3, 3), (4, 4), (9, 4)])
def test_a_short_segment_touches_the_spans_of_its_own_phases(steps: int, phases: int) -> None:
    grid = Grid(4, 2, steps, 3)
    states = values(grid.carried + steps, 3, HIDDEN)
    held, there = grid.spans(states, torch.ones(states.shape[:2], dtype=torch.bool))
    assert held.shape[1:] == (phases * 3, HIDDEN) and there.shape == held.shape[:2]


@pytest.mark.parametrize("steps", [3, 200])
def test_nothing_of_every_span_at_every_step_is_ever_held(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward: the spans themselves, once, and the T·B·m weights."""
    monkeypatch.setattr(window_attention, "KEPT_ELEMENTS", 0)
    stride, count, batch = 4, 40, 2
    grid = Grid(stride, count, steps, stride - 1)
    leaves = inputs(grid, batch)
    filled = torch.ones(leaves[1].shape[:2], dtype=torch.bool)
    saved: list[int] = []

    def note(x: Tensor) -> Tensor:
        saved.append(x.numel())
        return x

    with Largest() as largest, torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        sum(x.sum() for x in attend(leaves, filled, grid)[:2]).backward()
    once = stride * (count + 2 + -(-steps // stride)) * batch * SIZE
    padded = stride * (1 + -(-steps // stride)) * batch * count
    assert largest.elements <= max(once, 2 * padded)
    if steps > stride:
        everything = steps * batch * count * SIZE
        assert largest.elements < everything / 3
        assert sum(saved) < 1.5 * everything


def test_large_scores_do_not_overflow() -> None:
    grid = Grid(2, 3, 5, 1)
    leaves = inputs(grid, 2)
    read, weights, there = attend([*leaves[:2], 100 * leaves[2], 1e4 * leaves[3]], young(11, 5, 2), grid)
    assert read.isfinite().all()
    torch.testing.assert_close(weights.sum(-1), there.double())


@pytest.mark.parametrize("asked", [True, False])
def test_autocast_does_not_touch_it(asked: bool) -> None:
    grid = Grid(2, 3, 5, 1)

    def results(enabled: bool) -> list[Tensor]:
        query, states, projection, weight = (x.detach().float() for x in inputs(grid, 2))
        held, there = grid.spans(states, young(11, 5, 2))
        keys = (held @ projection).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            read, weights, _ = span_attention(query if asked else None, keys, held, weight, there, grid)
        return [read, weights, *torch.autograd.grad(read.square().sum(), keys)]

    assert bitwise(results(True), results(False))
