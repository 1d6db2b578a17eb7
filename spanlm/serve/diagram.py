"""What a model is made of, for people who look at a picture of it: encoder, memory and head, each with its equation."""

from __future__ import annotations

from typing import Any

from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import NoMemoryConfig, SpanBufferConfig

_MIXED = "p̃ = λ̂ q({seen}) + (1 − λ̂) p(h_t)   (9),  each of them  "


def diagram(config: ModelConfig, vocabulary_size: int) -> dict[str, Any]:
    """Return the picture of a model over so many words: of each part its name, its equation, and its `shape`.

    That is what goes in and what comes out at a step. A model that does not look back has None as memory.
    """
    encoder, memory, head = config.encoder, config.memory, config.head
    read = encoder.output_size // memory.parts
    mixed = _MIXED.format(seen=memory.seen) if isinstance(memory, SpanBufferConfig) else ""
    return {
        "encoder": _room(encoder.description, f"{config.embedding_size} → {encoder.output_size}", encoder.equation),
        "memory": None
        if isinstance(memory, NoMemoryConfig)
        else _room(memory.description, f"{encoder.output_size} → {read}", memory.equation),
        "head": _room(head.description, f"{read} → {vocabulary_size:,} words", mixed + head.equation),
    }


def _room(name: str, shape: str, equation: str) -> dict[str, str]:
    return {"name": name[:1].upper() + name[1:], "shape": shape, "equation": equation}
