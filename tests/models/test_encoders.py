"""What every registered encoder promises (see `spanlm.models.interfaces`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from spanlm.models.interfaces import Encoder, Tensors
from tests.models import small
from tests.models.small import EMBEDDING, HIDDEN, bitwise, build, values

every_encoder = pytest.mark.parametrize("config", small.encoders())


def after_prefix(encoder: Encoder, batch: int = 2) -> Tensors:
    _, state = encoder(values(3, batch, EMBEDDING, seed=50), encoder.init_state(batch))
    return {name: x.detach() for name, x in state.items()}


@every_encoder
def test_state_is_a_value_and_is_read(config: Any) -> None:
    encoder, x = build(config, EMBEDDING), values(2, 2, EMBEDDING)
    state = after_prefix(encoder)
    copy = {name: s.clone() for name, s in state.items()}
    h, after = encoder(x, state)
    assert bitwise(state, copy)
    assert bitwise(encoder(x, state)[0], h)
    assert {n: s.shape for n, s in after.items()} == {n: s.shape for n, s in state.items()}
    for name in state:
        other = encoder(x, {**state, name: torch.zeros_like(state[name])})[0]
        assert not torch.isclose(other, h).all(), name


@every_encoder
def test_sizes(config: Any) -> None:
    encoder = build(config, EMBEDDING)
    assert encoder.output_size == config.output_size == HIDDEN
    assert encoder(values(2, 3, EMBEDDING), encoder.init_state(3))[0].shape == (2, 3, HIDDEN)
    larger = config.resized(20)
    assert larger.output_size == 20
    assert (larger.kind, larger.resized(HIDDEN)) == (config.kind, config)


every_hornn = pytest.mark.parametrize("config", [p for p in small.encoders() if p.values[0].kind == "hornn"])


@every_hornn
def test_hornn_rounds_nothing_but_its_products(config: Any) -> None:
    """Under autocast the factors and the result of each product are bfloat16; sums, gates, tanh are not."""
    encoder = build(config, EMBEDDING).float()
    x, state = values(1, 3, EMBEDDING).float(), values(config.order, 3, HIDDEN, seed=1).float()
    with torch.autocast("cpu", torch.bfloat16):
        h, _ = encoder(x, {"h": state})
        inputs = encoder.input(x)[0].float()
        gates = encoder.gate(x)[0].float().view(3, config.order, HIDDEN) if config.pooling == "gated" else None
    pooled = torch.zeros(3, HIDDEN) if config.pooling != "max" else torch.full((3, HIDDEN), -torch.inf)
    factors = [config.forgetting_factor**n if config.pooling == "fofe" else 1.0 for n in range(config.order, 0, -1)]
    for n, (output, matrix, factor) in enumerate(zip(state, encoder.recurrent, factors, strict=True)):
        product = (output.bfloat16() @ (factor * matrix).bfloat16()).float()
        if gates is not None:
            product = product[:, :HIDDEN] * (gates[:, n] + product[:, HIDDEN:]).sigmoid()
        pooled = torch.maximum(pooled, product) if config.pooling == "max" else pooled + product
    torch.testing.assert_close(h[0], torch.tanh(inputs + pooled), rtol=1e-5, atol=1e-5)
