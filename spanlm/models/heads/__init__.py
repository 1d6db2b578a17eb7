"""Heads: from a readout to a distribution over the next word."""

from __future__ import annotations

from spanlm.models.heads.softmax import SoftmaxConfig, SoftmaxHead

HEADS: dict[str, type[SoftmaxConfig]] = {"softmax": SoftmaxConfig}

__all__ = ["HEADS", "SoftmaxConfig", "SoftmaxHead"]
