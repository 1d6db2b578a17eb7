"""Memories: read the encoder's earlier outputs."""

from typing import get_args

from spanlm.errors import InputError
from spanlm.models.memories.attentive import AttentiveConfig
from spanlm.models.memories.key_value import KeyValueConfig
from spanlm.models.memories.ngram import NGramConfig
from spanlm.models.memories.none import NoMemoryConfig
from spanlm.models.memories.pointer_sentinel import PointerSentinelConfig
from spanlm.models.memories.recurrent_memory import RecurrentMemoryConfig
from spanlm.models.memories.span_buffer import SpanBufferConfig, require_temperature

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


def require_gate(memory: AnyMemoryConfig, subject: str) -> SpanBufferConfig:
    """Return the configuration of a memory that has a gate; otherwise raise InputError about `subject`."""
    if not isinstance(memory, SpanBufferConfig):
        raise InputError(
            f"{subject}: this model has no span buffer (model.memory.kind={memory.kind}), so it has no gate and "
            "predicts in one part. Train one with model.memory.kind=span_buffer."
        )
    return memory


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
    "require_gate",
    "require_temperature",
]
