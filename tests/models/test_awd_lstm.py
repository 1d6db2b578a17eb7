"""The AWD-LSTM encoder: its equations with the noise that was drawn, its state, its weights, its precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests import reference
from tests.conftest import needs_bf16
from tests.models.awd import BATCH, KERNELS, NOISY, WIDE, choose, inputs, matrices, recorded, stack
from tests.models.small import EMBEDDING, bitwise, values
from tests.models.twins import assert_twin


@pytest.fixture
def masks(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    return recorded(monkeypatch)


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, request.param)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("options", [NOISY, {"weight_drop": 0.4}, {"hidden_dropout": 0.3}, {}], ids=str)
@pytest.mark.parametrize(("steps", "batch", "layers"), [(1, 1, 1), (5, 2, 2), (4, 3, 3)])
def test_it_is_the_loop_with_the_same_masks(
    steps: int, batch: int, layers: int, options: dict[str, Any], training: bool, kernel: None, masks: list[Tensor]
) -> None:
    """Outputs, state, and all gradients, those of the raw weights and both biases included."""
    torch.manual_seed(1)
    encoder = stack(layers, **options).train(training)
    x, state = inputs(encoder, steps, batch)
    leaves = [x, *state.values(), *encoder.parameters()]
    outputs, after = encoder(x, state)
    actual = [outputs, *after.values()]

    of_weights = [m for m in masks if m.shape in {w.shape for w in matrices(encoder)}]
    of_units = [m for m in masks if m.shape == (batch, WIDE)]
    drops = {name: training and rate > 0 for name, rate in {**dict.fromkeys(NOISY, 0.0), **options}.items()}
    assert len(masks) == len(of_weights) + len(of_units)
    assert len(of_weights) == layers * drops["weight_drop"]
    assert len(of_units) == (layers - 1) * drops["hidden_dropout"]
    h, c = ([state[f"{name}_{n}"][0] for n in range(layers)] for name in "hc")
    plain = [(w_x, w_h, b_x + b_h) for w_x, w_h, b_x, b_h in (layer.parameters() for layer in encoder.layers)]
    equations = [reference.LSTMLayer(*weights) for weights in plain]
    of_weights = of_weights or [torch.ones_like(w) for w in matrices(encoder)]
    of_units = of_units or [torch.ones(batch, WIDE, dtype=x.dtype)] * (layers - 1)
    top, h, c = reference.awd_lstm(x, h, c, equations, of_weights, of_units)
    expected = [top, *[end.unsqueeze(0) for pair in zip(h, c, strict=True) for end in pair]]

    assert_twin(actual, expected, leaves)


@needs_bf16
def test_reduced_precision_trains(kernel: None) -> None:
    answers = []
    for reduced in (False, True):
        encoder = stack(**NOISY).float()
        x, state = values(8, BATCH, EMBEDDING).float(), encoder.init_state(BATCH)
        torch.manual_seed(3)
        pieces = []
        with torch.autocast("cpu", torch.bfloat16, enabled=reduced):
            for segment in x.split(2):
                h, state = encoder(segment, {name: s.detach() for name, s in state.items()})
                pieces.append(h.float())
        answers.append(torch.cat(pieces))
        answers[-1].sum().backward()
        assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in encoder.parameters())
    torch.testing.assert_close(answers[1], answers[0], rtol=0, atol=0.03)
    assert not torch.equal(*answers)


def test_training_calls_change_nothing_by_themselves(kernel: None) -> None:
    """Weights that were dropped in place would decay to zero."""
    encoder = stack(**NOISY)
    x, state = inputs(encoder)
    before, weights = encoder.eval()(x, state)[0], [p.detach().clone() for p in encoder.parameters()]
    for _ in range(20):
        encoder.train()(x, state)
    assert bitwise(list(encoder.parameters()), weights)
    assert bitwise(encoder.eval()(x, state)[0], before)
