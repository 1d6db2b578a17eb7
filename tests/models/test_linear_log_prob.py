"""The fused log-probability: against plain PyTorch, in any number of chunks and blocks, in any precision."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn.functional import one_hot

from spanlm.models.ops import softmax as module
from spanlm.models.ops.softmax import linear_log_prob
from tests.models.largest import Largest
from tests.models.products import use_the_other_product, watch_logits
from tests.models.small import assert_same, bitwise, values, words

# rows, input size, vocabulary
SHAPES = [(1, 1, 1), (1, 3, 2), (7, 3, 5), (5, 1, 9), (13, 4, 3)]

every_shape = pytest.mark.parametrize(("rows", "size", "vocabulary"), SHAPES)
with_and_without_bias = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])


@pytest.fixture(params=["whole", "blocks", "row-by-row", "chunks", "chunks-and-blocks"])
def division(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the logits are divided: at once, in blocks, in chunks that are made again, in both."""
    chunk, block = {
        "whole": (2**26, 2**19),
        "blocks": (2**26, 11),
        "row-by-row": (1, 2),
        "chunks": (14, 2**19),
        "chunks-and-blocks": (30, 12),
    }[request.param]
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", chunk)
    monkeypatch.setattr(module, "_BLOCK_ELEMENTS", block)
    return request.param


def inputs(rows: int, size: int, vocabulary: int, bias: bool) -> tuple[list[Tensor], Tensor]:
    """x, W, b if there is one; and the targets."""
    shapes = [(rows, size), (vocabulary, size), (vocabulary,)][: 2 + bias]
    return [values(*s, seed=n).requires_grad_() for n, s in enumerate(shapes)], words(rows, size=vocabulary)


def fused(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, targets: Tensor) -> Tensor:
    return linear_log_prob(x, weight, bias, targets)


def plain(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, targets: Tensor) -> Tensor:
    log_p = torch.nn.functional.linear(x, weight, bias).log_softmax(-1)
    return log_p.gather(-1, targets[:, None]).squeeze(-1)


def with_gradients(log_p: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    return [log_p, *torch.autograd.grad(log_p, leaves, values(*log_p.shape, seed=9).to(log_p.dtype))]


@every_shape
@with_and_without_bias
def test_agrees_with_plain_pytorch(rows: int, size: int, vocabulary: int, bias: bool, division: str) -> None:
    leaves, targets = inputs(rows, size, vocabulary, bias)
    expected = with_gradients(plain(*leaves, targets=targets), leaves)
    assert_same(with_gradients(fused(*leaves, targets=targets), leaves), expected)


@every_shape
@with_and_without_bias
def test_gradients(rows: int, size: int, vocabulary: int, bias: bool, division: str) -> None:
    leaves, targets = inputs(rows, size, vocabulary, bias)
    assert gradcheck(lambda *x: fused(*x, targets=targets), leaves)


@given(rows=st.integers(1, 12), size=st.integers(1, 5), vocabulary=st.integers(1, 9), data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_shape_in_any_chunks(rows: int, size: int, vocabulary: int, data: st.DataObject) -> None:
    bias = data.draw(st.booleans())
    leaves, targets = inputs(rows, size, vocabulary, bias)
    expected = with_gradients(plain(*leaves, targets=targets), leaves)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_ELEMENTS", data.draw(st.integers(1, 130)))
        patch.setattr(module, "_BLOCK_ELEMENTS", data.draw(st.integers(1, 130)))
        assert_same(with_gradients(fused(*leaves, targets=targets), leaves), expected)


def test_division_is_real(division: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests do divide: count the slices of 7 rows of 5 logits, by the limit that cut them."""
    counts: dict[int, int] = {}
    chunks = module.chunks

    def counted(rows: int, row_elements: int, limit: int) -> Iterator[slice]:
        slices = list(chunks(rows, row_elements, limit))
        assert [n for s in slices for n in range(s.start, s.stop)] == list(range(rows))
        counts[limit] = max(counts.get(limit, 0), len(slices))
        return iter(slices)

    monkeypatch.setattr(module, "chunks", counted)
    leaves, targets = inputs(7, 3, 5, True)
    with_gradients(fused(*leaves, targets=targets), leaves)
    expected = {
        "whole": (1, 1),
        "blocks": (1, 4),
        "row-by-row": (7, 1),
        "chunks": (4, 1),
        "chunks-and-blocks": (2, 3),
    }
    assert (counts[module.CHUNK_ELEMENTS], counts[module._BLOCK_ELEMENTS]) == expected[division]


@every_shape
@with_and_without_bias
def test_a_margin_comes_off_the_target_alone(rows: int, size: int, vocabulary: int, bias: bool, division: str) -> None:
    leaves, targets = inputs(rows, size, vocabulary, bias)
    margin = values(rows, seed=5).requires_grad_()
    logits = torch.nn.functional.linear(*leaves) - one_hot(targets, vocabulary) * margin.unsqueeze(1)
    expected = logits.log_softmax(-1).gather(-1, targets[:, None]).squeeze(-1)
    actual = linear_log_prob(*leaves, *[None] * (not bias), targets, margin)
    leaves.append(margin)
    assert_same(with_gradients(actual, leaves), with_gradients(expected, leaves))


def test_no_margin_is_a_margin_of_zero(division: str) -> None:
    leaves, targets = inputs(7, 3, 5, True)
    assert bitwise(linear_log_prob(*leaves, targets, torch.zeros(7).double()), fused(*leaves, targets=targets))


def counted_passes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each chunk's softmaxes were kept, in the order in which they were made."""
    made, log_p = [], module.LinearSoftmax.log_p
    monkeypatch.setattr(module.LinearSoftmax, "log_p", lambda *args, keep: made.append(keep) or log_p(*args, keep=keep))
    return made


@pytest.mark.parametrize(("chunk", "expected"), [(2**26, [True]), (14, [False] * 4 + [True] * 4)])
def test_softmaxes_that_fit_in_a_chunk_are_made_once(
    chunk: int, expected: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", chunk)
    made = counted_passes(monkeypatch)
    leaves, targets = inputs(7, 3, 5, True)
    with_gradients(fused(*leaves, targets=targets), leaves)
    assert made == expected


def test_without_a_backward_pass_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted_passes(monkeypatch)
    leaves, targets = inputs(7, 3, 5, True)
    with torch.no_grad():
        fused(*leaves, targets=targets)
    fused(*(x.detach() for x in leaves), targets=targets)
    assert made == [False, False]


def test_one_target_many_times(division: str) -> None:
    """The same word in every row: its gradient is the sum over rows."""
    leaves, _ = inputs(9, 3, 5, True)
    targets = torch.full((9,), 2)
    expected = with_gradients(plain(*leaves, targets=targets), leaves)
    assert_same(with_gradients(fused(*leaves, targets=targets), leaves), expected)


@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_large_logits(scale: float, division: str) -> None:
    leaves, targets = inputs(7, 3, 5, True)
    leaves[0] = (scale * leaves[0]).detach().requires_grad_()
    actual = with_gradients(fused(*leaves, targets=targets), leaves)
    assert actual[0].min() < -scale / 10
    assert_same(actual, with_gradients(plain(*leaves, targets=targets), leaves), atol=1e-8)


@pytest.mark.parametrize("index", range(3))
def test_only_what_needs_a_gradient_gets_one(index: int, division: str) -> None:
    leaves, targets = inputs(7, 3, 5, True)
    alone = [x.detach().requires_grad_(n == index) for n, x in enumerate(leaves)]
    (actual,) = torch.autograd.grad(fused(*alone, targets=targets).sum(), [alone[index]])
    (expected,) = torch.autograd.grad(plain(*alone, targets=targets).sum(), [alone[index]])
    assert_same(actual, expected)


def test_backward_twice_gives_the_same(division: str) -> None:
    """What is kept for the backward pass is read, never written."""
    leaves, targets = inputs(7, 3, 5, True)
    log_p = fused(*leaves, targets=targets)
    first = torch.autograd.grad(log_p.sum(), leaves, retain_graph=True)
    assert bitwise(list(torch.autograd.grad(log_p.sum(), leaves)), list(first))


def test_inputs_are_left_alone(division: str) -> None:
    leaves, targets = inputs(7, 3, 5, True)
    before = [x.detach().clone() for x in leaves]
    gradient = values(7)
    fused(*leaves, targets=targets).backward(gradient)
    assert bitwise([x.detach() for x in leaves], before)
    assert torch.equal(gradient, values(7))


def test_no_gradient_no_difference(division: str) -> None:
    leaves, targets = inputs(7, 3, 5, True)
    with torch.no_grad():
        quiet = fused(*leaves, targets=targets)
    assert not quiet.requires_grad
    assert torch.equal(quiet, fused(*leaves, targets=targets))


def test_float32_is_float64_but_for_rounding(division: str) -> None:
    leaves, targets = inputs(13, 8, 20, True)
    narrow = [x.detach().float().requires_grad_() for x in leaves]
    actual = with_gradients(fused(*narrow, targets=targets), narrow)
    assert {x.dtype for x in actual} == {torch.float32}
    expected = with_gradients(plain(*leaves, targets=targets), leaves)
    torch.testing.assert_close([x.double() for x in actual], expected, rtol=1e-5, atol=1e-5)


def test_with_the_other_product(division: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 on some processors; the rows may lie apart."""
    use_the_other_product(monkeypatch)
    leaves, targets = inputs(13, 8, 20, True)
    narrow = [torch.cat([x, x], -1).float()[..., : x.shape[-1]].requires_grad_() for x in leaves]
    actual = with_gradients(fused(*narrow, targets=targets), narrow)
    expected = with_gradients(plain(*leaves, targets=targets), leaves)
    torch.testing.assert_close([x.double() for x in actual], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backward_inside", [False, True])
def test_autocast(backward_inside: bool, division: str) -> None:
    """Products in bfloat16, the answer and the gradients of float32 weights in float32."""
    leaves, targets = inputs(13, 8, 20, True)
    narrow = [x.detach().float().requires_grad_() for x in leaves]
    with torch.autocast("cpu", torch.bfloat16):
        log_p = fused(*narrow, targets=targets)
    with torch.autocast("cpu", torch.bfloat16, enabled=backward_inside):
        actual = with_gradients(log_p, narrow)
    assert {x.dtype for x in actual} == {torch.float32}
    expected = with_gradients(plain(*leaves, targets=targets), leaves)
    for a, e in zip(actual, expected, strict=True):
        assert (a - e).norm() < 0.02 * e.norm()
    exact = with_gradients(fused(*narrow, targets=targets), narrow)
    assert not torch.equal(actual[0], exact[0])


def test_a_chunk_is_gone_before_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 30)
    leaves, targets = inputs(7, 3, 5, True)
    made = watch_logits(monkeypatch, 5)
    with_gradients(fused(*leaves, targets=targets), leaves)
    assert len(made) == 4


def confident() -> tuple[list[Tensor], Tensor]:
    """Logits that bfloat16 holds exactly and that give every target p = 1 - 3e-4 or more."""
    vocabulary, targets = 8, torch.tensor([0, 3, 5, 3, 7])
    weight = torch.eye(vocabulary, dtype=torch.float64)
    weight[:, 0] += 0.5
    x = torch.zeros(5, vocabulary, dtype=torch.float64)
    x[torch.arange(5), targets] = torch.tensor([10.0, 11.0, 14.0, 12.0, 10.0], dtype=torch.float64)
    bias = torch.tensor([0, 0.5, -0.5, 1, 0, -1, 0.25, 0], dtype=torch.float64)
    return [t.requires_grad_() for t in (x, weight, bias)], targets


def test_confident_words_keep_their_gradient(division: str) -> None:
    """With p near 1 the gradient is 1 - p: lost if p is rounded to bfloat16 first."""
    leaves, targets = confident()
    expected = with_gradients(plain(*leaves, targets=targets), leaves)
    assert 0 < -expected[0].max() < -expected[0].min() < 1e-3
    narrow = [x.detach().float().requires_grad_() for x in leaves]
    with torch.autocast("cpu", torch.bfloat16):
        log_p = fused(*narrow, targets=targets)
    actual = with_gradients(log_p, narrow)
    for a, e in zip(actual, expected, strict=True):
        assert e.any()
        assert (a - e).norm() < 0.01 * e.norm()


def test_one_chunk_bounds_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor of more than a chunk of logits is made, forward or backward."""
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 200)
    leaves, targets = inputs(40, 2, 20, True)
    with Largest() as largest:
        with_gradients(fused(*leaves, targets=targets), leaves)
    assert largest.elements == 200
