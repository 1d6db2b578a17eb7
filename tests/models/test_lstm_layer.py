"""The LSTM as a loop, for bfloat16 and for few words on a CPU: what the library's kernel computes, to rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spanlm.models.encoders import LSTMConfig
from spanlm.models.encoders.stacks import FEW, FEW_FROM, LOOP_FROM, LSTMEncoder, loop_is_faster, square_units
from spanlm.models.interfaces import Tensors
from spanlm.models.ops.lstm import lstm_layer
from tests import reference
from tests.models.small import EMBEDDING, HIDDEN, assert_same, bitwise, build, values
from tests.models.twins import gradients, lstm_layers

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


@SIZES
def test_the_loop_is_the_equations_and_so_are_its_gradients(steps: int, batch: int, layers: int, looped: None) -> None:
    encoder, (x, state) = stack(layers), inputs(steps, batch, layers)
    leaves = [x, *state.values(), *[p for p in encoder.parameters() if p.requires_grad]]
    outputs, after = encoder(x, state)
    actual = [outputs, after["h"], after["c"]]
    expected = list(reference.lstm(x, state["h"], state["c"], lstm_layers(encoder.lstm)))
    assert_same(actual, expected)
    assert_same(gradients(actual, leaves), gradients(expected, leaves))


def test_the_written_gradient_is_that_of_the_loop() -> None:
    assert torch.autograd.gradcheck(lstm_layer, layer_leaves())


def test_a_second_backward_pass_finds_what_the_first_found() -> None:
    leaves = layer_leaves()
    outputs, end = lstm_layer(*leaves)
    results = [outputs, end]
    assert bitwise(gradients(results, leaves), gradients(results, leaves))


@SIZES
def test_in_bfloat16_it_is_near_the_kernel_in_float32(steps: int, batch: int, layers: int, looped: None) -> None:
    """Outputs, state and every gradient, relative to the size of each."""
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


def test_a_gradient_of_the_gradient_is_refused() -> None:
    """It would be a wrong one: the loop backwards is not differentiated."""
    leaves = layer_leaves()
    outputs, _ = lstm_layer(*leaves)
    (first,) = torch.autograd.grad(outputs.square().sum(), leaves[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


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


@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=5))
@settings(max_examples=15, deadline=None)
def test_any_cut_is_the_same_stream_in_bfloat16(lengths: list[int]) -> None:
    """The state says all: what is read of h is what was handed on, and c is kept in float32."""
    x, (h, c, *weights) = values(sum(lengths), 2, 5).float(), (leaf.detach().float() for leaf in layer_leaves()[1:])
    with BF16:
        whole, end = lstm_layer(x, h, c, *weights)
        pieces = []
        for segment in x.split(lengths):
            outputs, c = lstm_layer(segment, h, c, *weights)
            h = outputs[-1]
            pieces.append(outputs)
    torch.testing.assert_close(torch.cat(pieces), whole, rtol=2**-7, atol=2**-8)
    torch.testing.assert_close(c, end, rtol=2**-7, atol=2**-8)


def read(steps: int = LONG, streams: int = 1, **kind: Any) -> Tensor:
    return torch.empty(steps, streams, 1, **kind)


@pytest.mark.parametrize(("threads", "units"), LOOP_FROM.items())
def test_it_is_chosen_from_the_measured_size_on(threads: int, units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    with BF16:
        assert [loop_is_faster(size, read()) for size in (units - 1, units)] == [False, True]
    assert [loop_is_faster(size, read(FEW)) for size in (FEW_FROM - 1, FEW_FROM)] == [False, True]
    assert [loop_is_faster(2000, read(5, streams)) for streams in (FEW // 5, FEW // 5 + 1)] == [True, False]


@pytest.mark.parametrize(("below", "size"), [(480, 480), (1150, 400), (3, 800)])
def test_a_layer_counts_as_the_square_one_with_as_many_weights(below: int, size: int) -> None:
    units = square_units(below, size)
    assert 4 * units * (units + units) == pytest.approx(4 * size * (below + size))
    assert below != size or units == size


def test_elsewhere_the_kernel_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, in another type, with a number of threads that nobody has measured."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    for steps in (FEW, LONG):
        with BF16:
            assert loop_is_faster(2000, read(steps))
            assert not loop_is_faster(2000, read(steps, device="meta"))
        with torch.autocast("cpu", torch.float16):
            assert not loop_is_faster(2000, read(steps))
        assert not loop_is_faster(2000, read(steps, dtype=torch.float64))
        assert not loop_is_faster(2000, read(steps, dtype=torch.bfloat16)), "the kernel's cells would be bfloat16"
        assert loop_is_faster(2000, read(steps)) is (steps == FEW)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1 + max(LOOP_FROM))
    for steps in (FEW, LONG):
        with BF16:
            assert not loop_is_faster(2000, read(steps))
