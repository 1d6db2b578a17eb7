"""Weights that follow a text and are ruined by it."""

from __future__ import annotations

import math
from typing import Any

from spanlm.errors import RunError
from spanlm.evaluation.dynamic_config import DynamicConfig
from spanlm.evaluation.scoring import Tally

ASTRAY = 1.0
"""Nats a token above equal probabilities, from which on weights that follow a text are said to have gone astray."""


class AstrayError(RunError):
    """Weights that followed a text were ruined by it.

    Attributes:
        details: what was tried, in plain values; empty where it was one setting.
    """

    def __init__(self, message: str, details: dict[str, Any] | None = None) -> None:
        """Keep what was tried: it took long, and is all there is to be known."""
        super().__init__(message)
        self.details = details or {}


def went_astray(total: Tally, resting: float, vocabulary_size: int) -> bool:
    """Whether weights that followed a text were ruined by it, and predict worse than nothing at all would.

    Args:
        total: the sums over the text, or over its beginning.
        resting: nats a token with the trained weights.
        vocabulary_size: V; equal probabilities have ln V nats.

    Returns:
        Whether a token takes `ASTRAY` nats more than either, or no finite number of them.
    """
    return not total.loss <= max(resting, math.log(vocabulary_size)) + ASTRAY


def astray(config: DynamicConfig, total: Tally) -> AstrayError:
    """Return what to raise of one setting."""
    return AstrayError(
        f"dynamic.rate={config.rate:g}: the weights went astray: after {total.tokens:,} tokens the mean NLL is "
        f"{total.loss:,.1f} nats. Take a lower rate, or a larger decay (now {config.decay:g}) or epsilon (now "
        f"{config.epsilon:g})."
    )
