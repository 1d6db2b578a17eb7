"""The LSTM with variational dropout and zoneout.

Gal & Ghahramani (2016, Eq. 7-10; Press & Wolf's "BD"): what a layer reads, x_t from below and h_{t-1}, is dropped
with masks that stay the same over the steps of a segment, of each gate its own (`per_gate`) or one for the four:

    i, f, g, o = W_ih (x_t ⊙ z_x) + W_hh (h_{t-1} ⊙ z_h) + b,        z ~ Bernoulli(1 − rate) / (1 − rate)
    c̃_t = σ(f) ⊙ c_{t-1} + σ(i) ⊙ tanh(g),    h̃_t = σ(o) ⊙ tanh(c̃_t)

Zoneout (Krueger et al., 2017, §3.2): units keep the value of the step before, drawn anew at every step; evaluated,
the expectation:

    c_t = d_c ⊙ c_{t-1} + (1 − d_c) ⊙ c̃_t,    h_t = d_h ⊙ h_{t-1} + (1 − d_h) ⊙ h̃_t,    d ~ Bernoulli(zoneout)

What a stream carries over from the last segment meets new masks, as in the public code. Without noise to draw, or to
take the expectation of, this is the plain LSTM in its fused kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from spanlm.errors import require
from spanlm.models.dropout import dropout_mask
from spanlm.models.encoders.lstm import LSTMConfig, LSTMEncoder
from spanlm.models.interfaces import Init, Tensors


@dataclass(frozen=True, kw_only=True)
class VariationalLSTMConfig:
    """An LSTM whose dropout masks are locked in time (Gal & Ghahramani, 2016), with zoneout (Krueger et al., 2017).

    Attributes:
        kind: which encoder: lstm, variational_lstm, rnn or hornn. Another kind has other fields.
        hidden_size: units of each layer; the last layer's are the encoder's output.
        layers: how many layers.
        input_dropout: of what each layer reads from below, the first layer's embedded words included.
        recurrent_dropout: of what each layer reads from its own last output.
        per_gate: each of the four gates has masks of its own; false: one for the four, which is faster.
        zoneout_h: probability that a unit's output stays as it was.
        zoneout_c: likewise of its cell.
        forget_bias: where the forget gate's bias starts; null: uniform like every other bias.
    """

    kind: Literal["variational_lstm"] = "variational_lstm"
    hidden_size: int = 300
    layers: int = 1
    input_dropout: float = 0.0
    recurrent_dropout: float = 0.0
    per_gate: bool = True
    zoneout_h: float = 0.0
    zoneout_c: float = 0.0
    forget_bias: float | None = 1.0

    def __post_init__(self) -> None:
        """Refuse sizes that build nothing."""
        require(self.hidden_size >= 1, "model.encoder.hidden_size", self.hidden_size, "at least 1")
        require(self.layers >= 1, "model.encoder.layers", self.layers, "at least 1")
        for name in ("input_dropout", "recurrent_dropout", "zoneout_h", "zoneout_c"):
            value = getattr(self, name)
            require(0 <= value < 1, f"model.encoder.{name}", value, "in [0, 1)")

    @property
    def output_size(self) -> int:
        """H."""
        return self.hidden_size

    @property
    def description(self) -> str:
        """What it is, in a few words: `variational LSTM 2×650`."""
        return f"variational {self.plain.description}"

    @property
    def plain(self) -> LSTMConfig:
        """The same without noise."""
        return LSTMConfig(hidden_size=self.hidden_size, layers=self.layers, forget_bias=self.forget_bias)

    def resized(self, output_size: int) -> VariationalLSTMConfig:
        """Make a copy with another hidden size."""
        return replace(self, hidden_size=output_size)

    def build(self, input_size: int, init: Init) -> VariationalLSTMEncoder:
        """Make the encoder."""
        return VariationalLSTMEncoder(self, input_size, init)
