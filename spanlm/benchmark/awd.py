"""AWD-LSTM at its published size, and the training step that a port of its authors' code takes.

The port has the same noise and penalties, drawn and added as in salesforce/awd-lstm-lm, on the library's own modules,
with its weights dropped by a functional call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from spanlm.benchmark.contenders import CLIP, Size, idle_trainer, training_of
from spanlm.config import RunConfig
from spanlm.data.batching import Segment
from spanlm.data.corpora import Corpus
from spanlm.evaluation.protocol import Precision
from spanlm.models.config import ModelConfig
from spanlm.models.encoders import AWDLSTMConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.memories import NoMemoryConfig
from spanlm.training.trainer import Trainer

ACTIVATION_PENALTY, TEMPORAL_PENALTY = 2.0, 1.0
AWD_PTB = Size(
    "AWD-LSTM PTB size tied",
    ModelConfig(
        embedding_size=400,
        embedding_dropout=0.1,
        shared_words=True,
        input_dropout=0.4,
        output_dropout=0.4,
        locked_dropout=True,
        encoder=AWDLSTMConfig(),
        memory=NoMemoryConfig(),
        head=SoftmaxConfig(tied=True),
    ),
    vocabulary_size=10_000,
    batch_size=20,
    length=70,
)
States = list[tuple[Tensor, Tensor]]


def awd_trainer(size: Size, precision: Precision, device: str, corpus: Corpus) -> Trainer:
    """Make the trainer whose step is measured: with both penalties."""
    training = training_of(size, precision, device)
    penalised = replace(training, activation_penalty=ACTIVATION_PENALTY, temporal_penalty=TEMPORAL_PENALTY)
    return idle_trainer(RunConfig(model=size.model, training=penalised), corpus)


def locked(x: Tensor, rate: float) -> Tensor:
    """Drop units of x (T, B, D), the same ones at all steps."""
    mask = x.new_empty(1, *x.shape[1:]).bernoulli_(1 - rate) / (1 - rate)
    return mask * x


class PortedAWD(nn.Module):
    """Word types, input, recurrent weights, hidden outputs and output dropped; in training alone."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.config, encoder = size.model, size.model.encoder
        assert isinstance(encoder, AWDLSTMConfig)
        self.noise = encoder
        self.embedding = nn.Embedding(size.vocabulary_size, self.config.embedding_size)
        widths = [self.config.embedding_size, *encoder.sizes]
        self.layers = nn.ModuleList(nn.LSTM(*pair) for pair in pairwise(widths))
        self.decoder = nn.Linear(encoder.last_size, size.vocabulary_size)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor, states: States) -> tuple[Tensor, Tensor, Tensor, States]:
        """Logits (T, B, V), what the last layer gives, the same dropped, and the states after."""
        config, table, after = self.config, self.embedding.weight, []
        rate = config.embedding_dropout
        types = table.new_empty(len(table), 1).bernoulli_(1 - rate).expand_as(table) / (1 - rate)
        x = locked(functional.embedding(tokens, types * table), config.input_dropout)
        for n, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            if n:
                x = locked(x, self.noise.hidden_dropout)
            dropped = functional.dropout(layer.get_parameter("weight_hh_l0"), self.noise.weight_drop)
            x, state = functional_call(layer, {"weight_hh_l0": dropped}, (x, state))
            after.append(state)
        features = locked(x, config.output_dropout)
        return self.decoder(features), x, features, after

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean of −log p(target) over (T, B), of what `forward` gives for (T, B, V)."""
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def zeros(self, batch_size: int) -> States:
        """States of streams that have read nothing."""
        zeros = [self.embedding.weight.new_zeros(1, batch_size, size) for size in self.noise.sizes]
        return [(zero, zero) for zero in zeros]


def ported_step(
    size: Size, precision: Precision, device: torch.device, port: type[PortedAWD] | None = None
) -> Callable[[Segment], None]:
    """Return the port's training step: forward, cross-entropy and both penalties, backward, clip, SGD."""
    model = (port or PortedAWD)(size).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    states = model.zeros(size.batch_size)

    def step(segment: Segment) -> None:
        nonlocal states
        inputs, targets = segment.inputs.to(device), segment.targets.to(device)
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            logits, raw, features, after = model(inputs, states)
            loss = model.loss(logits, targets)
        loss = loss + ACTIVATION_PENALTY * features.float().pow(2).mean()
        loss = loss + TEMPORAL_PENALTY * (raw[1:] - raw[:-1]).float().pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        states = [(h.detach(), c.detach()) for h, c in after]
        loss.item()

    return step
