"""The LSTM encoder (Hochreiter & Schmidhuber, 1997; the variant of Zaremba et al., 2014).

i, f, g, o = W_ih x_t + W_hh h_{t-1} + b,
c_t = σ(f) ⊙ c_{t-1} + σ(i) ⊙ tanh(g),    h_t = σ(o) ⊙ tanh(c_t)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from spanlm.models.encoders.fused import FusedLSTM
from spanlm.models.encoders.stack import StackConfig, dropout_between_layers, initialise_stack, zeros_of
from spanlm.models.interfaces import Encoder, Init
from spanlm.models.ops.lstm_layer import loop_is_faster, lstm_layer
from spanlm.models.state import Tensors


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(StackConfig):
    """Long short-term memory, one bias per gate.

    Attributes:
        kind: which encoder: lstm, variational_lstm, awd_lstm, rnn or hornn. Another kind has other fields.
        hidden_size: units of each layer; the last layer's are the encoder's output.
        layers: how many layers.
        dropout: between layers, on what one layer hands to the next (not over time).
        forget_bias: where the forget gate's bias starts (1: a cell remembers at first); null: uniform like every other
            bias.
    """

    kind: Literal["lstm"] = "lstm"
    forget_bias: float | None = 1.0

    def build(self, input_size: int, init: Init) -> LSTMEncoder:
        """Make the encoder."""
        return LSTMEncoder(self, input_size, init)


@torch.no_grad()
def initialise_lstm(lstm: nn.LSTM, init: Init, forget_bias: float | None) -> None:
    """Start every weight as `init` says, but for the forget gates' biases unless `forget_bias` is None."""
    initialise_stack(lstm, init)
    if forget_bias is not None:
        for layer in range(lstm.num_layers):
            bias = lstm.get_parameter(f"bias_ih_l{layer}")
            bias[lstm.hidden_size : 2 * lstm.hidden_size] = forget_bias


class LSTMEncoder(Encoder):
    """A stack of LSTM layers; x (T, B, E) -> h (T, B, H), state h and c (layers, B, H).

    One fused call, but where a loop gets gradients faster on a CPU: of large layers in bfloat16, or over a few words
    (`spanlm.models.ops.lstm_layer`).
    """

    def __init__(self, config: LSTMConfig, input_size: int, init: Init) -> None:
        super().__init__()
        self.output_size = config.hidden_size
        self.lstm = FusedLSTM(input_size, config.hidden_size, config.layers, dropout=dropout_between_layers(config))
        initialise_lstm(self.lstm, init, config.forget_bias)

    def init_state(self, batch_size: int) -> Tensors:
        """Zeros."""
        return {"h": zeros_of(self.lstm, batch_size), "c": zeros_of(self.lstm, batch_size)}

    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Read x (T, B, E)."""
        if loop_is_faster(self.output_size, x):
            return self._looped(x, state)
        output, (h, c) = self.lstm(x, (state["h"], state["c"]))
        return output, {"h": h, "c": c}

    def _looped(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Read x layer by layer, with dropout between the layers."""
        ends = []
        for layer, (h, c) in enumerate(zip(state["h"], state["c"], strict=True)):
            if layer:
                x = dropout(x, self.lstm.dropout, self.training)
            # read as they are now, which `torch.func.functional_call` may have changed
            weights = (getattr(self.lstm, f"{name}_l{layer}") for name in ("weight_ih", "bias_ih", "weight_hh"))
            x, c = lstm_layer(x, h, c, *weights)
            ends.append((x[-1], c))
        h, c = map(torch.stack, zip(*ends, strict=True))
        return x, {"h": h, "c": c}
