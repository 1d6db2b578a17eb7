"""The recurrent memory under autocast; that it is its equations, the loop twins say."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from spanlm.models.memories import RecurrentMemoryConfig
from tests.models.small import HIDDEN, VOCABULARY, build, values


@pytest.mark.parametrize("composition", ["gated", "linear"])
def test_nothing_but_products_is_rounded(composition: str) -> None:
    """Under autocast the factors and the result of each product are bfloat16; gates, tanh and sums are float32."""
    memory = build(RecurrentMemoryConfig(composition=composition), HIDDEN, VOCABULARY).float()  # type: ignore[arg-type]
    read, h = values(3, 2, HIDDEN).float(), values(3, 2, HIDDEN, seed=1).float()
    with torch.autocast("cpu", torch.bfloat16):
        found = memory.composition(read, h)

    def product(layer: nn.Linear, x: Tensor) -> Tensor:
        bias = 0.0 if layer.bias is None else layer.bias.bfloat16().double()
        return (x.bfloat16().double() @ layer.weight.bfloat16().double().T + bias).bfloat16().float()

    parts = memory.composition
    if composition == "linear":
        expected = product(parts.of_hidden, h) + read
    else:
        of_update, of_reset, of_candidate = product(parts.of_read, read).chunk(3, -1)
        hidden_update, hidden_reset = product(parts.of_hidden, h).chunk(2, -1)
        update, reset = (of_update + hidden_update).sigmoid(), (of_reset + hidden_reset).sigmoid()
        candidate = (of_candidate + product(parts.of_reset, reset * h)).tanh()
        expected = (1 - update) * h + update * candidate
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
