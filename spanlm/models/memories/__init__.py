"""Memories: read what the encoder wrote before now."""

from typing import get_args

from spanlm.models.memories.attentive import AttentiveConfig
from spanlm.models.memories.key_value import KeyValueConfig
from spanlm.models.memories.ngram import NGramConfig
from spanlm.models.memories.none import NoMemoryConfig
from spanlm.models.memories.pointer_sentinel import PointerSentinelConfig
from spanlm.models.memories.recurrent_memory import RecurrentMemoryConfig
from spanlm.models.memories.span_buffer import SpanBufferConfig

AnyMemoryConfig = (
    NoMemoryConfig
    | KeyValueConfig
    | NGramConfig
    | RecurrentMemoryConfig
    | AttentiveConfig
    | PointerSentinelConfig
    | SpanBufferConfig
)

MEMORIES: dict[str, type[AnyMemoryConfig]] = {config.kind: config for config in get_args(AnyMemoryConfig)}

__all__ = [
    "MEMORIES",
    "AnyMemoryConfig",
    "AttentiveConfig",
    "KeyValueConfig",
    "NGramConfig",
    "NoMemoryConfig",
    "PointerSentinelConfig",
    "RecurrentMemoryConfig",
    "SpanBufferConfig",
]
