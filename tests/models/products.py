"""The products of softmaxes, as tests would have them or see them."""

from __future__ import annotations

import weakref

import pytest
from torch import Tensor

from spanlm.models.ops import linear
from spanlm.models.ops import softmax as linear_softmax


def use_the_other_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply float32 matrices of any size, on any processor, with the kernel that is not the library's choice."""
    monkeypatch.setattr(linear, "LEAST_PRODUCTS", 1)
    monkeypatch.setattr(linear, "_library_is_slower", lambda: True)


def watch_logits(monkeypatch: pytest.MonkeyPatch, vocabulary: int) -> list[weakref.ref[Tensor]]:
    """Refuse to make logits while others are there; return those that were made."""
    made: list[weakref.ref[Tensor]] = []

    def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        result = linear.product(x, weight, bias)
        if result.shape[1] == vocabulary:
            assert not any(logits() is not None for logits in made)
            made.append(weakref.ref(result))
        return result

    monkeypatch.setattr(linear_softmax, "product", product)
    return made
