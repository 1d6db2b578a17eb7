"""Fused log-probabilities of a softmax and of a mixture: against plain PyTorch, however divided, in any precision."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import one_hot

from spanlm.models import kernels as linear
from spanlm.models.heads import mixture_of_softmaxes
from spanlm.models.heads import softmax as module
from spanlm.models.heads.mixture_of_softmaxes import mixture_log_prob
from spanlm.models.heads.softmax import linear_log_prob, log_prob_at_once
from spanlm.models.ops.precision import no_autocast, product_dtype
from tests.cases import rest_slow
from tests.models.small import Largest, assert_same, bitwise, values, words

Shape = tuple[int, int, int, int]
"""Rows, experts, input size, vocabulary."""

SMALL, LARGER = (7, 2, 3, 5), (13, 3, 8, 20)


@dataclass(frozen=True)
class Op:
    """x, the margins, W, b and of a mixture log π come as leaves; `experts` is false for one softmax alone."""

    run: Callable[..., Tensor]
    experts: bool

    def inputs(self, shape: Shape) -> tuple[list[Tensor], Tensor]:
        rows, experts, size, vocabulary = shape
        each = (rows, experts) if self.experts else (rows,)
        shapes = [(*each, size), each, (vocabulary, size), (vocabulary,), *([each] if self.experts else [])]
        leaves = [values(*s, seed=n) for n, s in enumerate(shapes)]
        leaves[4:] = [x.log_softmax(-1) for x in leaves[4:]]
        return [x.requires_grad_() for x in leaves], words(rows, size=vocabulary)


def plain(leaves: list[Tensor], targets: Tensor) -> Tensor:
    """With a logarithm of every softmax, so that no probability is too small."""
    x, margin, weight, bias, *log_prior = leaves
    at = targets.view(-1, *[1] * (margin.dim() - 1)).expand(margin.shape)
    logits = functional.linear(x, weight, bias) - one_hot(at, len(weight)) * margin.unsqueeze(-1)
    each = logits.log_softmax(-1).gather(-1, at.unsqueeze(-1)).squeeze(-1)
    return (each + log_prior[0]).logsumexp(1) if log_prior else each


def mixture(even: bool) -> Op:
    return Op(lambda x, m, w, b, targets, prior: mixture_log_prob(x, prior, w, b, targets, m, even=even), True)


def as_on_a_gpu(x: Tensor, margin: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    dtype = product_dtype(weight)
    with no_autocast(x.device):
        return log_prob_at_once(x, weight, bias, targets, margin, dtype)


OPS = {
    "softmax": Op(lambda x, m, w, b, targets: linear_log_prob(x, w, b, targets, m), False),
    "softmax, at once": Op(as_on_a_gpu, False),
    "mixture, even": mixture(True),
    "mixture, uneven": mixture(False),
}
every_op = pytest.mark.parametrize("op", OPS.values(), ids=OPS)
every_kind = pytest.mark.parametrize("kind", ["mean", "padded", "any"])
DIVISIONS = {"whole": (2**26, 2**19), "chunks": (31, 12), "blocks": (2**26, 11), "row-by-row": (1, 2)}


def divide(patch: pytest.MonkeyPatch, chunk: int, block: int = 2**19) -> None:
    """Hold at most `chunk` logits at a time and normalise at most `block`."""
    patch.setattr(module, "CHUNK_ELEMENTS", chunk)
    patch.setattr(mixture_of_softmaxes, "MIXTURE_CHUNK_ELEMENTS", chunk)
    patch.setattr(module, "_BLOCK_ELEMENTS", block)


@pytest.fixture(params=rest_slow(DIVISIONS, always=2))
def division(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    divide(monkeypatch, *DIVISIONS[request.param])


def run(op: Op, leaves: list[Tensor], targets: Tensor) -> Tensor:
    return op.run(*leaves[:4], targets, *leaves[4:])


def with_gradients(log_p: Tensor, leaves: list[Tensor], kind: str = "any") -> list[Tensor]:
    """What may come back: a mean's, a mean's over words that are not padding, anything."""
    grad = values(len(log_p), seed=9) if kind == "any" else torch.full((len(log_p),), -0.25, dtype=torch.float64)
    if kind == "padded":
        grad[::3] = 0
    return [log_p, *torch.autograd.grad(log_p, leaves, grad.to(log_p.dtype), retain_graph=True)]


@every_op
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 9), st.integers(1, 7)),
    bias=st.booleans(),
    kind=st.sampled_from(["mean", "padded", "any"]),
    limits=st.tuples(st.integers(1, 200), st.integers(1, 130)),
)
@settings(max_examples=60)
def test_any_shape_and_gradient_in_any_chunks(
    op: Op, shape: Shape, bias: bool, kind: str, limits: tuple[int, int]
) -> None:
    leaves, targets = op.inputs(shape)
    asked = [x for n, x in enumerate(leaves) if n != 3 or bias]
    leaves = [x if n != 3 or bias else None for n, x in enumerate(leaves)]  # type: ignore[misc]
    expected = with_gradients(plain(leaves, targets), asked, kind)
    with pytest.MonkeyPatch.context() as patch:
        divide(patch, *limits)
        assert_same(with_gradients(run(op, leaves, targets), asked, kind), expected)


@every_op
@every_kind
def test_only_what_needs_a_gradient_gets_one(op: Op, kind: str, division: None) -> None:
    leaves, targets = op.inputs(SMALL)
    for index in range(len(leaves)):
        alone = [x.detach().requires_grad_(n == index) for n, x in enumerate(leaves)]
        actual, expected = (f(alone, targets) for f in (lambda *x: run(op, *x), plain))
        assert_same(*(with_gradients(x, [alone[index]], kind) for x in (actual, expected)))


@every_op
@every_kind
def test_backward_twice_gives_the_same_and_leaves_the_inputs_alone(op: Op, kind: str, division: None) -> None:
    leaves, targets = op.inputs(SMALL)
    before = [x.detach().clone() for x in leaves]
    log_p = run(op, leaves, targets)
    assert bitwise(with_gradients(log_p, leaves, kind), with_gradients(log_p, leaves, kind))
    assert bitwise([x.detach() for x in leaves], before)
    with torch.no_grad():
        quiet = run(op, leaves, targets)
    assert not quiet.requires_grad
    assert_same(quiet, log_p.detach())


@every_op
def test_large_logits(op: Op, division: None) -> None:
    """The answer stays a logarithm: probabilities that no number holds still have a gradient."""
    leaves, targets = op.inputs(SMALL)
    leaves[0] = (1e4 * leaves[0]).detach().requires_grad_()
    actual = with_gradients(run(op, leaves, targets), leaves, "padded")
    assert actual[0].min() < -1e3
    assert_same(actual, with_gradients(plain(leaves, targets), leaves, "padded"), atol=1e-8)


@every_op
@every_kind
@pytest.mark.parametrize("other_product", [False, True])
def test_float32_is_float64_but_for_rounding(
    op: Op, kind: str, other_product: bool, division: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if other_product:
        monkeypatch.setattr(linear, "LEAST_PRODUCTS", 1)
        monkeypatch.setattr(linear, "_library_is_slower", lambda: True)
        monkeypatch.setattr(module, "MANY_ROWS", 1)
    leaves, targets = op.inputs(LARGER)
    narrow = [torch.cat([x, x], -1).float()[..., : x.shape[-1]].detach().requires_grad_() for x in leaves]
    actual = with_gradients(run(op, narrow, targets), narrow, kind)
    assert {x.dtype for x in actual} == {torch.float32}
    expected = with_gradients(plain(leaves, targets), leaves, kind)
    torch.testing.assert_close([x.double() for x in actual], expected, rtol=1e-5, atol=1e-5)


@every_op
@every_kind
@pytest.mark.parametrize("backward_inside", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_autocast(
    op: Op, kind: str, backward_inside: bool, ordered: bool, division: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ordered:
        monkeypatch.setattr(linear, "LEAST_PRODUCTS", 1)
        monkeypatch.setattr(module, "MANY_ROWS", 1)
    leaves, targets = op.inputs(LARGER)
    narrow = [x.detach().float().requires_grad_() for x in leaves]
    with torch.autocast("cpu", torch.bfloat16):
        log_p = run(op, narrow, targets)
    with torch.autocast("cpu", torch.bfloat16, enabled=backward_inside):
        actual = with_gradients(log_p, narrow, kind)
    assert {x.dtype for x in actual} == {torch.float32}
    for a, e in zip(actual, with_gradients(plain(leaves, targets), leaves, kind), strict=True):
        assert (a - e).norm() < 0.03 * e.norm()
    assert not torch.equal(log_p, run(op, narrow, targets))
    # what autocast leaves of the bias's gradient is not rounded to bfloat16
    assert not torch.equal(actual[4], actual[4].bfloat16().float())


@every_op
def test_autocast_rounds_products_alone(op: Op, division: None) -> None:
    """Of numbers whose products bfloat16 holds; the prior, the margin and the bias are as wide as the answer."""
    leaves, targets = op.inputs((5, 3, 8, 9))
    for n in (0, 2):
        leaves[n] = (leaves[n].detach().clamp(-1, 1) * 2).round().div(2).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        log_p = run(op, [x.detach().float().requires_grad_() for x in leaves], targets)
    torch.testing.assert_close(log_p.double(), plain(leaves, targets), rtol=1e-5, atol=1e-5)


def test_confident_words_keep_their_gradient(division: None) -> None:
    """With p near 1 the gradient is 1 - p: lost if p is rounded to bfloat16 first."""
    targets = torch.tensor([0, 3, 5, 3, 7])
    weight = torch.eye(8, dtype=torch.float64)
    weight[:, 0] += 0.5
    x = torch.zeros(5, 8, dtype=torch.float64)
    x[torch.arange(5), targets] = torch.tensor([10.0, 11.0, 14.0, 12.0, 10.0], dtype=torch.float64)
    bias = torch.tensor([0, 0.5, -0.5, 1, 0, -1, 0.25, 0], dtype=torch.float64)
    leaves = [t.requires_grad_() for t in (x, torch.zeros(5).double(), weight, bias)]
    expected = with_gradients(plain(leaves, targets), leaves)
    assert 0 < -expected[0].max() < -expected[0].min() < 1e-3
    narrow = [t.detach().float().requires_grad_() for t in leaves]
    with torch.autocast("cpu", torch.bfloat16):
        log_p = run(OPS["softmax"], narrow, targets)
    for a, e in zip(with_gradients(log_p, narrow), expected, strict=True):
        assert e.any() and (a - e).norm() < 0.01 * e.norm()


@pytest.mark.parametrize("op", [op for name, op in OPS.items() if "at once" not in name])
def test_a_chunk_bounds_what_is_held(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor of more than a chunk of logits is made, forward or backward, and one chunk is gone before the next."""
    divide(monkeypatch, 400)
    made: list[weakref.ref[Tensor]] = []

    def prepared(weight: Tensor, products: int) -> Callable[..., Tensor]:
        times = linear.prepared(weight, products)

        def product(x: Tensor, bias: Tensor | None = None) -> Tensor:
            result = times(x, bias)
            if result.shape[1] == 50:
                assert not any(logits() is not None for logits in made)
                made.append(weakref.ref(result))
            return result

        return product

    leaves, targets = op.inputs((40, 4, 2, 50))
    with Largest() as largest:
        with_gradients(run(op, leaves, targets), leaves, "padded")
    assert largest.elements == 400
    monkeypatch.setattr(module, "prepared", prepared)
    with_gradients(run(op, leaves, targets), leaves, "mean")
    assert len(made) >= 5
