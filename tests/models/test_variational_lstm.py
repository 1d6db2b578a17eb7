"""The noisy LSTM: what it is without noise, and that every kind of noise acts where it should and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from spanlm.models.encoders import LSTMConfig, VariationalLSTMConfig
from spanlm.models.encoders.variational_lstm import VariationalLSTMEncoder
from spanlm.models.interfaces import Init
from spanlm.models.ops.lstm import GATES, lstm_recurrence
from tests.models.small import EMBEDDING, HIDDEN, assert_same, bitwise, build, values

STEPS, BATCH = 6, 3
DROPOUTS = [{"input_dropout": 0.5}, {"recurrent_dropout": 0.5}, {"input_dropout": 0.5, "per_gate": False}]
ZONEOUTS = [{"zoneout_h": 0.5}, {"zoneout_c": 0.5}]
EVERY = pytest.mark.parametrize("options", [*DROPOUTS, *ZONEOUTS], ids=str)


def noisy(layers: int = 1, **options: Any) -> VariationalLSTMEncoder:
    encoder: VariationalLSTMEncoder = build(
        VariationalLSTMConfig(hidden_size=HIDDEN, layers=layers, **options), EMBEDDING
    )
    return encoder


def inputs(layers: int = 1) -> tuple[Tensor, dict[str, Tensor]]:
    return values(STEPS, BATCH, EMBEDDING), {n: values(layers, BATCH, HIDDEN, seed=s) for s, n in enumerate("hc", 1)}


@pytest.mark.parametrize("forget_bias", [1.5, None])
def test_it_starts_as_the_lstm_starts(forget_bias: float | None) -> None:
    sizes = {"hidden_size": 30, "layers": 2, "forget_bias": forget_bias}
    weights = []
    for config in (VariationalLSTMConfig(**sizes), LSTMConfig(**sizes)):
        torch.manual_seed(0)
        weights.append(list(config.build(20, Init(0.07, 0.03)).parameters()))
    assert bitwise(*weights)
    assert [p.requires_grad for p in weights[0]] == [True, True, True, False] * 2


@pytest.mark.parametrize("options", DROPOUTS, ids=str)
def test_evaluation_without_zoneout_is_the_fused_lstm(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanlm.models.encoders.variational_lstm.lstm_recurrence", None)
    encoder, (x, state) = noisy(layers=2, **options), inputs(2)
    before = torch.get_rng_state()
    h, after = encoder(x, state)
    assert torch.equal(torch.get_rng_state(), before)
    expected, end = build(LSTMConfig(hidden_size=HIDDEN, layers=2), EMBEDDING)(x, state)
    assert_same([h, after["h"], after["c"]], [expected, end["h"], end["c"]])


def recurrence_leaves(steps: int = 3) -> list[Tensor]:
    shapes = [(GATES, steps, 2, 3), (2, 3), (2, 3), (GATES * 3, 3)]
    return [values(*shape, seed=n).requires_grad_() for n, shape in enumerate(shapes)]


@pytest.mark.parametrize("masked", [None, 1, GATES])
@pytest.mark.parametrize("zoned", [False, True])
def test_the_written_gradient_is_that_of_the_loop(masked: int | None, zoned: bool) -> None:
    mask = None if masked is None else values(masked, 2, 3, seed=7).abs()
    kept = [values(3, 2, 3, seed=seed).sigmoid() if zoned else None for seed in (8, 9)]
    leaves = recurrence_leaves()
    assert torch.autograd.gradcheck(lambda *x: lstm_recurrence(*x, mask, *kept), leaves)


def test_under_autocast_only_products_are_rounded() -> None:
    """As for the HORNN: factors and result of a product are bfloat16; sums, gates, state are float32."""
    leaves = [x.detach().float().requires_grad_() for x in recurrence_leaves(steps=1)]
    given, h, c, weight = leaves
    with torch.autocast("cpu", torch.bfloat16):
        outputs, end = lstm_recurrence(*leaves)
    outputs.sum().backward()
    assert {outputs.dtype, end.dtype, *(x.grad.dtype for x in leaves if x.grad is not None)} == {torch.float32}
    product = torch.stack([h.bfloat16() @ rows.bfloat16().T for rows in weight.split(3)]).float()
    i, f, g, o = (given[:, 0] + product).detach().unbind()
    cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
    torch.testing.assert_close(end, cell, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(outputs[0], o.sigmoid() * cell.tanh(), rtol=1e-5, atol=1e-6)
