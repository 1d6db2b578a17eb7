"""The running softmax: against one softmax over everything, across its blocks, and its gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from spanlm.models.memories.attentive import BLOCK, EMPTY, running_attention
from tests.models.small import assert_same, values

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


def direct(scores: Tensor, items: Tensor, log_total: Tensor, mean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each step one softmax over all before it; what came before the segment is one of them."""
    every, read = torch.cat([log_total, scores]), torch.cat([mean, items])
    ends = range(1, len(every) + 1)
    # the largest score is taken out, as the definition allows
    weights = [(every[:end] - every[:end].amax(0)).exp() for end in ends]
    reads = [(w[..., None] * read[:end]).sum(0) / w.sum(0)[:, None] for w, end in zip(weights, ends, strict=True)]
    total = weights[-1].sum(0, keepdim=True).log() + every.amax(0)
    return torch.stack(reads[:-1]), total, reads[-1][None]


@pytest.mark.parametrize("scale", [1.0, 50.0])
@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "carried"])
@pytest.mark.parametrize("steps", STEPS)
def test_is_one_softmax_over_all_before(steps: int, fresh: bool, scale: float) -> None:
    leaves = [*leaves_of(steps, scale=scale), *(nothing() if fresh else something())]
    actual, expected = running_attention(*leaves), direct(*leaves)
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
