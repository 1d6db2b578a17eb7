"""Memories: read what the encoder wrote before now."""

from __future__ import annotations

from spanlm.models.memories.attentive import AttentiveConfig, AttentiveMemory
from spanlm.models.memories.key_value import KeyValueConfig, KeyValueMemory
from spanlm.models.memories.ngram import NGramConfig, NGramMemory
from spanlm.models.memories.none import NoMemory, NoMemoryConfig
from spanlm.models.memories.pointer_sentinel import PointerSentinelConfig, PointerSentinelMemory
from spanlm.models.memories.recurrent_memory import RecurrentMemory, RecurrentMemoryConfig
from spanlm.models.memories.span_buffer import SpanBufferConfig, SpanBufferMemory

AnyMemoryConfig = (
    NoMemoryConfig
    | KeyValueConfig
    | NGramConfig
    | RecurrentMemoryConfig
    | AttentiveConfig
    | PointerSentinelConfig
    | SpanBufferConfig
)

MEMORIES: dict[str, type[AnyMemoryConfig]] = {
    "none": NoMemoryConfig,
    "key_value": KeyValueConfig,
    "ngram": NGramConfig,
    "recurrent_memory": RecurrentMemoryConfig,
    "attentive": AttentiveConfig,
    "pointer_sentinel": PointerSentinelConfig,
    "span_buffer": SpanBufferConfig,
}

__all__ = [
    "MEMORIES",
    "AnyMemoryConfig",
    "AttentiveConfig",
    "AttentiveMemory",
    "KeyValueConfig",
    "KeyValueMemory",
    "NGramConfig",
    "NGramMemory",
    "NoMemory",
    "NoMemoryConfig",
    "PointerSentinelConfig",
    "PointerSentinelMemory",
    "RecurrentMemory",
    "RecurrentMemoryConfig",
    "SpanBufferConfig",
    "SpanBufferMemory",
]
