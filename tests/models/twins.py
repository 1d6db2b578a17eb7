"""What the comparisons with the loops of `tests/reference.py` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tests import reference
from tests.models.small import values


def gradients(outputs: Sequence[Tensor], leaves: Sequence[Tensor]) -> list[Tensor]:
    """Of one fixed scalar that weights every output element differently."""
    loss = sum((x * values(*x.shape, seed=n)).sum() for n, x in enumerate(outputs) if x.requires_grad)
    return list(torch.autograd.grad(loss, list(leaves), retain_graph=True, materialize_grads=True))


def past_outputs(kind: str, capacity: int, batch: int, size: int) -> reference.Past:
    """What each stream remembers: nothing, as much as fits, or from 0 up to that, stream by stream."""
    full = {"fresh": 0, "full": capacity}
    counts = [full.get(kind, (1 + 2 * b) % (capacity + 1)) for b in range(batch)]
    return [[values(size, seed=100 * b + n).requires_grad_() for n in range(count)] for b, count in enumerate(counts)]


def slots(past: reference.Past, length: int, part: Callable[[Tensor], Tensor], empty: Tensor) -> Tensor:
    """(length, B, ·): what is remembered stands at the end, `empty` before it."""
    if not length:
        return empty.new_zeros(0, len(past), *empty.shape)
    columns = [torch.stack([empty] * (length - len(p)) + [part(x) for x in p]) for p in past]
    return torch.stack(columns, dim=1)


def lstm_layers(lstm: torch.nn.LSTM) -> list[reference.LSTMLayer]:
    named = dict(lstm.named_parameters())
    return [
        reference.LSTMLayer(named[f"weight_ih_l{n}"], named[f"weight_hh_l{n}"], named[f"bias_ih_l{n}"])
        for n in range(lstm.num_layers)
    ]
