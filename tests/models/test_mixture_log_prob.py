"""The fused mixture: against plain PyTorch, whatever gradient comes back, in any number of chunks and any precision."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn.functional import linear, one_hot

from spanlm.models.ops import softmax as module
from spanlm.models.ops.softmax import mixture_log_prob
from tests.models.largest import Largest
from tests.models.products import use_the_other_product, watch_logits
from tests.models.small import assert_same, bitwise, values, words

# rows, experts, size, vocabulary
SHAPES = [(1, 1, 1, 1), (1, 3, 2, 4), (7, 3, 3, 5), (5, 2, 8, 9), (6, 1, 4, 3)]

every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
with_and_without_bias = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
expecting = pytest.mark.parametrize("even", [True, False], ids=["even", "uneven"])


@pytest.fixture(params=["whole", "blocks", "row-by-row", "chunks"])
def division(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    chunk, block = {"whole": (2**25, 2**19), "blocks": (2**25, 11), "row-by-row": (1, 2), "chunks": (31, 2**19)}[
        request.param
    ]
    monkeypatch.setattr(module, "MIXTURE_CHUNK_ELEMENTS", chunk)
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", chunk)
    monkeypatch.setattr(module, "_BLOCK_ELEMENTS", block)
    return request.param


def inputs(shape: tuple[int, int, int, int], bias: bool = True) -> tuple[list[Tensor], Tensor]:
    """x, log π, margins, W, b if there is one; and the targets."""
    rows, experts, size, vocabulary = shape
    shapes = [(rows, experts, size), (rows, experts), (rows, experts), (vocabulary, size), (vocabulary,)][: 4 + bias]
    leaves = [values(*s, seed=n) for n, s in enumerate(shapes)]
    leaves[1] = leaves[1].log_softmax(-1)
    return [x.requires_grad_() for x in leaves], words(rows, size=vocabulary)


def fused(leaves: list[Tensor], targets: Tensor, even: bool = True) -> Tensor:
    x, log_prior, margin, weight, *bias = leaves
    return mixture_log_prob(x, log_prior, weight, *bias or [None], targets, margin, even=even)


def plain(leaves: list[Tensor], targets: Tensor) -> Tensor:
    x, log_prior, margin, weight, *bias = leaves
    moved = one_hot(targets, len(weight)).unsqueeze(1) * margin.unsqueeze(2)
    probabilities = (linear(x, weight, *bias) - moved).softmax(-1)
    mixed = (log_prior.exp().unsqueeze(2) * probabilities).sum(1)
    return mixed.gather(1, targets[:, None]).squeeze(1).log()


def with_gradients(log_p: Tensor, leaves: list[Tensor], grad: Tensor) -> list[Tensor]:
    return [log_p, *torch.autograd.grad(log_p, leaves, grad.to(log_p.dtype), retain_graph=True)]


def grads_of(kind: str, rows: int) -> Tensor:
    """What may come back: a mean's, a mean's over words that are not padding, anything."""
    if kind == "any":
        return values(rows, seed=9)
    grad = torch.full((rows,), -0.25, dtype=torch.float64)
    if kind == "padded":
        grad[::3] = 0
    return grad


@every_shape
@with_and_without_bias
@pytest.mark.parametrize("kind", ["mean", "padded", "any"])
@expecting
def test_agrees_with_plain_pytorch(
    shape: tuple[int, int, int, int], bias: bool, kind: str, even: bool, division: str
) -> None:
    leaves, targets = inputs(shape, bias)
    grad = grads_of(kind, shape[0])
    expected = with_gradients(plain(leaves, targets), leaves, grad)
    assert_same(with_gradients(fused(leaves, targets, even), leaves, grad), expected)


@expecting
def test_gradients(even: bool, division: str) -> None:
    leaves, targets = inputs((5, 3, 2, 4))
    assert gradcheck(lambda *x: fused(list(x), targets, even), leaves)
    assert gradcheck(lambda *x: fused(list(x), targets, even).mean(), leaves)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_shape_and_gradient_in_any_chunks(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.integers(1, most)) for most in (9, 4, 9, 7))
    leaves, targets = inputs(shape, data.draw(st.booleans()))
    grad = torch.tensor(data.draw(st.lists(st.sampled_from([0.0, 0.5, -2.0]), min_size=shape[0], max_size=shape[0])))
    expected = with_gradients(plain(leaves, targets), leaves, grad.double())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MIXTURE_CHUNK_ELEMENTS", data.draw(st.integers(1, 200)))
        patch.setattr(module, "CHUNK_ELEMENTS", data.draw(st.integers(1, 200)))
        assert_same(with_gradients(fused(leaves, targets), leaves, grad.double()), expected)


@pytest.mark.parametrize(("kind", "again"), [("mean", []), ("padded", [3]), ("any", [6])])
def test_only_rows_with_another_gradient_are_made_again(
    kind: str, again: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 7 rows: none, the padding, all but the one that is taken for the usual."""
    seen, plainly = [], module.linear_log_prob
    monkeypatch.setattr(module, "linear_log_prob", lambda x, *rest: seen.append(len(x) // 2) or plainly(x, *rest))
    leaves, targets = inputs((7, 2, 3, 5))
    with_gradients(fused(leaves, targets), leaves, grads_of(kind, 7))
    assert seen == again


def test_where_gradients_differ_none_is_worked_out_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves, targets = inputs((7, 2, 3, 5))
    with monkeypatch.context() as patch:
        patch.setattr(module, "LinearGradients", None)
        log_p = fused(leaves, targets, even=False)
    assert_same(with_gradients(log_p, leaves, values(7)), with_gradients(plain(leaves, targets), leaves, values(7)))


def test_without_a_backward_pass_no_gradient_is_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LinearGradients", None)
    leaves, targets = inputs((7, 2, 3, 5))
    with torch.no_grad():
        quiet = fused(leaves, targets)
    assert not quiet.requires_grad
    assert_same(quiet, plain(leaves, targets).detach())
    assert_same(fused([x.detach() for x in leaves], targets), quiet)


@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize("kind", ["mean", "any"])
def test_only_what_needs_a_gradient_gets_one(index: int, kind: str, division: str) -> None:
    leaves, targets = inputs((7, 2, 3, 5))
    alone = [x.detach().requires_grad_(n == index) for n, x in enumerate(leaves)]
    grad = grads_of(kind, 7)
    actual = with_gradients(fused(alone, targets), [alone[index]], grad)
    assert_same(actual, with_gradients(plain(alone, targets), [alone[index]], grad))


@expecting
def test_backward_twice_gives_the_same(even: bool, division: str) -> None:
    leaves, targets = inputs((7, 2, 3, 5))
    log_p = fused(leaves, targets, even)
    for kind in ("mean", "any", "padded"):
        grad = grads_of(kind, 7)
        first = with_gradients(log_p, leaves, grad)
        assert bitwise(with_gradients(log_p, leaves, grad), first)
        assert_same(first, with_gradients(plain(leaves, targets), leaves, grad))


@expecting
def test_large_logits(even: bool, division: str) -> None:
    """The mixture stays a logarithm: probabilities that no number holds still have a gradient."""
    leaves, targets = inputs((7, 2, 3, 5))
    leaves[0] = (1e4 * leaves[0]).detach().requires_grad_()
    x, log_prior, margin, weight, bias = leaves
    logits = linear(x, weight, bias) - one_hot(targets, 5).unsqueeze(1) * margin.unsqueeze(2)
    each = logits.log_softmax(-1).gather(2, targets[:, None, None].expand(-1, 2, 1)).squeeze(2)
    expected = (each + log_prior).logsumexp(1)
    assert expected.min() < -1e3
    grad = grads_of("padded", 7)
    assert_same(
        with_gradients(fused(leaves, targets, even), leaves, grad), with_gradients(expected, leaves, grad), atol=1e-8
    )


def narrowed(leaves: list[Tensor]) -> list[Tensor]:
    return [x.detach().float().requires_grad_() for x in leaves]


@expecting
@pytest.mark.parametrize("kind", ["mean", "any"])
def test_float32_is_float64_but_for_rounding(kind: str, even: bool, division: str) -> None:
    leaves, targets = inputs((13, 3, 8, 20))
    narrow, grad = narrowed(leaves), grads_of(kind, 13)
    actual = with_gradients(fused(narrow, targets, even), narrow, grad)
    assert {x.dtype for x in actual} == {torch.float32}
    expected = with_gradients(plain(leaves, targets), leaves, grad)
    torch.testing.assert_close([x.double() for x in actual], expected, rtol=1e-5, atol=1e-5)


@expecting
def test_with_the_other_product(even: bool, division: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_the_other_product(monkeypatch)
    leaves, targets = inputs((13, 3, 8, 20))
    narrow, grad = narrowed(leaves), grads_of("any", 13)
    actual = with_gradients(fused(narrow, targets, even), narrow, grad)
    expected = with_gradients(plain(leaves, targets), leaves, grad)
    torch.testing.assert_close([x.double() for x in actual], expected, rtol=1e-5, atol=1e-5)


def test_a_chunk_is_gone_before_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIXTURE_CHUNK_ELEMENTS", 30)
    leaves, targets = inputs((7, 2, 3, 5))
    made = watch_logits(monkeypatch, 5)
    with_gradients(fused(leaves, targets), leaves, grads_of("mean", 7))
    assert len(made) == 3


@expecting
@pytest.mark.parametrize("kind", ["mean", "any"])
@pytest.mark.parametrize("backward_inside", [False, True])
def test_autocast(kind: str, backward_inside: bool, even: bool, division: str) -> None:
    """Products in bfloat16; the answer and the gradients of float32 weights in float32."""
    leaves, targets = inputs((13, 3, 8, 20))
    narrow, grad = narrowed(leaves), grads_of(kind, 13)
    with torch.autocast("cpu", torch.bfloat16):
        log_p = fused(narrow, targets, even)
    with torch.autocast("cpu", torch.bfloat16, enabled=backward_inside):
        actual = with_gradients(log_p, narrow, grad)
    assert {x.dtype for x in actual} == {torch.float32}
    for a, e in zip(actual, with_gradients(plain(leaves, targets), leaves, grad), strict=True):
        assert (a - e).norm() < 0.03 * e.norm()
    assert not torch.equal(log_p, fused(narrow, targets, even))
    # what autocast leaves of the weights' gradient is not rounded to bfloat16
    assert not torch.equal(actual[4], actual[4].bfloat16().float())


@expecting
def test_a_chunk_bounds_what_is_held(even: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor of more than a chunk of logits is made, forward or backward."""
    monkeypatch.setattr(module, "MIXTURE_CHUNK_ELEMENTS", 400)
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 400)
    leaves, targets = inputs((40, 4, 2, 50))
    with Largest() as largest:
        with_gradients(fused(leaves, targets, even), leaves, grads_of("padded", 40))
    assert largest.elements == 400


@expecting
def test_autocast_rounds_products_alone(even: bool, division: str) -> None:
    """Of numbers whose products bfloat16 holds; the prior, the margin and the bias are as wide as the answer."""
    leaves, targets = inputs((5, 3, 8, 9))
    for n in (0, 3):
        leaves[n] = (leaves[n].detach().clamp(-1, 1) * 2).round().div(2).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        log_p = fused(narrowed(leaves), targets, even)
    torch.testing.assert_close(log_p.double(), plain(leaves, targets), rtol=1e-5, atol=1e-5)
