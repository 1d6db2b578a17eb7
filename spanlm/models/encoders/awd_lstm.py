"""The AWD-LSTM encoder (Merity, Keskar & Socher, 2018, "Regularizing and Optimizing LSTM Language Models").

Layers of plain LSTMs, the last one as wide as the embedding to which the softmax is tied. Training adds two kinds of
noise, drawn once per segment. With x^1 the embedded words, layer l = 1 … L computes

    i, f, g, o = W_ih x_t^l + b_ih + (W_hh ⊙ m^l) h_{t-1} + b_hh,        m^l ~ Bernoulli(1 − p) / (1 − p)      (§ 2)
    c_t = σ(f) ⊙ c_{t-1} + σ(i) ⊙ tanh(g),    h_t = σ(o) ⊙ tanh(c_t)
    x_t^{l+1} = h_t ⊙ z^l,                                               z^l ~ Bernoulli(1 − q) / (1 − q)      (§ 4.2)

m, "weight drop" (DropConnect, Wan et al., 2013), has an entry for each weight in the four gates' W_hh, shared by all
steps and streams. z, locked dropout, has an entry for each unit of each stream, shared by all steps. Other dropouts
belong to `ModelConfig`. As in the authors' code (salesforce/awd-lstm-lm), weights and biases start uniform in ±1/√H,
with H of their layer, for every model.init_range, and both bias vectors learn.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Literal, Self, cast

from torch import Tensor, nn
from torch.func import functional_call

from spanlm.models.encoders.stacks import EncoderConfig, FusedLSTM, in_one_chunk, zeros_of
from spanlm.models.interfaces import Encoder, Init, Tensors
from spanlm.models.kernels import loop_is_faster
from spanlm.models.ops.dropout import dropout, locked_dropout
from spanlm.models.ops.lstm import lstm_layer
from spanlm.options import RATE, at_least, option, options

Pair = tuple[Tensor, Tensor]
"""h and c."""


@options()
class AWDLSTMConfig(EncoderConfig):
    """LSTM layers with dropped recurrent weights and locked dropout between the layers (Merity et al., 2018)."""

    kind: Literal["awd_lstm"] = "awd_lstm"
    hidden_size: int = option("units of each layer but the last", default=1150, limit=at_least(1))
    layers: int = option("how many layers, the last one included", default=3, limit=at_least(1))
    last_size: int = option("units of the last layer, the encoder's output", default=400, limit=at_least(1))
    hidden_dropout: float = option("dropout between layers, locked in time", default=0.25, limit=RATE)
    weight_drop: float = option("share of the recurrent weights that is dropped for a segment", default=0.5, limit=RATE)

    @property
    def output_size(self) -> int:
        return self.last_size

    @property
    def sizes(self) -> list[int]:
        return [*[self.hidden_size] * (self.layers - 1), self.last_size]

    @property
    def description(self) -> str:
        below = {1: "", 2: f"{self.hidden_size}+"}.get(self.layers, f"{self.layers - 1}×{self.hidden_size}+")
        return f"AWD-LSTM {below}{self.last_size}"

    def resized(self, output_size: int) -> Self:
        return replace(self, last_size=output_size)

    def build(self, input_size: int, init: Init) -> AWDLSTMEncoder:
        return AWDLSTMEncoder(self, input_size)


class AWDLSTMEncoder(Encoder):
    """A stack of LSTM layers of different widths; x (T, B, E) -> h (T, B, last_size), state h_l and c_l (1, B, H_l).

    The parameters are those of torch's layers; dropped weights exist only during a segment.
    """

    def __init__(self, config: AWDLSTMConfig, input_size: int) -> None:
        super().__init__()
        self.config: AWDLSTMConfig = config
        self.output_size: int = config.output_size
        self.layers: nn.ModuleList = nn.ModuleList(FusedLSTM(*pair) for pair in pairwise([input_size, *config.sizes]))

    @property
    def _layers(self) -> list[FusedLSTM]:
        return [cast(FusedLSTM, layer) for layer in self.layers]

    def init_state(self, batch_size: int) -> Tensors:
        layers = enumerate(self._layers)
        return {f"{name}_{n}": zeros_of(layer, batch_size) for n, layer in layers for name in ("h", "c")}

    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        after = {}
        for n, layer in enumerate(self._layers):
            if n:
                x = locked_dropout(x, self.config.hidden_dropout, self.training)
            x, (after[f"h_{n}"], after[f"c_{n}"]) = self._read(layer, x, (state[f"h_{n}"], state[f"c_{n}"]))
        return x, after

    def _read(self, layer: FusedLSTM, x: Tensor, state: Pair) -> tuple[Tensor, Pair]:
        weights = self._weights(layer)
        if loop_is_faster(math.sqrt(layer.hidden_size * max(layer.input_size, layer.hidden_size)), x):
            (h,), (c,) = state
            bias = weights["bias_ih_l0"] + weights["bias_hh_l0"]
            outputs, c = lstm_layer(x, h, c, weights["weight_ih_l0"], bias, weights["weight_hh_l0"])
            return outputs, (outputs[-1:], c.unsqueeze(0))
        result: tuple[Tensor, Pair] = functional_call(layer, weights, (x, state))
        return result

    def _weights(self, layer: FusedLSTM) -> Tensors:
        weights: Tensors = dict(layer.named_parameters())
        raw = weights["weight_hh_l0"]
        # for a segment, of all steps and streams (DropConnect, Wan et al., 2013)
        dropped = dropout(raw, self.config.weight_drop, self.training, streams=None)
        if dropped is raw:
            return weights
        weights["weight_hh_l0"] = dropped
        return weights if raw.is_cpu else in_one_chunk(weights)
