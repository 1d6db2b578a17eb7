"""Higher-order recurrent networks (Soltani & Jiang, 2016, "Higher Order Recurrent Neural Networks").

A step multiplies each of the last N outputs by its own matrix, and pools the products in one of three ways:

    fofe    h_t = tanh(W_in x_t + Σ_n αⁿ W_n h_{t-n} + b)                 a fixed forgetting factor α
    gated   h_t = tanh(W_in x_t + Σ_n r_n ⊙ (W_n h_{t-n}) + b),           r_n = σ(V_n x_t + U_n h_{t-n})
    max     h_t = tanh(W_in x_t + max_n(W_n h_{t-n}) + b),                unit by unit

n = 1 … N; outputs before a document are zero. α = 1 is a plain sum, N = 1 with max the simple RNN.

With `newest_apart` the simple RNN's feedback W_0 h_{t-1} stands before the pool, which then has N older outputs:

    h_t = tanh(W_in x_t + W_0 h_{t-1} + pool_n(W_n h_{t-1-n}) + b)

Daniluk et al. (2017, Figure 2c) use fofe and gated of order 3, but print neither equations nor α nor the nonlinearity:
here α = 0.6 and tanh. Their other models have the size whose parameters are nearest to those of an LSTM of 300 units.
So have 303 units (fofe) and 297 units (gated) with four matrices W and three gates, and not with three matrices. So
N = 3 counts the outputs that a simple RNN does not read, and the presets have `newest_apart`; with fofe it is a filter
of third order, Σ αⁿ W_n h_{t-1-n} from n = 0. That the newest output is the one without a gate is a guess.

The code is a plain loop over the steps: a step's products are one batched call, which takes nearly all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from spanlm.errors import require
from spanlm.models.encoders.stacks import EncoderConfig
from spanlm.models.interfaces import Encoder, Init, Tensors
from spanlm.models.ops.precision import product_dtype, wide_dtype
from spanlm.options import Limit, at_least, option, options

FORGETTING_FACTOR = 0.6
Pooling = Literal["fofe", "gated", "max"]
_POOLED = {"fofe": "Σ_n αⁿ W_n h_{t−n}", "gated": "Σ_n r_n ⊙ (W_n h_{t−n})", "max": "max_n(W_n h_{t−n})"}


@options()
class HORNNConfig(EncoderConfig):
    """A recurrent network of order N (Soltani & Jiang, 2016); one layer."""

    kind: Literal["hornn"] = "hornn"
    order: int = option("N, how many past outputs a step reads", default=3, limit=at_least(1))
    pooling: Pooling = option(
        "pooling of the past outputs: fofe (weighted by a power of the forgetting factor), gated or max", default="fofe"
    )
    forgetting_factor: float = option(
        "with pooling fofe, the factor of an output per step into the past; 1 forgets nothing",
        default=FORGETTING_FACTOR,
        limit=Limit(lambda factor: 0 < factor <= 1, "above 0 and at most 1"),
    )

    newest_apart: bool = option(
        "feed the newest output back by a matrix of its own; the pool then has the N outputs before it", default=False
    )

    def __post_init__(self) -> None:
        factor = self.forgetting_factor
        require(
            self.pooling == "fofe" or factor == FORGETTING_FACTOR,
            "model.encoder.forgetting_factor",
            factor,
            f"left at {FORGETTING_FACTOR} with pooling={self.pooling}, which does not use it. Use pooling=fofe.",
        )

    @property
    def equation(self) -> str:
        pooled = _POOLED[self.pooling]
        if self.newest_apart:
            pooled = "W_0 h_{t−1} + " + pooled.replace("{t−n}", "{t−1−n}")
        return f"h_t = tanh(W_in x_t + {pooled} + b)"

    @property
    def description(self) -> str:
        apart = ", newest output apart" if self.newest_apart else ""
        return f"{self.pooling} HORNN {self.hidden_size} of order {self.order}{apart}"

    def build(self, input_size: int, init: Init) -> HORNNEncoder:
        return HORNNEncoder(self, input_size, init)


class HORNNEncoder(Encoder):
    """x (T, B, E) -> h (T, B, H); state: the last outputs h (N, B, H), oldest first, zero where missing.

    With `newest_apart` the state has N + 1 of them.
    """

    def __init__(self, config: HORNNConfig, input_size: int, init: Init) -> None:
        super().__init__()
        self.output_size: int = config.hidden_size
        self.order: int = config.order
        self.pooling = config.pooling
        size, order, gated = config.hidden_size, config.order, config.pooling == "gated"
        self.input: nn.Linear = nn.Linear(input_size, size)  # W_in, b
        # transposed, oldest lag first: [W_N …, W_1], with gates [W_N U_N …, W_1 U_1] side by side
        self.recurrent: nn.Parameter = nn.Parameter(torch.empty(order, size, size * (1 + gated)))
        if gated:
            self.gate: nn.Linear = nn.Linear(input_size, order * size, bias=False)  # V_N …, V_1
        self.feedback: nn.Linear | None = nn.Linear(size, size, bias=False) if config.newest_apart else None  # W_0
        self.forgetting_factor: float = config.forgetting_factor if config.pooling == "fofe" else 1.0
        init.start_all(self)

    def init_state(self, batch_size: int) -> Tensors:
        outputs = self.order + (self.feedback is not None)
        return {"h": self.recurrent.new_zeros(outputs, batch_size, self.output_size)}

    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Read x (T, B, E): all inputs are projected at once, the loop contains only the feedback.

        Under autocast the products run in the autocast type; the outputs and the nonlinearities stay float32.
        """
        dtype = product_dtype(self.recurrent)
        inputs = self.input(x)
        inputs = inputs.to(wide_dtype(inputs.dtype)).unbind()
        gates, matrices = self._gates(x), self._matrices().to(dtype)
        carried = len(state["h"])
        h = list(state["h"].unbind())
        read = [output.to(dtype) for output in h]
        for t, step_input in enumerate(inputs):
            products = torch.bmm(torch.stack(read[t : t + self.order]), matrices)
            fed = step_input if self.feedback is None else step_input + self.feedback(read[-1])
            h.append(torch.tanh(fed + self._pooled(products, gates[t])))
            read.append(h[-1].to(dtype))
        outputs = torch.stack(h)
        return outputs[carried:], {"h": outputs[-carried:]}

    def _pooled(self, products: Tensor, gates: Tensor | None) -> Tensor:
        """Pool the products of one step (N, B, ·); `gates` (N, B, H) is the input's part of the gates."""
        if self.pooling == "max":
            return products.amax(0)
        if gates is None:
            return products.sum(0, dtype=wide_dtype(products.dtype))
        recurrent, gate = products.chunk(2, -1)
        return (torch.sigmoid(gates + gate) * recurrent).sum(0)

    def _gates(self, x: Tensor) -> Sequence[Tensor | None]:
        if self.pooling != "gated":
            return [None] * len(x)
        gates: Tensor = self.gate(x).unflatten(-1, (self.order, -1))
        return gates.to(wide_dtype(gates.dtype)).movedim(2, 1).unbind()

    def _matrices(self) -> Tensor:
        if self.forgetting_factor == 1:
            return self.recurrent
        lags = torch.arange(self.order, 0, -1, device=self.recurrent.device, dtype=self.recurrent.dtype)
        return self.recurrent * torch.pow(self.forgetting_factor, lags).view(-1, 1, 1)
