"""What a model is made of, for people who look at a picture of it: encoder, memory and head, each with its equation."""

from __future__ import annotations

from typing import TypedDict

from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import NoMemoryConfig, SpanBufferConfig


class Room(TypedDict):
    """A part of the picture; `shape` is what goes in and what comes out at a step."""

    name: str
    shape: str
    equation: str


class Diagram(TypedDict):
    """The picture; a model that does not look back has no memory."""

    encoder: Room
    memory: Room | None
    head: Room


_MIXED = "p̃ = λ̂ q({seen}) + (1 − λ̂) p(h_t)   (9),  each of them  "


def diagram(config: ModelConfig, vocabulary_size: int) -> Diagram:
    """Return the picture of a model over so many words."""
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


def _room(name: str, shape: str, equation: str) -> Room:
    return {"name": name[:1].upper() + name[1:], "shape": shape, "equation": equation}
