"""What the encoders with a fused kernel share: a stack of equal layers, one call over a whole segment."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from spanlm.errors import require


class StackConfig(Protocol):
    """The fields that every stack has."""

    @property
    def hidden_size(self) -> int:
        """Units of each layer."""

    @property
    def layers(self) -> int:
        """How many layers."""

    @property
    def dropout(self) -> float:
        """Between layers."""


def check_stack(config: StackConfig) -> None:
    """Refuse sizes that build nothing."""
    require(config.hidden_size >= 1, "model.encoder.hidden_size", config.hidden_size, "at least 1")
    require(config.layers >= 1, "model.encoder.layers", config.layers, "at least 1")
    require(0 <= config.dropout < 1, "model.encoder.dropout", config.dropout, "in [0, 1)")


def describe_stack(name: str, config: StackConfig) -> str:
    """Return `LSTM 300` or `LSTM 2×300`."""
    return f"{name} {f'{config.layers}×' if config.layers > 1 else ''}{config.hidden_size}"


def dropout_between_layers(config: StackConfig) -> float:
    """Return the dropout that acts: a single layer has nothing between its layers, and the library warns of it."""
    return config.dropout if config.layers > 1 else 0.0


@torch.no_grad()
def initialise_stack(stack: nn.RNNBase, init_range: float) -> None:
    """Start every weight uniform in ±init_range.

    The library keeps two biases where the papers have one: the second is held at zero.
    """
    for name, weight in stack.named_parameters():
        if name.startswith("bias_hh"):
            weight.zero_().requires_grad_(False)
        else:
            weight.uniform_(-init_range, init_range)


def zeros_of(stack: nn.RNNBase, batch_size: int) -> Tensor:
    """Return zeros (layers, B, H) where the stack's weights are."""
    weight: Tensor = stack.get_parameter("weight_hh_l0")
    return weight.new_zeros(stack.num_layers, batch_size, stack.hidden_size)
