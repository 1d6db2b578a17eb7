"""The LSTM with variational dropout and zoneout.

Gal & Ghahramani (2016; Press & Wolf's "BD"): a layer's inputs, x_t from below and h_{t-1}, are dropped with masks that
stay the same over the steps of a segment, one for each gate (`per_gate`) or one for all four:

    i, f, g, o = W_ih (x_t ⊙ z_x) + W_hh (h_{t-1} ⊙ z_h) + b,        z ~ Bernoulli(1 − rate) / (1 − rate)
    c̃_t = σ(f) ⊙ c_{t-1} + σ(i) ⊙ tanh(g),    h̃_t = σ(o) ⊙ tanh(c̃_t)

Zoneout (Krueger et al., 2017): at every step a random set of units keeps the last value; evaluation uses the
expectation:

    c_t = d_c ⊙ c_{t-1} + (1 − d_c) ⊙ c̃_t,    h_t = d_h ⊙ h_{t-1} + (1 − d_h) ⊙ h̃_t,    d ~ Bernoulli(zoneout)

New masks act on the state carried over from the last segment, as in the public code. Without dropout and zoneout this
is the plain LSTM in its fused kernel.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor, nn

from spanlm.models.encoders.stacks import FORGET_BIAS, EncoderConfig, FusedLSTM, LSTMConfig, initialise, zeros_of
from spanlm.models.interfaces import Encoder, Init, Tensors
from spanlm.models.ops.dropout import dropout_mask, keep_mask, locked_dropout
from spanlm.models.ops.lstm import GATES, lstm_recurrence
from spanlm.models.ops.precision import wide_dtype
from spanlm.options import RATE, WEIGHT, at_least, option, options


@options()
class VariationalLSTMConfig(EncoderConfig):
    """An LSTM whose dropout masks are locked in time (Gal & Ghahramani, 2016), with zoneout (Krueger et al., 2017)."""

    kind: Literal["variational_lstm"] = "variational_lstm"
    layers: int = option("how many layers", default=1, limit=at_least(1))
    input_dropout: float = option(
        "dropout on each layer's input from below, including the embedded words", default=0.0, limit=RATE
    )
    recurrent_dropout: float = option("dropout on each layer's last output", default=0.0, limit=RATE)
    per_gate: bool = option(
        "draw a mask for each of the four gates; false: one mask for all, ordinary locked dropout", default=True
    )
    zoneout_h: float = option("probability that a unit keeps its last output", default=0.0, limit=RATE)
    zoneout_c: float = option("probability that a unit keeps its last cell", default=0.0, limit=RATE)
    forget_bias: float | None = option(FORGET_BIAS, default=1.0, limit=WEIGHT)

    @property
    def description(self) -> str:
        return f"variational {LSTMConfig(hidden_size=self.hidden_size, layers=self.layers).description}"

    def build(self, input_size: int, init: Init) -> VariationalLSTMEncoder:
        return VariationalLSTMEncoder(self, input_size, init)


class VariationalLSTMEncoder(Encoder):
    """A stack of noisy LSTM layers; x (T, B, E) -> h (T, B, H), state h and c (layers, B, H)."""

    def __init__(self, config: VariationalLSTMConfig, input_size: int, init: Init) -> None:
        super().__init__()
        self.config: VariationalLSTMConfig = config
        self.output_size: int = config.hidden_size
        sizes = [input_size, *[config.hidden_size] * (config.layers - 1)]
        self.layers: nn.ModuleList = nn.ModuleList(FusedLSTM(size, config.hidden_size) for size in sizes)
        for layer in self._layers:
            initialise(layer, init, config.forget_bias)

    @property
    def _layers(self) -> list[FusedLSTM]:
        return [cast(FusedLSTM, layer) for layer in self.layers]

    def init_state(self, batch_size: int) -> Tensors:
        return {name: torch.cat([zeros_of(layer, batch_size) for layer in self._layers]) for name in ("h", "c")}

    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        read = self._fused if self._fits_the_kernel else self._noisy
        ends = []
        for layer, h, c in zip(self._layers, state["h"], state["c"], strict=True):
            x, *end = read(layer, x, h, c)
            ends.append(end)
        h, c = (torch.stack(ends_of) for ends_of in zip(*ends, strict=True))
        return x, {"h": h, "c": c}

    @property
    def _fits_the_kernel(self) -> bool:
        config = self.config
        if config.zoneout_h or config.zoneout_c:
            return False
        return not self.training or not (config.recurrent_dropout or (config.input_dropout and config.per_gate))

    def _fused(self, layer: FusedLSTM, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = locked_dropout(x, self.config.input_dropout, self.training)
        output, (h, c) = layer(x, (h.unsqueeze(0), c.unsqueeze(0)))
        return output, h.squeeze(0), c.squeeze(0)

    def _noisy(self, layer: FusedLSTM, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        config, wide = self.config, wide_dtype(x.dtype)
        weight_ih, weight_hh, bias = (
            layer.get_parameter(f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih")
        )
        mask = self._mask(x, config.input_dropout)
        dropped = (x if mask is None else x * mask.unsqueeze(1)).expand(GATES, *x.shape)
        products = torch.bmm(dropped.flatten(1, 2), weight_ih.view(GATES, -1, x.shape[-1]).transpose(1, 2))
        inputs = products.to(wide).view(GATES, *x.shape[:2], -1) + bias.view(GATES, 1, 1, -1)
        outputs, c = lstm_recurrence(
            inputs,
            h.to(wide),
            c.to(wide),
            weight_hh,
            self._mask(inputs[0], config.recurrent_dropout),
            self._kept(inputs[0], config.zoneout_h),
            self._kept(inputs[0], config.zoneout_c),
        )
        return outputs, outputs[-1], c

    def _mask(self, x: Tensor, rate: float) -> Tensor | None:
        """Draw the masks of x (T, B, D) for a segment: (4, B, D), or (1, B, D) for the four gates."""
        if not self.training or not rate:
            return None
        return dropout_mask((GATES if self.config.per_gate else 1, *x.shape[1:]), rate, x, streams=1)

    def _kept(self, x: Tensor, rate: float) -> Tensor | None:
        """Draw which units of x (T, B, H) keep their last value at each step; in evaluation return the probability."""
        if not rate:
            return None
        if not self.training:
            return x.new_tensor(rate).expand_as(x)
        return keep_mask(x.shape, 1 - rate, x.device, streams=1).to(x.dtype)
