"""The attentions over a window, and over all before: against every (step, slot, stream) at once; what all promise."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spanlm.models.memories.attentive import BLOCK, EMPTY, running_attention
from spanlm.models.memories.pointer_sentinel import sentinel_attention
from spanlm.models.memories.span_buffer.memory import Grid, span_attention
from spanlm.models.ops.attention import (
    LEAST_BLOCK,
    _additive_scores,
    additive_window_attention,
    dot_window_attention,
    masked_softmax,
    scores_at_once,
    sum_at_once,
    window_filled,
)
from spanlm.models.ops.precision import wide
from tests.models.small import Largest, assert_same, bitwise, values

KEY, VALUE = 3, 4


class Shape(NamedTuple):
    """T, L, the slots that were carried (of additive attention) and B; of spans, L are the spans, `carried` between."""

    steps: int = 6
    window: int = 4
    carried: int = 3
    batch: int = 3

    @property
    def grid(self) -> Grid:
        return Grid(1 + self.carried, self.window, self.steps, self.carried)


@dataclass(frozen=True)
class Op:
    """An attention: the shapes of what it reads, how many carried slots there are, the op, the same written out."""

    sizes: Callable[[Shape], list[tuple[int, ...]]]
    carried: Callable[[Shape], int]
    run: Callable[[Shape, list[Tensor], Tensor], list[Tensor]]
    plain: Callable[[Shape, list[Tensor], Tensor], list[Tensor]]

    def leaves(self, shape: Shape) -> list[Tensor]:
        return [values(*size, seed=n).requires_grad_() for n, size in enumerate(self.sizes(shape))]

    def filled(self, shape: Shape, holes: int = 0b0110) -> Tensor:
        """Which carried slots hold something: those whose bit of `holes` is not set."""
        count = self.carried(shape) * shape.batch
        bits = [not holes >> n & 1 for n in range(count)]
        return torch.tensor(bits, dtype=torch.bool).view(-1, shape.batch)


def softmax_reads(scores: Tensor, there: Tensor, items: Tensor) -> list[Tensor]:
    """From scores (T, L, B) and values (T, L, B, D): reads (T, B, D), weights (T, B, L)."""
    exponentials = torch.where(there, scores.exp(), 0)
    weights = exponentials / exponentials.sum(1, keepdim=True).clamp_min(1e-300)
    return [torch.einsum("tlb,tlbd->tbd", weights, items), weights.transpose(1, 2)]


def windows(x: Tensor, shape: Shape, last: int) -> Tensor:
    """(T, L, B, ...): the L slots that end `last` before the last slots of each step; zero where there is none."""
    x = torch.cat([x.new_zeros(shape.window, *x.shape[1:]), x])
    ends = len(x) - shape.steps - last + torch.arange(shape.steps)
    return x[ends[:, None] - torch.arange(shape.window - 1, -1, -1)]


def present(filled: Tensor, shape: Shape) -> Tensor:
    return torch.cat([filled, torch.ones(shape.steps, shape.batch, dtype=torch.bool)])


def additive(at_once: bool = False) -> Op:
    """`at_once`: as on a GPU, which computes all lags by the same calls."""

    def carried(s: Shape) -> int:
        return min(s.carried, s.window)

    def plain(s: Shape, leaves: list[Tensor], filled: Tensor) -> list[Tensor]:
        query, keys, items, weight = leaves
        scores = (windows(keys, s, 1) + query[:, None]).tanh() @ weight
        return softmax_reads(scores, windows(present(filled, s), s, 1), windows(items, s, 1))

    def run(s: Shape, leaves: list[Tensor], filled: Tensor) -> list[Tensor]:
        if not at_once:
            return list(additive_window_attention(*leaves, filled, s.window))
        query, keys, items, weight = map(wide, leaves)
        missing = torch.zeros(s.window - len(filled), s.batch, dtype=torch.bool)
        may_read = window_filled(torch.cat([missing, filled]), s.steps, s.window)
        with torch.autocast("cpu", enabled=False):
            weights = masked_softmax(scores_at_once(query, keys, weight, s.window), may_read)
            return [sum_at_once(weights, items), weights]

    return Op(
        lambda s: [
            (s.steps, s.batch, KEY),
            (carried(s) + s.steps, s.batch, KEY),
            (carried(s) + s.steps, s.batch, VALUE),
            (KEY,),
        ],
        carried,
        run,
        plain,
    )


def dot(lags: bool) -> Op:
    def plain(s: Shape, leaves: list[Tensor], filled: Tensor) -> list[Tensor]:
        query, keys, items, *rows = leaves
        key, item = windows(keys, s, 0), windows(items, s, 0)
        if rows:
            key, item = key + rows[0][:, None], item + rows[1][:, None]
        return softmax_reads((key * query[:, None]).sum(-1), windows(present(filled, s), s, 0), item)

    return Op(
        lambda s: [
            (s.steps, s.batch, KEY),
            *((s.window - 1 + s.steps, s.batch, size) for size in (KEY, VALUE)),
            *(((s.window, KEY), (s.window, VALUE)) if lags else ()),
        ],
        lambda s: s.window - 1,
        lambda s, leaves, filled: list(dot_window_attention(*leaves[:3], filled, *leaves[3:])),
        plain,
    )


def with_sentinel() -> Op:
    def plain(s: Shape, leaves: list[Tensor], filled: Tensor) -> list[Tensor]:
        query, keys, sentinel = leaves
        every = torch.where(
            windows(present(filled, s), s, 0), (windows(keys, s, 0) * query[:, None]).sum(-1), -torch.inf
        )
        shares = torch.cat([every.transpose(1, 2), (query @ sentinel).unsqueeze(-1)], -1).softmax(-1)
        return [shares[..., :-1], shares[..., -1]]

    return Op(
        lambda s: [(s.steps, s.batch, KEY), (s.window - 1 + s.steps, s.batch, KEY), (KEY,)],
        lambda s: s.window - 1,
        lambda s, leaves, filled: [x.exp() for x in sentinel_attention(*leaves, filled)],
        plain,
    )


def spans() -> Op:
    def run(s: Shape, leaves: list[Tensor], filled: Tensor) -> list[Tensor]:
        query, states, projection, weight = leaves
        held, there = s.grid.spans(states, present(filled, s))
        with torch.autocast("cpu", enabled=False):
            keys = held @ projection
        return list(span_attention(query, keys, held, weight, there, s.grid))[:2]

    def plain(s: Shape, leaves: list[Tensor], filled: Tensor) -> list[Tensor]:
        query, states, projection, weight = leaves
        grid, now = s.grid, s.grid.carried + torch.arange(s.steps)
        ends = now[:, None] - 1 - grid.stride * torch.arange(grid.count - 1, -1, -1)
        held = states[ends] - states[ends - grid.reach] if grid.reach else states[ends]
        scores = (held @ projection + query[:, None]).tanh() @ weight
        return softmax_reads(scores, present(filled, s)[ends - grid.reach], held)

    return Op(
        lambda s: [(s.steps, s.batch, KEY), (s.grid.carried + s.steps, s.batch, VALUE), (VALUE, KEY), (KEY,)],
        lambda s: s.grid.carried,
        run,
        plain,
    )


OPS = {
    "additive": additive(),
    "additive, at once": additive(at_once=True),
    "dot": dot(False),
    "dot, lags": dot(True),
    "sentinel": with_sentinel(),
    "spans": spans(),
}
every_op = pytest.mark.parametrize("op", OPS.values(), ids=OPS)


def results(op: Op, shape: Shape, leaves: list[Tensor], filled: Tensor, plain: bool = False) -> list[Tensor]:
    """Reads and weights, and the gradients of a sum that weighs each of their elements differently."""
    found = (op.plain if plain else op.run)(shape, leaves, filled)
    if not any(x.requires_grad for x in found):
        return found
    loss = sum((x * values(*x.shape, seed=9).to(x.dtype)).sum() for x in found)
    return [*found, *torch.autograd.grad(loss, leaves, materialize_grads=True)]


LONG = LEAST_BLOCK + 3
"""Steps of more than one block."""


@every_op
@given(
    shape=st.builds(
        Shape, st.integers(1, 9) | st.integers(LONG, 2 * LONG), st.integers(1, 5), st.integers(0, 4), st.integers(1, 3)
    ),
    holes=st.integers(0, 2**20 - 1),
)
@settings(max_examples=40)
def test_any_shape_any_holes(op: Op, shape: Shape, holes: int) -> None:
    leaves, filled = op.leaves(shape), op.filled(shape, holes)
    assert_same(results(op, shape, leaves, filled), results(op, shape, leaves, filled, plain=True))


@pytest.mark.parametrize("shape", [Shape(1, 3, 1, 2), Shape(4, 2, 0, 1), Shape(2, 5, 3, 2)], ids=str)
def test_gradients_are_the_same_of_activations_that_are_kept_and_of_those_made_again(shape: Shape) -> None:
    query, keys, _, weight = OPS["additive"].leaves(shape)
    found = []
    for kept in (True, False):
        scores = _additive_scores(query, keys, weight, shape.window, kept)
        gradients = torch.autograd.grad(scores, [query, keys, weight], values(*scores.shape, seed=9))
        found.append([scores, *gradients])
    assert bitwise(*found)


@pytest.mark.parametrize("holes", [0, 0b0110, 2**99 - 1], ids=["full", "holes", "empty"])
@pytest.mark.parametrize("steps, window", [(18, 16), (17, 17), (16, 17), (60, 20)])
def test_a_long_window_is_every_step_with_every_slot(steps: int, window: int, holes: int) -> None:
    op, shape = OPS["additive"], Shape(steps, window, window, 2)
    leaves, filled = op.leaves(shape), op.filled(shape, holes)
    assert_same(results(op, shape, leaves, filled), results(op, shape, leaves, filled, plain=True))
    narrow = [x.detach().float().requires_grad_() for x in leaves]
    expected = results(op, shape, narrow, filled)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = op.run(shape, narrow, filled)
    loss = sum((x * values(*x.shape, seed=9).float()).sum() for x in outputs)
    assert bitwise([*outputs, *torch.autograd.grad(loss, narrow)], expected)


@every_op
def test_large_scores_do_not_overflow(op: Op) -> None:
    shape = Shape()
    reads, weights = op.run(shape, [1e3 * x for x in op.leaves(shape)], op.filled(shape))
    assert reads.isfinite().all() and weights.isfinite().all()
    assert weights.max() <= 1


@every_op
def test_float32_is_float64_but_for_rounding_and_no_autocast_touches_it(op: Op) -> None:
    """To the last bit, forwards and backwards, wherever `backward` is called from."""
    shape = Shape()
    filled = op.filled(shape)
    narrow = [x.detach().float().requires_grad_() for x in op.leaves(shape)]
    found = results(op, shape, narrow, filled)
    assert {x.dtype for x in found} == {torch.float32}
    expected = results(op, shape, op.leaves(shape), filled)
    torch.testing.assert_close([x.double() for x in found], expected, rtol=1e-5, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = op.run(shape, narrow, filled)
    loss = sum((x * values(*x.shape, seed=9).float()).sum() for x in outputs)
    assert bitwise([*outputs, *torch.autograd.grad(loss, narrow)], found)


@pytest.mark.parametrize("op", [op for name, op in OPS.items() if "spans" not in name], ids=list(OPS)[:5])
def test_narrow_inputs_are_widened(op: Op) -> None:
    shape, filled = Shape(), op.filled(Shape())
    leaves = [x.detach() if x.dim() == 2 else x.detach().bfloat16() for x in op.leaves(shape)]
    leaves = [x.float() if x.dim() == 2 else x for x in leaves]
    expected = op.run(shape, [x.float() for x in leaves], filled)
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            found = op.run(shape, leaves, filled)
        assert {x.dtype for x in found} == {torch.float32}
        assert bitwise(found, expected)


@pytest.mark.parametrize("steps", [3, 100])
def test_no_span_is_ever_held_at_every_step(steps: int) -> None:
    op, shape = OPS["spans"], Shape(steps, 40, 3, 2)
    with Largest() as largest:
        results(op, shape, op.leaves(shape), op.filled(shape, 0))
    stride, turns = shape.grid.stride, -(-steps // shape.grid.stride)
    once, padded = stride * (shape.window + 2 + turns) * 2 * VALUE, stride * (1 + turns) * 2 * shape.window
    assert largest.elements <= max(once, 2 * padded)


STEPS = [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3]


def leaves_of(steps: int, batch: int = 2, size: int = 3, scale: float = 1.0) -> list[Tensor]:
    """Scores and values of a segment."""
    shapes = [(steps, batch), (steps, batch, size)]
    scores, items = (values(*shape, seed=n) for n, shape in enumerate(shapes))
    return [(scores * scale).requires_grad_(), items.requires_grad_()]


def nothing(batch: int = 2, size: int = 3, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Before the first step."""
    return [torch.full((1, batch), EMPTY, dtype=dtype), torch.zeros(1, batch, size, dtype=dtype)]


def something(batch: int = 2, size: int = 3) -> list[Tensor]:
    """After some steps."""
    return [values(1, batch, seed=5).requires_grad_(), values(1, batch, size, seed=6).requires_grad_()]


def direct(
    scores: Tensor, items: Tensor, log_total: Tensor, mean: Tensor, nearest_lag: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """For each step one softmax over all up to it, or before it; what came before the segment is one of them."""
    every, read = torch.cat([log_total, scores]), torch.cat([mean, items])
    ends = range(1, len(every) + 1)
    # the largest score is taken out, as the definition allows
    weights = [(every[:end] - every[:end].amax(0)).exp() for end in ends]
    reads = [(w[..., None] * read[:end]).sum(0) / w.sum(0)[:, None] for w, end in zip(weights, ends, strict=True)]
    total = weights[-1].sum(0, keepdim=True).log() + every.amax(0)
    return torch.stack(reads[:-1] if nearest_lag else reads[1:]), total, reads[-1][None]


@pytest.mark.parametrize("nearest_lag", [0, 1])
@pytest.mark.parametrize("scale", [1.0, 50.0])
@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "carried"])
@pytest.mark.parametrize("steps", STEPS)
def test_is_one_softmax_over_the_past(steps: int, fresh: bool, scale: float, nearest_lag: int) -> None:
    leaves = [*leaves_of(steps, scale=scale), *(nothing() if fresh else something())]
    actual, expected = running_attention(*leaves, nearest_lag), direct(*leaves, nearest_lag)
    assert_same(list(actual), list(expected))
    learned = [x for x in leaves if x.requires_grad]
    grads = [values(*x.shape, seed=9) for x in expected]
    assert_same(list(torch.autograd.grad(actual, learned, grads)), list(torch.autograd.grad(expected, learned, grads)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_scores_in_narrow_types(dtype: torch.dtype) -> None:
    """Scores of ±1,000 in float32: finite, and what float64 says of the same numbers."""
    scores, items = leaves_of(2 * BLOCK + 5, scale=1e3)
    narrow = [x.detach().to(dtype).requires_grad_() for x in (scores, items)]
    wide = [x.detach().double().requires_grad_() for x in narrow]
    actual, expected = running_attention(*narrow, *nothing(dtype=torch.float32)), direct(*wide, *nothing())
    assert {x.dtype for x in actual} == {torch.float32}
    grads = [values(*x.shape, seed=9) for x in expected]
    found = torch.autograd.grad(actual, narrow, [g.float() for g in grads])
    wanted = torch.autograd.grad(expected, wide, grads)
    assert all(x.isfinite().all() for x in found)
    torch.testing.assert_close([x.double() for x in actual], list(expected), rtol=1e-5, atol=1e-4)
    tolerance = 1e-3 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close([x.double() for x in found], list(wanted), rtol=tolerance, atol=tolerance)
