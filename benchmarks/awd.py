"""AWD-LSTM at its published size, beside a port of its authors' code, and with a span buffer on top beside without.

The port draws the noise and adds the penalties of salesforce/awd-lstm-lm, on torch's own modules, its recurrent weights
dropped by a functional call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from benchmarks.lstm import beside_port
from benchmarks.race import Aim, Contender
from benchmarks.setting import Plain, Size, States, of_preset, own_trainer, plain_step, raced, training_flops, ways
from spanlm.models.encoders import AWDLSTMConfig
from spanlm.models.memories import NoMemoryConfig, SpanBufferConfig

ACTIVATION_PENALTY, TEMPORAL_PENALTY = 2.0, 1.0
AWD_PTB = of_preset("merity2018/awd-ptb", "AWD-LSTM PTB size tied", batch_size=20, length=70)
AWD_SNB = replace(
    AWD_PTB,
    name="AWD-LSTM PTB size tied, span buffer 512 / 8",
    model=replace(
        AWD_PTB.model,
        output_dropout=0.0,
        memory=SpanBufferConfig(buffer_size=512, span_length=8, dropout=AWD_PTB.model.output_dropout),
    ),
)

awd_trainer = partial(own_trainer, activation_penalty=ACTIVATION_PENALTY, temporal_penalty=TEMPORAL_PENALTY)
"""Makes the library's trainer with both penalties."""


def locked(x: Tensor, rate: float) -> Tensor:
    """Drop units of x (T, B, D), the same ones at all steps."""
    return x.new_empty(1, *x.shape[1:]).bernoulli_(1 - rate) / (1 - rate) * x


class PortedAWD(Plain):
    """Word types, input, recurrent weights, hidden outputs and output dropped; in training alone."""

    cross_entropy: Callable[[Tensor, Tensor], Tensor] = staticmethod(functional.cross_entropy)

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.config, encoder = size.model, size.model.encoder
        assert isinstance(encoder, AWDLSTMConfig)
        self.noise = encoder
        self.embedding = nn.Embedding(size.vocabulary_size, self.config.embedding_size)
        widths = [self.config.embedding_size, *encoder.sizes]
        self.layers = nn.ModuleList(nn.LSTM(*pair) for pair in pairwise(widths))
        self.decoder: nn.Module = nn.Linear(encoder.last_size, size.vocabulary_size)
        self.decoder.weight = self.embedding.weight

    def forward(self, inputs: Tensor, states: States) -> tuple[tuple[Tensor, Tensor, Tensor], States]:
        """Return logits (T, B, V), the last layer's outputs before and after dropout, and the states after."""
        config, table, after = self.config, self.embedding.weight, States()
        rate = config.embedding_dropout
        types = table.new_empty(len(table), 1).bernoulli_(1 - rate).expand_as(table) / (1 - rate)
        x = locked(functional.embedding(inputs, types * table), config.input_dropout)
        for n, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            if n:
                x = locked(x, self.noise.hidden_dropout)
            dropped = functional.dropout(layer.get_parameter("weight_hh_l0"), self.noise.weight_drop)
            x, state = functional_call(layer, {"weight_hh_l0": dropped}, (x, state))
            after.append(state)
        features = locked(x, config.output_dropout)
        return (self.decoder(features), x, features), after

    def loss(self, outputs: tuple[Tensor, Tensor, Tensor], targets: Tensor) -> Tensor:
        """Return the mean of −log p(target), and both penalties."""
        logits, raw, features = outputs
        loss = self.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss = loss + ACTIVATION_PENALTY * features.float().pow(2).mean()
        return loss + TEMPORAL_PENALTY * (raw[1:] - raw[:-1]).float().pow(2).mean()

    def zeros(self, batch_size: int) -> States:
        """States at the start of streams."""
        zeros = [self.embedding.weight.new_zeros(1, batch_size, size) for size in self.noise.sizes]
        return [(zero, zero) for zero in zeros]


def awd_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """The AWD-LSTM's training step against the port's: the same noise, the same penalties."""
    flops, targets = training_flops(size), {"fp32": 1.0, "bf16": 1.5}
    for precision in raced(device):
        step = plain_step(PortedAWD(size), size, precision, device)
        yield Contender(f"port, training {precision}", precision, step, flops)
    for precision in raced(device):
        for ending, graph in ways(device).items():
            trainer = awd_trainer(size, precision, device, graph=graph)
            yield beside_port("port", precision, trainer, flops, targets[precision], ending)


def span_buffer_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """The model with its span buffer against the same model without."""
    plain = without_buffer(size)
    for precision in raced(device):
        reference = f"no buffer, training {precision}"
        yield Contender(reference, precision, awd_trainer(plain, precision, device).step, training_flops(plain))
        step = awd_trainer(size, precision, device).step
        aims = [Aim(reference, 1 / 1.5)]
        yield Contender(f"span buffer, training {precision}", precision, step, buffer_flops(size), aims)


def without_buffer(size: Size) -> Size:
    """Return the same size without its buffer; what the head reads is dropped at the same rate."""
    assert isinstance(size.model.memory, SpanBufferConfig)
    dropout = size.model.memory.dropout
    return replace(size, model=replace(size.model, memory=NoMemoryConfig(), output_dropout=dropout))


def buffer_flops(size: Size) -> float:
    """Floating-point operations of one trained token: the head is asked twice, and spans carried over are projected.

    These are projected forwards and give the projection a gradient, and need none themselves.
    """
    buffer, width = size.model.memory, size.model.encoder.output_size
    assert isinstance(buffer, SpanBufferConfig)
    carried = (buffer.buffer_size - buffer.span_length) / size.length
    return training_flops(size) + 6.0 * size.vocabulary_size * width + 4.0 * carried * width * width
