"""The Mogrifier LSTM (Melis, Kočiský & Blunsom, 2020): the input and the last output gate each other before each step.

    x^i = 2σ(Q^i h^{i−1}) ⊙ x^{i−2}    for odd i = 1 … r,        x^{−1} = x_t                            (1)
    h^i = 2σ(R^i x^{i−1}) ⊙ h^{i−2}    for even i,               h^0 = h_{t−1}                           (2)

Then comes a step of the LSTM (`stacks.py`) with the last of each. With a rank k each Q and R is the product of two
matrices, of k columns and of k rows.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from spanlm.models.encoders.blocks import Projection
from spanlm.models.encoders.stacks import FORGET_BIAS, LSTMConfig, StackConfig
from spanlm.models.interfaces import Encoder, Init, Tensors
from spanlm.models.kernels import linear
from spanlm.models.ops.dropout import dropout
from spanlm.models.ops.lstm import GATES
from spanlm.models.ops.precision import wide
from spanlm.options import WEIGHT, at_least, option, options


@options()
class MogrifierLSTMConfig(StackConfig):
    """An LSTM whose input and last output gate each other before each step (Melis et al., 2020)."""

    kind: Literal["mogrifier_lstm"] = "mogrifier_lstm"
    rounds: int = option("r, how often one of the two gates the other", default=5, limit=at_least(1))
    rank: int | None = option("rank of the gates' matrices; null: full", default=None, limit=at_least(1))
    forget_bias: float | None = option(FORGET_BIAS, default=1.0, limit=WEIGHT)

    @property
    def equation(self) -> str:
        return "x^i = 2σ(Q^i h^{i−1}) ⊙ x^{i−2},  h^i = 2σ(R^i x^{i−1}) ⊙ h^{i−2},  then " + super().equation

    @property
    def description(self) -> str:
        lstm = LSTMConfig(hidden_size=self.hidden_size, layers=self.layers).description
        return f"Mogrifier {lstm}, {self.rounds} rounds{f' of rank {self.rank}' if self.rank else ''}"

    def build(self, input_size: int, init: Init) -> MogrifierLSTMEncoder:
        return MogrifierLSTMEncoder(self, input_size, init)


class MogrifierCell(nn.Module):
    """A step of one layer; x (B, E), h and c (B, H) -> h, c.

    Under autocast the products run in the autocast type; gates, outputs and cells are float32.
    """

    def __init__(self, config: MogrifierLSTMConfig, input_size: int, init: Init) -> None:
        super().__init__()
        size, rank = config.hidden_size, config.rank

        def gate(read: int, gated: int) -> nn.Module:
            return nn.Sequential(Projection(read, rank), Projection(rank, gated)) if rank else Projection(read, gated)

        rounds = range(1, config.rounds + 1)
        gates = (gate(size, input_size) if i % 2 else gate(input_size, size) for i in rounds)
        self.rounds: nn.ModuleList = nn.ModuleList(gates)
        self.lstm: nn.Linear = nn.Linear(input_size + size, GATES * size)
        init.start_all(self)
        if config.forget_bias is not None:
            nn.init.constant_(self.lstm.bias[size : 2 * size], config.forget_bias)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        for n, gate in enumerate(self.rounds, 1):
            if n % 2:
                x = 2 * wide(gate(h)).sigmoid() * x
            else:
                h = 2 * wide(gate(x)).sigmoid() * h
        gates = wide(linear(torch.cat([x, h], -1), self.lstm.weight, self.lstm.bias))
        i, f, g, o = gates.chunk(GATES, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class MogrifierLSTMEncoder(Encoder):
    """A stack of Mogrifier layers; x (T, B, E) -> h (T, B, H), state h and c (layers, B, H)."""

    def __init__(self, config: MogrifierLSTMConfig, input_size: int, init: Init) -> None:
        super().__init__()
        self.output_size: int = config.hidden_size
        self.dropout: float = config.dropout_between
        sizes = [input_size, *[config.hidden_size] * (config.layers - 1)]
        self.layers: nn.ModuleList = nn.ModuleList(MogrifierCell(config, size, init) for size in sizes)

    def init_state(self, batch_size: int) -> Tensors:
        weight: Tensor = self.layers[0].get_parameter("lstm.weight")
        shape = len(self.layers), batch_size, self.output_size
        return {"h": weight.new_zeros(shape), "c": weight.new_zeros(shape)}

    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        ends = []
        for n, (layer, h, c) in enumerate(zip(self.layers, state["h"], state["c"], strict=True)):
            outputs = []
            for step in dropout(x, self.dropout if n else 0.0, self.training).unbind():
                h, c = layer(step, h, c)
                outputs.append(h)
            x = torch.stack(outputs)
            ends.append((h, c))
        h, c = map(torch.stack, zip(*ends, strict=True))
        return x, {"h": h, "c": c}
