"""Recency: attention prefers near slots (ALiBi: Press, Smith & Lewis, "Train Short, Test Long", ICLR 2022, §3).

    α_t = softmax_j(score_{t,j} − m j),  j = 1 … L

j is the lag, and m > 0 the slope: beside equal scores, a slot log 2 / m steps further back has half the weight. Clark,
Oh & Schuler (2024) found that surprisal from a Transformer with such slopes fits reading times better.

    linear     m = 1/2
    learned    m = softplus(a), a one parameter of the memory; it starts at 1/2

ALiBi gives eight heads slopes from 1/2 to 1/256. A memory has one head and a window of a few slots, over which the
flatter slopes hardly differ from none, so it takes the steepest.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

Recency = Literal["none", "linear", "learned"]

HELP = (
    "lower the score of lag j by m j (ALiBi), so that nearer outputs get more weight: linear, m = 1/2; learned, m is "
    "a parameter; none"
)

SLOPE = 0.5
"""m of `linear`, and the first m of `learned`."""


class Slope(nn.Module):
    """m, a number or a tensor (1,); None: no recency."""

    def __init__(self, recency: Recency) -> None:
        super().__init__()
        self.recency = recency
        self.raw: nn.Parameter | None = None
        if recency == "learned":
            self.raw = nn.Parameter(torch.tensor([math.log(math.expm1(SLOPE))]))  # a; softplus undone

    def forward(self) -> Tensor | float | None:
        if self.raw is not None:
            return softplus(self.raw)
        return SLOPE if self.recency == "linear" else None

    @property
    def half_life(self) -> float | None:
        """Log 2 / m, in steps."""
        slope = self()
        return None if slope is None else math.log(2) / torch.as_tensor(slope).item()


def described(recency: Recency) -> str:
    return "" if recency == "none" else f", {recency} recency"
