"""Stacks of equal layers in torch's fused kernels: the LSTM and the simple recurrent network.

The LSTM (Hochreiter & Schmidhuber, 1997; the variant of Zaremba et al., 2014):

    i, f, g, o = W_ih x_t + W_hh h_{t-1} + b,    c_t = σ(f) ⊙ c_{t-1} + σ(i) ⊙ tanh(g),    h_t = σ(o) ⊙ tanh(c_t)

The simple recurrent network (Elman, 1990), the RNN of Daniluk et al. (2017, Figure 2c):

    h_t = tanh(W_ih x_t + W_hh h_{t-1} + b)

Dynamic evaluation needs gradients in evaluation mode, where cuDNN computes none (pytorch issue 5878). So whenever
gradients are enabled the kernel runs in training mode, in evaluation without the dropout between layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from spanlm.models.interfaces import Encoder, Init, Tensors
from spanlm.models.kernels import loop_is_faster, one_step_of_few
from spanlm.models.ops.dropout import dropout
from spanlm.models.ops.lstm import lstm_layer
from spanlm.options import RATE, WEIGHT, at_least, option, options

FORGET_BIAS = "where the forget gate's bias starts (1: a cell remembers at first); null: uniform like every other bias"


@options("model.encoder")
class EncoderConfig:
    """The base of every encoder's configuration; by default the output is as wide as each layer."""

    kind: str = option("which encoder")
    hidden_size: int = option(
        "units of each layer; the last layer's are the encoder's output", default=300, limit=at_least(1)
    )

    @property
    def output_size(self) -> int:
        return self.hidden_size

    @property
    def equation(self) -> str:
        """Equation of a layer's step in one line for people; by default an LSTM's."""
        return "c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g),  h_t = σ(o) ⊙ tanh(c_t)"

    def resized(self, output_size: int) -> Self:
        return replace(self, hidden_size=output_size)


@options()
class StackConfig(EncoderConfig):
    """Equal layers, each reading the output of the layer below."""

    layers: int = option("how many layers", default=1, limit=at_least(1))
    dropout: float = option("dropout between layers (not over time)", default=0.0, limit=RATE)

    @property
    def description(self) -> str:
        return f"{self.kind.upper()} {f'{self.layers}×' if self.layers > 1 else ''}{self.hidden_size}"

    @property
    def dropout_between(self) -> float:
        """The effective dropout: 0 for a single layer, for which torch would warn of any other."""
        return self.dropout if self.layers > 1 else 0.0


@torch.no_grad()
def initialise(stack: nn.RNNBase, init: Init, forget_bias: float | None = None) -> None:
    """Initialise weights by `init`, and the biases of an LSTM's forget gates by `forget_bias` unless it is None.

    torch has two biases where the papers have one: the second stays zero.
    """
    for name, weight in stack.named_parameters():
        if name.startswith("bias_hh"):
            weight.zero_().requires_grad_(False)
        else:
            init.start(weight, bias="bias" in name)
            if forget_bias is not None and name.startswith("bias_ih"):
                weight[stack.hidden_size : 2 * stack.hidden_size] = forget_bias


def zeros_of(stack: nn.RNNBase, batch_size: int) -> Tensor:
    """Return zeros (layers, B, H) on the stack's device."""
    weight: Tensor = stack.get_parameter("weight_hh_l0")
    return weight.new_zeros(stack.num_layers, batch_size, stack.hidden_size)


class FusedLSTM(nn.LSTM):
    """`nn.LSTM` with the same weights; x (T, B, E), state h and c (layers, B, H) -> h (T, B, H), state.

    Each call reads the current weights, which `torch.func.functional_call` may have replaced.
    """

    def forward(  # type: ignore[override]  # no packed sequences, and never without a state
        self, x: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if one_step_of_few(x) and not self.training:
            return self._step(x, state)
        output, h, c = _read(torch.lstm, self, x, *state)
        return output, (h, c)

    def _step(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        output, ends = x[0], []
        for layer, both in enumerate(zip(*state, strict=True)):
            ends.append(torch.lstm_cell(output, both, *_weights(self, layer).values()))
            output = ends[-1][0]
        h, c = map(torch.stack, zip(*ends, strict=True))
        return output.unsqueeze(0), (h, c)


class FusedRNN(nn.RNN):
    """`nn.RNN` of tanh units with the same weights; x (T, B, E), state h (layers, B, H) -> h (T, B, H), state."""

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        output, h = _read(torch.rnn_tanh, self, x, state)
        return output, h


def _read(kernel: Any, stack: nn.RNNBase, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
    """Call torch's kernel: for all layers at once, or one by one with dropout between them.

    cuDNN's own dropout has a generator that a checkpoint cannot save (pytorch issue 104697).
    """
    rate, train = stack.dropout if stack.training else 0.0, stack.training or torch.is_grad_enabled()

    def call(x: Tensor, weights: list[Tensor], layers: int, rate: float, state: Sequence[Tensor]) -> Any:
        first = state[0] if len(state) == 1 else tuple(state)
        return kernel(x, first, weights, True, layers, rate, train, False, False)

    if not rate:
        weights = [weight for layer in range(stack.num_layers) for weight in _weights(stack, layer).values()]
        return tuple(call(x, weights, stack.num_layers, rate, state))
    ends = []
    for layer in range(stack.num_layers):
        weights_of = _weights(stack, layer)
        weights_of = weights_of if x.is_cpu else in_one_chunk(weights_of)
        x = dropout(x, rate if layer else 0.0, train)
        x, *end = call(x, list(weights_of.values()), 1, 0.0, [part[layer : layer + 1] for part in state])
        ends.append(end)
    return x, *map(torch.cat, zip(*ends, strict=True))


def _weights(stack: nn.RNNBase, layer: int) -> Tensors:
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return {name: getattr(stack, f"{name}_l{layer}") for name in names}


def in_one_chunk(weights: Tensors) -> Tensors:
    """Copy a layer's weights into one contiguous tensor, in torch's order, which is cuDNN's.

    cuDNN needs them so: otherwise it would copy them at every call, with a warning.
    """
    sizes = [weight.numel() for weight in weights.values()]
    parts = torch.cat([weight.flatten() for weight in weights.values()]).split_with_sizes(sizes)
    return {name: part.view_as(weight) for part, (name, weight) in zip(parts, weights.items(), strict=True)}


@options()
class LSTMConfig(StackConfig):
    """Long short-term memory, one bias per gate."""

    kind: Literal["lstm"] = "lstm"
    forget_bias: float | None = option(FORGET_BIAS, default=1.0, limit=WEIGHT)

    def build(self, input_size: int, init: Init) -> LSTMEncoder:
        return LSTMEncoder(self, input_size, init)


class LSTMEncoder(Encoder):
    """A stack of LSTM layers; x (T, B, E) -> h (T, B, H), state h and c (layers, B, H).

    Runs one fused call, or a loop where that is faster.
    """

    def __init__(self, config: LSTMConfig, input_size: int, init: Init) -> None:
        super().__init__()
        self.output_size: int = config.hidden_size
        self.lstm: FusedLSTM = FusedLSTM(input_size, config.hidden_size, config.layers, dropout=config.dropout_between)
        initialise(self.lstm, init, config.forget_bias)

    def init_state(self, batch_size: int) -> Tensors:
        return {"h": zeros_of(self.lstm, batch_size), "c": zeros_of(self.lstm, batch_size)}

    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        if loop_is_faster(self.output_size, x):
            return self._looped(x, state)
        output, (h, c) = self.lstm(x, (state["h"], state["c"]))
        return output, {"h": h, "c": c}

    def _looped(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        ends = []
        for layer, (h, c) in enumerate(zip(state["h"], state["c"], strict=True)):
            if layer:
                x = dropout(x, self.lstm.dropout, self.training)
            # read at every call, since `torch.func.functional_call` may have replaced them
            weights = (getattr(self.lstm, f"{name}_l{layer}") for name in ("weight_ih", "bias_ih", "weight_hh"))
            x, c = lstm_layer(x, h, c, *weights)
            ends.append((x[-1], c))
        h, c = map(torch.stack, zip(*ends, strict=True))
        return x, {"h": h, "c": c}


@options()
class RNNConfig(StackConfig):
    """A simple recurrent network of tanh units, one bias per unit."""

    kind: Literal["rnn"] = "rnn"

    @property
    def equation(self) -> str:
        return "h_t = tanh(W_ih x_t + W_hh h_{t−1} + b)"

    def build(self, input_size: int, init: Init) -> RNNEncoder:
        return RNNEncoder(self, input_size, init)


class RNNEncoder(Encoder):
    """A stack of tanh layers in one fused call; x (T, B, E) -> h (T, B, H), state h (layers, B, H)."""

    def __init__(self, config: RNNConfig, input_size: int, init: Init) -> None:
        super().__init__()
        self.output_size: int = config.hidden_size
        self.rnn: FusedRNN = FusedRNN(input_size, config.hidden_size, config.layers, dropout=config.dropout_between)
        initialise(self.rnn, init)

    def init_state(self, batch_size: int) -> Tensors:
        return {"h": zeros_of(self.rnn, batch_size)}

    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        output, h = self.rnn(x, state["h"])
        return output, {"h": h}
