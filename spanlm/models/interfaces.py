"""The contract between the rooms of a language model. Read this first.

    tokens (T, B) ─ embedding ─► (T, B, E) ─ encoder ─► (T, B, H) ─ memory ─► Readout ─ head ─► log-probabilities
             └──────────────────────────────────────────────────────────┘ (memories of words read them, too)

Shape legend, used everywhere: T time steps, B streams (batch), V vocabulary, E embedding, H encoder output,
D readout, L window of the memory. Tensors are time-major.

Three promises that every encoder and every memory keeps, and that the contract tests check for all of them:

* State is a value: it goes in, a new one comes out, nothing hides on a module.
* Any cut is the same stream: one call over T steps equals T calls over one step.
* What comes out at step t depends on steps <= t alone, bit by bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

Tensors = dict[str, Tensor]
"""The state of one room: named tensors, each with its streams along dimension 1."""


@dataclass(frozen=True)
class LMState:
    """What a language model carries from one segment to the next."""

    encoder: Tensors
    memory: Tensors

    def map(self, function: Callable[[Tensor], Tensor]) -> LMState:
        """Apply `function` to every tensor."""
        return LMState(
            {name: function(x) for name, x in self.encoder.items()},
            {name: function(x) for name, x in self.memory.items()},
        )

    def detach(self) -> LMState:
        """Cut the graph: values go on to the next segment, gradients do not."""
        return self.map(Tensor.detach)

    def to(self, device: torch.device | str) -> LMState:
        """Move to a device."""
        return self.map(lambda x: x.to(device))

    def select(self, streams: Tensor) -> LMState:
        """Take (or repeat) streams by index."""
        return self.map(lambda x: x.index_select(1, streams))

    def reset(self, streams: Tensor, initial: LMState) -> LMState:
        """Put the streams marked in `streams` (B,) back to `initial`; the others stay as they are."""

        def pick(old: Tensors, new: Tensors) -> Tensors:
            return {
                name: torch.where(streams.view(1, -1, *[1] * (x.dim() - 2)), new[name], x) for name, x in old.items()
            }

        return LMState(pick(self.encoder, initial.encoder), pick(self.memory, initial.memory))

    def flat(self) -> Tensors:
        """Name every tensor `room.name`, for saving."""
        return {
            f"{room}.{name}": x
            for room, tensors in (("encoder", self.encoder), ("memory", self.memory))
            for name, x in tensors.items()
        }

    @staticmethod
    def from_flat(flat: Tensors) -> LMState:
        """Undo `flat`."""

        def room(prefix: str) -> Tensors:
            return {k.removeprefix(prefix): x for k, x in flat.items() if k.startswith(prefix)}

        return LMState(room("encoder."), room("memory."))


@dataclass(frozen=True)
class Readout:
    """What a memory hands to the head.

    Attributes:
        features: (T, B, D), what the next word is predicted from.
        attention: (T, B, L) weights over L steps, oldest first, or None where nothing is attended. A row sums to 1,
            or to 0 while the memory is empty.
        nearest_lag: how many steps back the last column of `attention` is: 1 is the step before, 0 the current one.
            Column j is lag L - 1 - j + nearest_lag.
    """

    features: Tensor
    attention: Tensor | None = None
    nearest_lag: int = 1


class Encoder(nn.Module, ABC):
    """Reads words: x (T, B, E) and a state give h (T, B, H) and the state after the last step."""

    output_size: int

    @abstractmethod
    def init_state(self, batch_size: int) -> Tensors:
        """State of `batch_size` streams that have read nothing."""

    @abstractmethod
    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Read x (T, B, E)."""


class Memory(nn.Module, ABC):
    """Reads what came before now: h (T, B, H) and the words of the same steps give a Readout.

    What it reads never feeds back into the encoder.
    """

    readout_size: int

    @abstractmethod
    def init_state(self, batch_size: int) -> Tensors:
        """State of `batch_size` streams with nothing to look back at."""

    @abstractmethod
    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        """Look back from every step of h (T, B, H); `tokens` (T, B) are the words the encoder read at these steps."""


class Head(nn.Module, ABC):
    """Turns a Readout into a distribution over the next word. Logarithms are natural."""

    @abstractmethod
    def log_prob(self, readout: Readout, targets: Tensor) -> Tensor:
        """Log p(target) as (T, B) float32 (or float64), never holding more than a chunk of (T, B, V)."""

    @abstractmethod
    def log_probs(self, readout: Readout) -> Tensor:
        """Log p of every word, (T, B, V)."""


class EncoderConfig(Protocol):
    """What an encoder's configuration can do."""

    @property
    def output_size(self) -> int:
        """H."""

    @property
    def description(self) -> str:
        """What it is, in a few words, for people."""

    def build(self, input_size: int, init_range: float) -> Encoder:
        """Make the encoder; weights start uniform in ±init_range."""

    def resized(self, output_size: int) -> EncoderConfig:
        """Make a copy with another output size."""


class MemoryConfig(Protocol):
    """What a memory's configuration can do."""

    @property
    def parts(self) -> int:
        """Into how many equal parts this memory splits the encoder's output."""

    @property
    def description(self) -> str:
        """What it is, in a few words, for people."""

    def build(self, hidden_size: int, vocabulary_size: int, init_range: float) -> Memory:
        """Make the memory that reads encoder outputs of `hidden_size`; weights start uniform in ±init_range."""


class HeadConfig(Protocol):
    """What a head's configuration can do."""

    tied: bool

    def build(self, readout_size: int, embedding: nn.Embedding, init_range: float) -> Head:
        """Make the head; a tied one scores with `embedding.weight`."""
