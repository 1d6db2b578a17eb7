"""Published sizes at V = 77,000, w = 300, one LSTM layer (Daniluk et al., 2017, Fig. 2b and 2c)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from spanlm.models.config import ModelConfig
from spanlm.models.encoders import LSTMConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import KeyValueConfig, NGramConfig, NoMemoryConfig

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
    """θ_M, everything that learns but the words' vectors; and θ_{W+M}."""
    encoder = LSTMConfig(hidden_size=hidden_size)
    config = ModelConfig(embedding_size=WORD, encoder=encoder, memory=memory, head=SoftmaxConfig(**head))
    with torch.device("meta"):
        model = LanguageModel(config, VOCABULARY)
    assert all(p.is_meta for p in model.parameters())
    total = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return total - model.embedding.weight.numel(), total


@pytest.mark.parametrize(("hidden_size", "memory", "millions"), ROWS.values(), ids=ROWS)
def test_sizes_are_the_published_ones(hidden_size: int, memory: Any, millions: float) -> None:
    model, with_words = sizes(hidden_size, memory)
    assert f"{model / 1e6:.1f}M" == "23.9M"
    assert f"{with_words / 1e6:.1f}M" == "47.0M"
    assert f"{model / 1e6:.2f}" == f"{millions:.2f}"
    assert with_words - model == VOCABULARY * WORD == 23_100_000


def test_published_key_value_predict_is_larger_than_printed() -> None:
    """k = 834 cannot have the 23.9M that the paper prints beside it."""
    model, _ = sizes(834, KeyValueConfig(roles=3, window=5))
    assert f"{model / 1e6:.2f}" == "25.58"


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


def test_window_costs_nothing() -> None:
    assert sizes(300, KeyValueConfig(window=1)) == sizes(300, KeyValueConfig(window=100))


def test_tied_and_without_bias() -> None:
    whole, _ = sizes(300, NoMemoryConfig())
    assert sizes(300, NoMemoryConfig(), tied=True)[0] == whole - VOCABULARY * WORD
    assert sizes(300, NoMemoryConfig(), bias=False)[0] == whole - VOCABULARY
