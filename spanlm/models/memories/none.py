"""No memory: the head reads the encoder's output as it is."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from spanlm.models.interfaces import Init, Memory, MemoryConfig, Readout, Tensors
from spanlm.options import options


@options()
class NoMemoryConfig(MemoryConfig):
    """A plain language model that does not look back."""

    kind: Literal["none"] = "none"

    @property
    def equation(self) -> str:
        return "h*_t = h_t"

    @property
    def description(self) -> str:
        return "no memory"

    def build(self, hidden_size: int, vocabulary_size: int, init: Init) -> NoMemory:
        return NoMemory(hidden_size)


class NoMemory(Memory):
    """h (T, B, H) -> features (T, B, H); no state."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.readout_size = hidden_size

    def init_state(self, batch_size: int) -> Tensors:
        return {}

    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        return Readout(h), {}
