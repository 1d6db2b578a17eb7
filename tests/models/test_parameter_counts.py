"""Published sizes at V = 77,000, w = 300, one layer (Daniluk et al., 2017, Fig. 2b and 2c)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from spanlm.models.counting import count_configured, count_parameters
from spanlm.models.encoders import AWDLSTMConfig, HORNNConfig, LSTMConfig, RNNConfig, VariationalLSTMConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import (
    AttentiveConfig,
    KeyValueConfig,
    NGramConfig,
    NoMemoryConfig,
    RecurrentMemoryConfig,
)

VOCABULARY, WORD = 77_000, 300

# encoder's output, memory, θ_M in millions to two digits as computed in the specification
ROWS = {
    "LSTM": (300, NoMemoryConfig(), 23.90),
    "Attention": (296, KeyValueConfig(roles=1, window=10), 23.93),
    "Key-Value": (560, KeyValueConfig(roles=2, window=10), 23.88),
    "Key-Value-Predict, matched": (786, KeyValueConfig(roles=3, window=5), 23.94),
    "2-gram": (564, NGramConfig(order=2), 23.90),
    "3-gram": (786, NGramConfig(order=3), 23.87),
    "4-gram": (968, NGramConfig(order=4), 23.86),
    "5-gram": (1120, NGramConfig(order=5), 23.94),
}


def sizes(hidden_size: int, memory: Any, **head: bool) -> tuple[int, int]:
    """θ_M of a model with one LSTM layer, everything that learns but the words' vectors; and θ_{W+M}."""
    return sizes_of(LSTMConfig(hidden_size=hidden_size), memory, SoftmaxConfig(**head))


def sizes_of(encoder: Any, memory: Any, head: SoftmaxConfig | None = None) -> tuple[int, int]:
    config = ModelConfig(embedding_size=WORD, encoder=encoder, memory=memory, head=head or SoftmaxConfig())
    with torch.device("meta"):
        model = LanguageModel(config, VOCABULARY)
    assert all(p.is_meta for p in model.parameters())
    total = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return total - model.embedding.weight.numel(), total


@pytest.mark.parametrize(("hidden_size", "memory"), [row[:2] for row in ROWS.values()], ids=ROWS)
def test_sizes_by_hand(hidden_size: int, memory: Any) -> None:
    """Four gates with one bias each, the memory's matrices, W* and b."""
    k = hidden_size // memory.parts
    look_back = {
        "none": 0,
        "key_value": 4 * k * k + k,  # W^Y, W^h, W^r, W^x, w
        "ngram": k * hidden_size,  # W^N
    }[memory.kind]
    encoder = 4 * hidden_size * (WORD + hidden_size + 1)
    assert sizes(hidden_size, memory)[0] == encoder + look_back + VOCABULARY * (k + 1)


SOFTMAX = {k: VOCABULARY * (k + 1) for k in (297, 300, 303, 307)}
OTHERS = {
    "RNN": (RNNConfig(hidden_size=307), 307 * (WORD + 307 + 1), "23.90"),
    "FOFE HORNN": (HORNNConfig(hidden_size=303, order=3), 303 * (WORD + 3 * 303 + 1), "23.77"),
    "Gated HORNN": (
        HORNNConfig(hidden_size=297, order=3, pooling="gated"),
        297 * (WORD + 1) + 3 * 297 * (297 + 297 + WORD),  # W_in and b; W_n, U_n and V_n
        "23.83",
    ),
    "Max HORNN": (HORNNConfig(hidden_size=300, order=2, pooling="max"), 300 * (WORD + 2 * 300 + 1), "23.45"),
}


@pytest.mark.parametrize(("encoder", "weights", "millions"), OTHERS.values(), ids=OTHERS)
def test_other_encoders_by_hand(encoder: Any, weights: int, millions: str) -> None:
    model, with_words = sizes_of(encoder, NoMemoryConfig())
    assert model == weights + SOFTMAX[encoder.hidden_size]
    assert f"{model / 1e6:.2f}" == millions
    assert with_words - model == VOCABULARY * WORD


@pytest.mark.parametrize("window", [1, 5, 10, 15])
def test_recurrent_memory_by_hand(window: int) -> None:
    """θ_M counts its two tables (and no others: the input embedding is a third)."""
    tables, composition, lags = 2 * VOCABULARY * 300, 6 * 300 * 300 + 3 * 300, 2 * window * 300
    lstm = 4 * 300 * (WORD + 300 + 1) + SOFTMAX[300]
    model, with_words = sizes(300, RecurrentMemoryConfig(window=window))
    assert model == lstm + tables + composition + lags
    assert (f"{model / 1e6:.1f}M", f"{with_words / 1e6:.1f}M") == ("70.6M", "93.7M")
    assert sizes(300, RecurrentMemoryConfig(window=window, temporal=False))[0] == model - lags
    linear, _ = sizes(300, RecurrentMemoryConfig(window=window, composition="linear"))
    assert linear == model - composition + 300 * 300


@pytest.mark.parametrize("layers", [1, 2])
def test_noise_costs_nothing(layers: int) -> None:
    noisy = VariationalLSTMConfig(hidden_size=300, layers=layers, input_dropout=0.5, zoneout_h=0.1)
    assert sizes_of(noisy, NoMemoryConfig()) == sizes_of(LSTMConfig(hidden_size=300, layers=layers), NoMemoryConfig())


def test_a_projection_is_a_square_with_a_bias() -> None:
    whole, _ = sizes(300, NoMemoryConfig())
    assert sizes(300, NoMemoryConfig(), projection=True)[0] == whole + 300 * 300 + 300


def test_tied_and_without_bias() -> None:
    whole, _ = sizes(300, NoMemoryConfig())
    assert sizes(300, NoMemoryConfig(), tied=True)[0] == whole - VOCABULARY * WORD
    assert sizes(300, NoMemoryConfig(), bias=False)[0] == whole - VOCABULARY


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
