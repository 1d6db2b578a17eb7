"""The LSTM as a loop, for bfloat16 and for few words on a CPU, and with masks: the library's, to rounding."""

import pytest
import torch
from torch import Tensor

from spanlm.models import kernels
from spanlm.models.encoders import LSTMConfig
from spanlm.models.encoders.stacks import LSTMEncoder
from spanlm.models.interfaces import Tensors
from spanlm.models.kernels import FEW, loop_is_faster
from spanlm.models.ops import lstm
from spanlm.models.ops.lstm import GATES, lstm_layer, lstm_recurrence
from tests.models.small import EMBEDDING, HIDDEN, bitwise, build, values

SIZES = pytest.mark.parametrize(("steps", "batch", "layers"), [(1, 1, 1), (1, 3, 2), (6, 2, 1), (5, 3, 2)])
PATCHED = "spanlm.models.encoders.stacks.loop_is_faster"
BF16 = torch.autocast("cpu", torch.bfloat16)
LONG = FEW + 1


@pytest.fixture
def looped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every encoder run as a loop, however small and in whatever type."""
    monkeypatch.setattr(PATCHED, lambda units, x: True)


def stack(layers: int = 1, dropout: float = 0.0, hidden: int = HIDDEN) -> LSTMEncoder:
    encoder: LSTMEncoder = build(LSTMConfig(hidden_size=hidden, layers=layers, dropout=dropout), EMBEDDING)
    return encoder.train()


def inputs(steps: int, batch: int, layers: int, hidden: int = HIDDEN) -> tuple[Tensor, Tensors]:
    """What a segment reads, with a state carried over; all of it gets gradients."""
    state = {name: values(layers, batch, hidden, seed=n).requires_grad_() for n, name in enumerate("hc", 1)}
    return values(steps, batch, EMBEDDING).requires_grad_(), state


def layer_leaves(hidden: int = 3) -> list[Tensor]:
    shapes = [(4, 2, 5), (2, hidden), (2, hidden), (4 * hidden, 5), (4 * hidden,), (4 * hidden, hidden)]
    return [values(*shape, seed=n).requires_grad_() for n, shape in enumerate(shapes)]


def test_the_written_gradient_is_that_of_the_loop() -> None:
    assert torch.autograd.gradcheck(lstm_layer, layer_leaves())


@SIZES
@pytest.mark.parametrize("ordered", [False, True])
def test_in_bfloat16_it_is_near_the_kernel_in_float32(
    steps: int, batch: int, layers: int, ordered: bool, looped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs, state and every gradient, relative to the size of each; with W_hh in the kernel's order, too."""
    if ordered:
        monkeypatch.setattr(lstm, "OFTEN", 1)
        monkeypatch.setattr(lstm, "OFTEN_BACK", 1)
        monkeypatch.setattr(kernels, "LEAST_PRODUCTS", 1)
    encoder, (x, state) = stack(layers, hidden=40).float(), inputs(steps, batch, layers, hidden=40)
    x, state = x.detach().float().requires_grad_(), {n: s.detach().float().requires_grad_() for n, s in state.items()}
    leaves = [x, *state.values(), *[p for p in encoder.parameters() if p.requires_grad]]
    output, (h, c) = encoder.lstm(x, (state["h"], state["c"]))
    exact = [output, h, c]
    with BF16:
        rough_output, after = encoder(x, state)
    rough = [rough_output, after["h"], after["c"]]
    assert [r.dtype for r in rough] == [torch.bfloat16, torch.bfloat16, torch.float32]

    def found(results: list[Tensor]) -> list[Tensor]:
        loss = sum((r.float() * values(*r.shape, seed=n).float()).sum() for n, r in enumerate(results))
        assert isinstance(loss, Tensor)
        return [*results, *torch.autograd.grad(loss, leaves)]

    for a, e in zip(found(rough), found(exact), strict=True):
        assert (a.float() - e).norm() < 0.02 * e.norm()


def test_only_products_and_outputs_are_rounded() -> None:
    """Gates and cells are float32, whatever the autocast says."""
    x, h, c, *weights = (leaf.detach().float() for leaf in layer_leaves())
    with BF16:
        outputs, end = lstm_layer(x[:1], h, c, *weights)
    weight_ih, bias, weight_hh = weights
    told = (x[0].bfloat16() @ weight_ih.bfloat16().T).float() + bias
    i, f, g, o = (told + (h.bfloat16() @ weight_hh.bfloat16().T).float()).chunk(4, 1)
    cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
    torch.testing.assert_close(end, cell, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(outputs[0].float(), o.sigmoid() * cell.tanh(), rtol=2**-8, atol=1e-6)


def test_what_comes_from_above_and_from_the_next_step_is_added_in_float32() -> None:
    """Where both tell h its gradient, and the next step tells little. The gates are exact to what W_hh adds."""
    x, _, c, weight_ih, bias, weight_hh = (leaf.detach().float() for leaf in layer_leaves())
    leaves = [torch.zeros_like(x), torch.zeros_like(c), c.requires_grad_(), weight_ih, bias, weight_hh * 0.01]

    def gradient(given: list[Tensor]) -> Tensor:
        outputs, _ = lstm_layer(*given)
        return torch.autograd.grad(outputs.float().sum(), given[2])[0]

    exact = gradient([leaf.detach().double().requires_grad_() for leaf in leaves])
    with BF16:
        torch.testing.assert_close(gradient(leaves), exact.float(), rtol=3e-4, atol=0)


def test_a_cell_that_the_kernel_left_goes_on_in_float32() -> None:
    """A run may go on with other threads, and so with the loop in the place of the kernel, whose cells are bfloat16."""
    x, h, c, *weights = (leaf.detach().float() for leaf in layer_leaves())
    with BF16:
        found = lstm_layer(x, h.bfloat16(), c.bfloat16(), *weights)
        expected = lstm_layer(x, h.bfloat16(), c.bfloat16().float(), *weights)
    assert found[1].dtype == torch.float32
    assert bitwise(list(found), list(expected))


@pytest.mark.parametrize("reduced", [True, False])
def test_the_gradient_does_not_depend_on_the_autocast_around_it(reduced: bool) -> None:
    """Of a layer that ran in float32, too; every gradient is float32."""
    leaves = [leaf.detach().float().requires_grad_() for leaf in layer_leaves()]
    with torch.autocast("cpu", torch.bfloat16, enabled=reduced):
        outputs, end = lstm_layer(*leaves)
    loss = outputs.float().sum() + end.sum()
    expected = torch.autograd.grad(loss, leaves, retain_graph=True)
    with BF16:
        found = torch.autograd.grad(loss, leaves)
    assert {g.dtype for g in found} == {torch.float32}
    assert bitwise(list(found), list(expected))


def test_elsewhere_the_kernel_stays() -> None:
    """On a GPU, and in another type, however many threads there are."""
    with BF16:
        assert not loop_is_faster(2000, torch.empty(LONG, 1, 1, device="meta"))
    with torch.autocast("cpu", torch.float16):
        assert not loop_is_faster(2000, torch.empty(LONG, 1, 1))
    for dtype in (torch.float64, torch.bfloat16):  # whose cells would be bfloat16
        assert not loop_is_faster(2000, torch.empty(FEW, 1, 1, dtype=dtype))


def recurrence_leaves(steps: int = 3) -> list[Tensor]:
    shapes = [(GATES, steps, 2, 3), (2, 3), (2, 3), (GATES * 3, 3)]
    return [values(*shape, seed=n).requires_grad_() for n, shape in enumerate(shapes)]


@pytest.mark.parametrize("masked", [None, 1, GATES])
@pytest.mark.parametrize("zoned", [False, True])
def test_the_written_gradient_of_the_recurrence_is_that_of_the_loop(masked: int | None, zoned: bool) -> None:
    mask = None if masked is None else values(masked, 2, 3, seed=7).abs()
    kept = [values(3, 2, 3, seed=seed).sigmoid() if zoned else None for seed in (8, 9)]
    leaves = recurrence_leaves()
    assert torch.autograd.gradcheck(lambda *x: lstm_recurrence(*x, mask, *kept), leaves)


def test_in_the_recurrence_only_products_are_rounded() -> None:
    """As for the HORNN: factors and result of a product are bfloat16; sums, gates, state are float32."""
    leaves = [x.detach().float().requires_grad_() for x in recurrence_leaves(steps=1)]
    given, h, c, weight = leaves
    with BF16:
        outputs, end = lstm_recurrence(*leaves)
    outputs.sum().backward()
    assert {outputs.dtype, end.dtype, *(x.grad.dtype for x in leaves if x.grad is not None)} == {torch.float32}
    product = torch.stack([h.bfloat16() @ rows.bfloat16().T for rows in weight.split(3)]).float()
    i, f, g, o = (given[:, 0] + product).detach().unbind()
    cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
    torch.testing.assert_close(end, cell, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(outputs[0], o.sigmoid() * cell.tanh(), rtol=1e-5, atol=1e-6)
