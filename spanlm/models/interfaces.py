"""The contract between the rooms of a language model. Read this first.

    tokens (T, B) ─ embedding ─► (T, B, E) ─ encoder ─► (T, B, H) ─ memory ─► Readout ─ head ─► log-probabilities
             └──────────────────────────────────────────────────────────┘ (memories of words read them, too)

Shape legend, used everywhere: T time steps, B streams (batch), V vocabulary, E embedding, H encoder output,
D readout, L window of the memory. Tensors are time-major. A head is a `spanlm.models.head.Head`.

Three promises that every encoder and every memory keeps, and that the contract tests check for all of them:

* State is a value: it goes in, a new one comes out, nothing hides on a module.
* Any cut is the same stream: one call over T steps equals T calls over one step.
* What comes out at step t depends on steps <= t alone, bit by bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from spanlm.models.span_mixture import Buffered
from spanlm.models.state import Tensors


@dataclass(frozen=True)
class Init:
    """How weights start: uniform in plus or minus a range.

    Attributes:
        weights: the range of every weight that is no bias.
        biases: the range of biases; 0: they start at zero.
    """

    weights: float
    biases: float

    @torch.no_grad()
    def start(self, tensor: Tensor, *, bias: bool = False) -> Tensor:
        """Draw a tensor's values, in place."""
        limit = self.biases if bias else self.weights
        return tensor.uniform_(-limit, limit)

    def start_all(self, room: nn.Module) -> None:
        """Draw every parameter of a room, in place, in the order in which they were made."""
        for name, parameter in room.named_parameters():
            self.start(parameter, bias=name.rsplit(".", 1)[-1].startswith("bias"))


@dataclass(frozen=True)
class Pointer:
    """A distribution over words that were read, with which a head mixes its own.

        p(w) = gate · p_head(w) + Σ_{j: words_j = w} weights_j,    gate + Σ_j weights_j = 1

    Logarithms, because a weight that float32 cannot hold can still be the most probable way to a word.

    Attributes:
        log_weights: (T, B, L), float32 or float64; -inf where nothing is pointed to.
        words: (T, B, L) int64, the word that each weight points to.
        log_gate: (T, B), finite.
        trained_alone: training also asks the pointer by itself for the next word, see `Head.score`.
    """

    log_weights: Tensor
    words: Tensor
    log_gate: Tensor
    trained_alone: bool = False


@dataclass(frozen=True)
class Readout:
    """What a memory hands to the head.

    Attributes:
        features: (T, B, D), what the next word is predicted from.
        weights: of the attention, as `attention` gives them, or how to work them out where the features do not need
            them; None where nothing is attended.
        nearest_lag: how many steps back the last column of `attention` is: 1 is the step before, 0 the current one.
            Column j is lag L - 1 - j + nearest_lag.
        span: how many steps what is attended stands for: those from its lag on backwards. Of as many columns of
            `attention`, counted from the last, one has a weight.
        reach: how many steps before its last one must have been read, too, for a span to be there.
        fixed: spans end at every `span`-th step that a stream has read; if not, the newest at lag `nearest_lag`.
        pointer: what the head is to mix with its own distribution.
        buffer: what else the head is to predict from, and to mix with its own distribution.
        members: the readouts of the members of an ensemble, which its head combines.
        hidden: (T, B, H), what the encoder gave, before any dropout: penalties of training ask for it.
        penalised: what else they are to hold for, as the head reads it and as the memory read it; zero where it read
            nothing.
    """

    features: Tensor
    weights: Tensor | Callable[[], Tensor] | None = None
    nearest_lag: int = 1
    span: int = 1
    reach: int = 0
    fixed: bool = False
    pointer: Pointer | None = None
    buffer: Buffered | None = None
    members: tuple[Readout, ...] = ()
    hidden: Tensor | None = None
    penalised: tuple[Tensor, Tensor] | None = None

    @property
    def attention(self) -> Tensor | None:
        """(T, B, L) weights over L steps, oldest first; None where nothing is attended.

        A row sums to 1, or to 0 while the memory is empty; what is missing lies on a slot that is no step (the zero
        slot of the attentive memory, the sentinel of the pointer). A span's weight is in the column of its last step.
        """
        return self.weights() if callable(self.weights) else self.weights


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

    def begin_epoch(self, epochs: int) -> None:
        """Be told, before each epoch of a training, how many it has had: a mode, as `train()` is one, and no state.

        A model that is loaded is told nothing; what it predicts does not depend on it.
        """
