"""The LSTM encoder (Hochreiter & Schmidhuber, 1997; the variant of Zaremba et al., 2014).

i, f, g, o = W_ih x_t + W_hh h_{t-1} + b,
c_t = σ(f) ⊙ c_{t-1} + σ(i) ⊙ tanh(g),    h_t = σ(o) ⊙ tanh(c_t)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from spanlm.errors import require
from spanlm.models.interfaces import Encoder, Tensors


@dataclass(frozen=True, kw_only=True)
class LSTMConfig:
    """Long short-term memory, one bias per gate.

    Attributes:
        kind: which encoder; there is one.
        hidden_size: units of each layer; the last layer's are the encoder's output.
        layers: how many layers.
        dropout: between layers, on what one layer hands to the next (not over time).
        forget_bias: where the forget gate's bias starts; null: uniform like every other weight.
    """

    kind: Literal["lstm"] = "lstm"
    hidden_size: int = 300
    layers: int = 1
    dropout: float = 0.0
    forget_bias: float | None = 1.0

    def __post_init__(self) -> None:
        """Refuse sizes that build nothing."""
        require(self.hidden_size >= 1, "model.encoder.hidden_size", self.hidden_size, "at least 1")
        require(self.layers >= 1, "model.encoder.layers", self.layers, "at least 1")
        require(0 <= self.dropout < 1, "model.encoder.dropout", self.dropout, "in [0, 1)")

    @property
    def output_size(self) -> int:
        """H."""
        return self.hidden_size

    def resized(self, output_size: int) -> LSTMConfig:
        """Make a copy with another hidden size."""
        return replace(self, hidden_size=output_size)

    def build(self, input_size: int, init_range: float) -> LSTMEncoder:
        """Make the encoder."""
        return LSTMEncoder(self, input_size, init_range)


class LSTMEncoder(Encoder):
    """A stack of LSTM layers in one fused call; x (T, B, E) -> h (T, B, H), state h and c (layers, B, H)."""

    def __init__(self, config: LSTMConfig, input_size: int, init_range: float) -> None:
        super().__init__()
        self.output_size = config.hidden_size
        dropout = config.dropout if config.layers > 1 else 0.0
        self.lstm = nn.LSTM(input_size, config.hidden_size, config.layers, dropout=dropout)
        self._initialise(init_range, config.forget_bias)

    @torch.no_grad()
    def _initialise(self, init_range: float, forget_bias: float | None) -> None:
        size = self.output_size
        for name, weight in self.lstm.named_parameters():
            if name.startswith("bias_hh"):
                # the library keeps two biases a gate where the papers have one: hold the second at zero
                weight.zero_().requires_grad_(False)
                continue
            weight.uniform_(-init_range, init_range)
            if name.startswith("bias_ih") and forget_bias is not None:
                weight[size : 2 * size] = forget_bias

    def init_state(self, batch_size: int) -> Tensors:
        """Zeros."""
        weight: Tensor = self.lstm.get_parameter("weight_hh_l0")
        zeros = weight.new_zeros(self.lstm.num_layers, batch_size, self.output_size)
        return {"h": zeros, "c": zeros.clone()}

    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Read x (T, B, E)."""
        output, (h, c) = self.lstm(x, (state["h"], state["c"]))
        return output, {"h": h, "c": c}
