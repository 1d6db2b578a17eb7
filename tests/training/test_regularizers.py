"""Activation regularisation against loops over single numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from spanlm.training.step import activation, neighbours, temporal_activation

T, B, D = 4, 3, 5


@pytest.fixture
def x() -> Tensor:
    return torch.randn(T, B, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def whole() -> Tensor:
    return torch.ones(T, B, dtype=torch.bool)


def ragged() -> Tensor:
    """Streams of 4, 2 and 0 predicted words, and one with a hole."""
    return torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 0], [1, 0, 0]], dtype=torch.bool)


@pytest.mark.parametrize("mask", [whole(), ragged()], ids=["whole", "ragged"])
def test_activation_is_a_sum_over_places_of_means(x: Tensor, mask: Tensor) -> None:
    expected = 0.0
    for t in range(T):
        for b in range(B):
            if mask[t, b]:
                expected += sum(float(value) ** 2 for value in x[t, b]) / D
    assert float(activation(x, mask)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("mask", [whole(), ragged()], ids=["whole", "ragged"])
def test_temporal_activation_is_of_neighbours_that_both_count(x: Tensor, mask: Tensor) -> None:
    expected, pairs = 0.0, 0
    for t in range(T - 1):
        for b in range(B):
            if mask[t, b] and mask[t + 1, b]:
                expected += (
                    sum(float(after - before) ** 2 for before, after in zip(x[t, b], x[t + 1, b], strict=True)) / D
                )
                pairs += 1
    assert float(temporal_activation(x, mask)) == pytest.approx(expected, rel=1e-12)
    assert int(neighbours(mask).sum()) == pairs


def test_over_a_whole_batch_they_are_means_over_all_elements(x: Tensor) -> None:
    """As AWD-LSTM's code writes them."""
    assert float(activation(x, whole()) / (T * B)) == pytest.approx(float(x.pow(2).mean()), rel=1e-12)
    found = float(temporal_activation(x, whole()) / ((T - 1) * B))
    assert found == pytest.approx(float((x[1:] - x[:-1]).pow(2).mean()), rel=1e-12)


def test_padding_is_never_read(x: Tensor) -> None:
    mask = ragged()
    poisoned = torch.where(mask[..., None], x, float("nan"))
    assert torch.equal(activation(poisoned, mask), activation(x, mask))
    assert torch.equal(temporal_activation(poisoned, mask), temporal_activation(x, mask))


def test_narrow_numbers_are_added_up_wide(x: Tensor) -> None:
    narrow = x.bfloat16()
    for function in (activation, temporal_activation):
        found = function(narrow, whole())
        assert found.dtype == torch.float32
        assert float(found) == pytest.approx(float(function(narrow.double(), whole())), rel=1e-6)
