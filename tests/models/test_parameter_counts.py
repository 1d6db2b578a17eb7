"""Published sizes at V = 77,000, w = 300, one layer (Daniluk et al., 2017, Fig. 2b and 2c)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spanlm.models.counting import count_configured, count_parameters
from spanlm.models.encoders import AWDLSTMConfig, LSTMConfig, RNNConfig, VariationalLSTMConfig
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import AttentiveConfig

VOCABULARY, WORD = 77_000, 300

# encoder's output, memory; the presets' tests have θ_M as the specification does


@pytest.mark.parametrize("layers", [1, 3, 5])
@pytest.mark.parametrize(
    "encoder",
    [LSTMConfig(hidden_size=6), RNNConfig(hidden_size=6), VariationalLSTMConfig(hidden_size=6), AWDLSTMConfig()],
    ids=lambda encoder: encoder.kind,
)
def test_layers_that_are_not_made_are_counted(encoder: Any, layers: int) -> None:
    config = ModelConfig(
        embedding_size=5, encoder=replace(encoder, layers=layers), memory=AttentiveConfig(window=7, score="single")
    )
    found, model = count_configured(config, 11, 3), LanguageModel(config, 11)
    assert found == count_parameters(model)
    assert found.state == sum(x.nbytes for x in model.init_state(3).flat().values())


def test_a_billion_layers_are_counted_at_once() -> None:
    many = count_configured(ModelConfig(encoder=LSTMConfig(layers=10**9)), 11)
    one = count_configured(ModelConfig(encoder=LSTMConfig(layers=3)), 11).total
    assert many.total > 10**8 * one
