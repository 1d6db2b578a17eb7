"""What the two parts of a span buffer did over an epoch: sums that cost no wait for the device, and their means."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from spanlm.evaluation.part_tally import SUMS, PartTally, part_sums
from spanlm.evaluation.parts import parts_of
from spanlm.evaluation.scoring import Tally
from spanlm.models.span_mixture import PartScores

_READ = SUMS[: SUMS.index("oracle_nll")]

FIELDS = (*_READ, "reward_loss", "other_nll", "other_steps")
"""What is summed: over the predicted words that had anything to read in the buffer, and of the other ones −log p."""


@torch.no_grad()
def training_sums(parts: PartScores, mask: Tensor, extra_loss: Tensor | float) -> Tensor:
    """Sum each of `FIELDS` over a segment, (10,) float64.

    Args:
        parts: what the encoder and the buffer said.
        mask: (T, B), False where the target is padding.
        extra_loss: the reward's term of the loss, (T, B).
    """
    sums, others = part_sums(parts, mask), (mask & ~parts.filled).sum(dtype=torch.float64)
    added = (extra_loss * torch.ones_like(parts.encoder)).where(mask & parts.filled, 0).sum(dtype=torch.float64)
    return torch.cat([sums[: len(_READ)], torch.stack([added, sums[SUMS.index("other_nll")], others])])


def part_means(sums: Mapping[str, float]) -> dict[str, float]:
    """Return what sums of `FIELDS` mean, as `tally_means` names it, and reward_loss: −η r log λ."""
    steps = sums.get("steps", 0.0)
    if not steps:
        return {}
    held = PartTally(**{name: sums.get(name, 0.0) for name in SUMS})
    # a checkpoint of an earlier version tells of words with spans alone, and then their means are all there is
    tokens = round(steps + sums.get("other_steps", 0.0))
    return {**tally_means(Tally(tokens=tokens, parts=held)), "reward_loss": sums["reward_loss"] / steps}


def tally_means(total: Tally) -> dict[str, float]:
    """Return what a log says of the sums over a text; empty where no word had anything to read.

    encoder_nll and buffer_nll: nats a token of each part alone, over all tokens, see `Parts`. The others are of the
    `steps` that had anything to read: reward: mean r; gate: mean λ; utilisation: PoU, the share with λ >= 0.5 (Li et
    al., 2020, Eq. 15); oracle_utilisation: with q > p.
    """
    found = parts_of(total)
    if found is None or not found.remembering:
        return {}
    means = {name: getattr(found, name) for name in _READ if name != "steps"}
    return {"steps": float(found.remembering), **means}
