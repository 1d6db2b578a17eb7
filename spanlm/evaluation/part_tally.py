"""Sums over a text of what the two parts of a span buffer say: those of an evaluation, and those a training logs."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

import torch
from torch import Tensor

from spanlm.models.span_mixture import PartScores


@dataclass(frozen=True)
class PartTally:
    """Sums over predicted tokens: all but `other_nll` over those that had anything to read in the buffer.

    Attributes:
        steps: how many had anything to read.
        encoder_nll: of p, nats.
        buffer_nll: of q, nats.
        reward: Σ r.
        gate: Σ λ, without temperature.
        utilisation: how many have λ >= 0.5.
        oracle_utilisation: how many have q > p.
        oracle_nll: of max(p, q), nats.
        other_nll: of p where there was nothing to read, nats.
    """

    steps: float = 0.0
    encoder_nll: float = 0.0
    buffer_nll: float = 0.0
    reward: float = 0.0
    gate: float = 0.0
    utilisation: float = 0.0
    oracle_utilisation: float = 0.0
    oracle_nll: float = 0.0
    other_nll: float = 0.0

    def plus(self, parts: PartScores, mask: Tensor) -> PartTally:
        """Add a segment; see `part_sums`."""
        found = part_sums(parts, mask).tolist()
        return PartTally(*(before + here for before, here in zip(astuple(self), found, strict=True)))


SUMS = tuple(field.name for field in fields(PartTally))


@torch.no_grad()
def part_sums(parts: PartScores, mask: Tensor) -> Tensor:
    """Sum each of `SUMS` over a segment, (9,) float64; costs no wait for the device.

    Args:
        parts: what the encoder and the buffer said.
        mask: (T, B), False where the target is padding.
    """
    encoder, buffer, share = parts.encoder, parts.buffer, parts.log_share.exp()
    of_all = -encoder
    columns = [
        torch.ones_like(share),
        of_all,
        -buffer,
        parts.reward,
        share,
        (share >= 0.5).to(share.dtype),
        (buffer > encoder).to(share.dtype),
        -torch.maximum(encoder, buffer),
        of_all,
    ]
    counting = [mask & parts.filled] * (len(columns) - 1) + [mask & ~parts.filled]
    return torch.stack(columns).where(torch.stack(counting), 0).sum((1, 2), dtype=torch.float64)
