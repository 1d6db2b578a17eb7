"""The float32 product of linear layers: against float64, row by row, and where it stands aside."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from spanlm.models import kernels as module
from spanlm.models.kernels import crossed, linear, prepared, product
from tests.models.small import bitwise

SHAPES = [(70, 50, 33), (7, 1, 5), (1, 40, 40)]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products go the way of large ones, on any processor."""
    monkeypatch.setattr(module, "LEAST_PRODUCTS", 1)
    monkeypatch.setattr(module, "_library_is_slower", lambda: True)
    if not module._faster(torch.zeros(1, 1), torch.zeros(1, 1)):
        pytest.skip("this build of torch has no second kernel")


def leaves(shape: tuple[int, int, int], biased: bool, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    draw = torch.Generator().manual_seed(3)
    rows, size, out = shape
    shapes = [(rows, 2, size), (out, size), *([(out,)] if biased else [])]
    return [torch.randn(s, generator=draw).to(dtype).requires_grad_() for s in shapes]


@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_those_of_float64(shape: tuple[int, int, int], biased: bool) -> None:
    narrow, wide = (leaves(shape, biased, dtype) for dtype in (torch.float32, torch.float64))
    # rows that do not follow each other in memory are rows, too
    (x, *own), (y, *others) = narrow, wide
    actual, expected = linear(x.transpose(0, 1), *own), functional.linear(y.transpose(0, 1), *others)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(4))
    # a gradient that is no row after row in memory, as products often hand back
    spread = weights.transpose(0, 1).contiguous().transpose(0, 1)
    found = torch.autograd.grad(actual, narrow, spread)
    wanted = torch.autograd.grad(expected, wide, weights.double())
    torch.testing.assert_close(
        [x.double() for x in (actual, *found)], [expected, *wanted], rtol=1e-4, atol=1e-4 * shape[0] ** 0.5
    )


@pytest.mark.parametrize("transposed", [True, False], ids=["transposed", "as it lies"])
@pytest.mark.parametrize(("dtype", "biased"), [(torch.float32, True), (torch.float32, False), (torch.bfloat16, False)])
def test_a_matrix_in_the_kernels_order_gives_the_same_products(
    dtype: torch.dtype, biased: bool, transposed: bool
) -> None:
    x, weight, *bias = (t.detach() for t in leaves(SHAPES[0], biased, dtype))
    given = weight.t().contiguous().t() if transposed else weight
    if not module._can_be_ordered(given):
        pytest.skip("this processor has no such order of this type")
    bias = [torch.stack([b, b], 1)[:, 0] for b in bias]  # with gaps
    expected = functional.linear(x.double(), weight.double(), *(b.double() for b in bias))
    times = prepared(given, True)
    weight.zero_()
    given.zero_()  # it has a copy
    for rows in (slice(0, 1), slice(1, 70)):  # of any number
        for read in (x[rows, 0], x[rows, 0].t().contiguous().t()):
            found = times(read, *bias).double()
            torch.testing.assert_close(found, expected[rows, 0], rtol=torch.finfo(dtype).eps, atol=1e-4)


@pytest.mark.parametrize("case", ["float64", "autocast", "another processor"])
def test_elsewhere_it_is_the_librarys(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_product", None)  # any call fails
    x, weight, bias = leaves(SHAPES[0], True, torch.float64 if case == "float64" else torch.float32)
    if case == "another processor":
        monkeypatch.setattr(module, "_library_is_slower", lambda: False)
    with torch.autocast("cpu", torch.bfloat16, enabled=case == "autocast"):
        assert bitwise(linear(x, weight, bias), functional.linear(x, weight, bias))
        rows, out, w, b = (t.detach() for t in (x[:, 0], functional.linear(x, weight, bias)[:, 0], weight, bias))
        assert bitwise(product(rows, w, b), torch.addmm(b, rows, w.T))
        assert bitwise(crossed(out, rows), out.T @ rows)
