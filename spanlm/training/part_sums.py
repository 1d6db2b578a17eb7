"""What the two parts of a span buffer did over an epoch: sums that cost no wait for the device, and their means."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from spanlm.evaluation.part_tally import SUMS, part_sums
from spanlm.models.span_mixture import PartScores

_EVALUATED = SUMS[: SUMS.index("oracle_nll")]

FIELDS = (*_EVALUATED, "reward_loss")
"""What is summed, over the predicted words that had anything to read in the buffer."""


@torch.no_grad()
def training_sums(parts: PartScores, mask: Tensor, extra_loss: Tensor | float) -> Tensor:
    """Sum each of `FIELDS` over a segment, (8,) float64.

    Args:
        parts: what the encoder and the buffer said.
        mask: (T, B), False where the target is padding.
        extra_loss: the reward's term of the loss, (T, B).
    """
    added = (extra_loss * torch.ones_like(parts.encoder)).where(mask & parts.filled, 0).sum(dtype=torch.float64)
    return torch.cat([part_sums(parts, mask)[: len(_EVALUATED)], added.unsqueeze(0)])


def part_means(sums: Mapping[str, float]) -> dict[str, float]:
    """Return the mean of what was summed of `FIELDS`, and how many steps; empty where no step had anything to read.

    encoder_nll and buffer_nll: −log p and −log q of the target, nats; reward: r; reward_loss: −η r log λ; gate: λ;
    utilisation: PoU, the share of steps with λ >= 0.5 (Li et al., 2020, Eq. 15); oracle_utilisation: with q > p.
    """
    steps = sums.get("steps", 0.0)
    if not steps:
        return {}
    return {name: steps if name == "steps" else sums[name] / steps for name in FIELDS if name in sums}
