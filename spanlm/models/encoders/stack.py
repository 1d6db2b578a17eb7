"""What encoders share whose layers are equal, and those with a fused kernel: one call over a whole segment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from spanlm.errors import require
from spanlm.models.interfaces import Init


@dataclass(frozen=True, kw_only=True)
class EqualLayersConfig:
    """An encoder whose output is as wide as each of its layers.

    Attributes:
        kind: which encoder: lstm, variational_lstm, awd_lstm, rnn or hornn. Another kind has other fields.
        hidden_size: units of each layer; the last layer's are the encoder's output.
    """

    kind: str
    hidden_size: int = 300

    @property
    def output_size(self) -> int:
        """H."""
        return self.hidden_size

    def resized(self, output_size: int) -> Self:
        """Make a copy with another hidden size."""
        return replace(self, hidden_size=output_size)


@dataclass(frozen=True, kw_only=True)
class StackConfig(EqualLayersConfig):
    """Equal layers, each reading what the one below wrote.

    Attributes:
        kind: which encoder: lstm, variational_lstm, awd_lstm, rnn or hornn. Another kind has other fields.
        hidden_size: units of each layer; the last layer's are the encoder's output.
        layers: how many layers.
        dropout: between layers, on what one layer hands to the next (not over time).
    """

    layers: int = 1
    dropout: float = 0.0

    def __post_init__(self) -> None:
        """Refuse sizes that build nothing."""
        require(self.hidden_size >= 1, "model.encoder.hidden_size", self.hidden_size, "at least 1")
        require(self.layers >= 1, "model.encoder.layers", self.layers, "at least 1")
        require(0 <= self.dropout < 1, "model.encoder.dropout", self.dropout, "in [0, 1)")

    @property
    def description(self) -> str:
        """What it is, in a few words: `LSTM 300` or `LSTM 2×300`."""
        return f"{self.kind.upper()} {f'{self.layers}×' if self.layers > 1 else ''}{self.hidden_size}"


def dropout_between_layers(config: StackConfig) -> float:
    """Return the dropout that acts: a single layer has nothing between its layers, and the library warns of it."""
    return config.dropout if config.layers > 1 else 0.0


@torch.no_grad()
def initialise_stack(stack: nn.RNNBase, init: Init) -> None:
    """Start every weight as `init` says.

    The library keeps two biases where the papers have one: the second is held at zero.
    """
    for name, weight in stack.named_parameters():
        if name.startswith("bias_hh"):
            weight.zero_().requires_grad_(False)
        else:
            init.start(weight, bias="bias" in name)


def zeros_of(stack: nn.RNNBase, batch_size: int) -> Tensor:
    """Return zeros (layers, B, H) where the stack's weights are."""
    weight: Tensor = stack.get_parameter("weight_hh_l0")
    return weight.new_zeros(stack.num_layers, batch_size, stack.hidden_size)
