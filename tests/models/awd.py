"""What the tests of the AWD-LSTM encoder share: a small one, what it reads, what it draws."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor, nn

from spanlm.models.encoders import AWDLSTMConfig, awd_lstm
from spanlm.models.encoders.awd_lstm import AWDLSTMEncoder
from spanlm.models.interfaces import Tensors
from spanlm.models.ops import dropout
from tests.models.small import EMBEDDING, build, values

WIDE, LAST = 6, 4
STEPS, BATCH = 5, 3
NOISY = {"hidden_dropout": 0.3, "weight_drop": 0.4}
KERNELS = ["kernel", "loop"]


def stack(layers: int = 3, hidden_dropout: float = 0.0, weight_drop: float = 0.0) -> AWDLSTMEncoder:
    sizes = {"hidden_size": WIDE, "layers": layers, "last_size": LAST}
    config = AWDLSTMConfig(**sizes, hidden_dropout=hidden_dropout, weight_drop=weight_drop)
    encoder: AWDLSTMEncoder = build(config, EMBEDDING)
    return encoder.train()


def inputs(encoder: AWDLSTMEncoder, steps: int = STEPS, batch: int = BATCH) -> tuple[Tensor, Tensors]:
    """What a segment reads, with a state carried over; all of it gets gradients."""
    zeros = encoder.init_state(batch)
    state = {name: values(*zero.shape, seed=n).requires_grad_() for n, (name, zero) in enumerate(zeros.items(), 1)}
    return values(steps, batch, EMBEDDING).requires_grad_(), state


def matrices(encoder: AWDLSTMEncoder) -> list[nn.Parameter]:
    return [layer.get_parameter("weight_hh_l0") for layer in encoder.layers]


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What is drawn from now on, in order: masks of units (B, H) and of weights (4H, H)."""
    drawn: list[Tensor] = []
    draw, drop = dropout.dropout_mask, awd_lstm.weight_drop

    def mask_of_units(*given: Any, streams: int) -> Tensor:
        drawn.append(draw(*given, streams=streams))
        return drawn[-1]

    def mask_of_weights(weight: Tensor, rate: float, training: bool) -> Tensor:
        dropped = drop(weight, rate, training)
        if dropped is not weight:
            drawn.append((dropped / weight).detach())
        return dropped

    monkeypatch.setattr(dropout, "dropout_mask", mask_of_units)
    monkeypatch.setattr(awd_lstm, "weight_drop", mask_of_weights)
    return drawn


def replayed(monkeypatch: pytest.MonkeyPatch, drawn: list[Tensor], device: str) -> None:
    masks = [mask.to(device) for mask in drawn]
    monkeypatch.setattr(dropout, "dropout_mask", lambda *given, **more: masks.pop(0))
    monkeypatch.setattr(awd_lstm, "weight_drop", lambda weight, *given: weight * masks.pop(0))


def choose(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    """Run every layer as the library does ("kernel"), or as a loop, in whatever type."""
    monkeypatch.setattr(awd_lstm, "loop_is_faster", lambda units, x: kernel == "loop")
