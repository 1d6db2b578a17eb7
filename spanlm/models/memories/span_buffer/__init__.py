"""The span-based neural buffer (Li et al., 2020); no other module knows spans."""

from spanlm.models.memories.span_buffer.memory import SpanBufferConfig, SpanBufferMemory
from spanlm.models.memories.span_buffer.mixture import GateConfig, RewardConfig, SpanMixture, require_temperature

__all__ = ["GateConfig", "RewardConfig", "SpanBufferConfig", "SpanBufferMemory", "SpanMixture", "require_temperature"]
