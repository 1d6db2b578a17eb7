"""The span-based neural buffer (Li et al., 2020): the only room that knows what a span is."""

from __future__ import annotations

from spanlm.models.memories.span_buffer.config import GateConfig, RewardConfig, SpanBufferConfig, require_temperature
from spanlm.models.memories.span_buffer.memory import SpanBufferMemory
from spanlm.models.memories.span_buffer.mixture import SpanMixture

__all__ = [
    "GateConfig",
    "RewardConfig",
    "SpanBufferConfig",
    "SpanBufferMemory",
    "SpanMixture",
    "require_temperature",
]
