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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from spanlm.models.ops.pointer import mixed_log_prob, mixed_log_probs

Tensors = dict[str, Tensor]
"""The state of one room: named tensors, each with its streams along dimension 1."""


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
        """Put the streams marked in `streams` (B,) back to `initial`; the others stay as they are.

        Where all are marked this is `initial` itself. A tensor that grows with what is remembered has fewer slots in
        `initial`: the streams that are put back get zeros (nothing is filled) in the older ones.
        """
        # asking a GPU would wait for it: batchers leave `reset` on the CPU
        if streams.device.type == "cpu" and bool(streams.all()):
            return initial

        def back(fresh: Tensor, x: Tensor) -> Tensor:
            marked = streams.to(x.device, non_blocking=True).view(1, -1, *[1] * (x.dim() - 2))
            return torch.where(marked, _lengthened(fresh, len(x)), x)

        def pick(old: Tensors, new: Tensors) -> Tensors:
            return {name: back(new[name], x) for name, x in old.items()}

        return LMState(pick(self.encoder, initial.encoder), pick(self.memory, initial.memory))

    @staticmethod
    def beside(states: Sequence[LMState]) -> LMState:
        """Put the streams of several states side by side; what has grown less gets zeros in the older slots."""

        def join(rooms: Sequence[Tensors]) -> Tensors:
            longest = {name: max(len(room[name]) for room in rooms) for name in rooms[0]}
            return {name: torch.cat([_lengthened(room[name], n) for room in rooms], 1) for name, n in longest.items()}

        return LMState(join([state.encoder for state in states]), join([state.memory for state in states]))

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


def _lengthened(tensor: Tensor, slots: int) -> Tensor:
    """Put zeros in front of dimension 0, up to `slots`."""
    missing = slots - len(tensor)
    return torch.cat([tensor.new_zeros(missing, *tensor.shape[1:]), tensor]) if missing else tensor


@dataclass(frozen=True)
class Pointer:
    """A distribution over words that were read, with which a head mixes its own.

        p(w) = gate · p_head(w) + Σ_{j: words_j = w} weights_j,    gate + Σ_j weights_j = 1

    Logarithms, because a weight that float32 cannot hold can still be the most probable way to a word.

    Attributes:
        log_weights: (T, B, L), float32 or float64; -inf where nothing is pointed to.
        words: (T, B, L) int64, the word that each weight points to.
        log_gate: (T, B), finite.
        trained_alone: training also asks the pointer by itself for the next word, see `Head.extra_loss`.
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
        pointer: what the head is to mix with its own distribution.
        members: the readouts of the members of an ensemble, which its head combines.
    """

    features: Tensor
    weights: Tensor | Callable[[], Tensor] | None = None
    nearest_lag: int = 1
    pointer: Pointer | None = None
    members: tuple[Readout, ...] = ()

    @property
    def attention(self) -> Tensor | None:
        """(T, B, L) weights over L steps, oldest first; None where nothing is attended.

        A row sums to 1, or to 0 while the memory is empty; what is missing lies on a slot that is no step (the zero
        slot of the attentive memory, the sentinel of the pointer).
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


class Head(nn.Module, ABC):
    """Turns a Readout into a distribution over the next word, mixed with its pointer. Logarithms are natural."""

    @abstractmethod
    def own_log_prob(self, readout: Readout, targets: Tensor) -> Tensor:
        """What `log_prob` is without a pointer."""

    @abstractmethod
    def own_log_probs(self, readout: Readout) -> Tensor:
        """What `log_probs` is without a pointer."""

    def log_prob(self, readout: Readout, targets: Tensor) -> Tensor:
        """Log p(target) as (T, B) float32 (or float64), never holding more than a chunk of (T, B, V)."""
        own, pointer = self.own_log_prob(readout, targets), readout.pointer
        if pointer is None:
            return own
        return mixed_log_prob(own, targets, pointer.log_weights, pointer.words, pointer.log_gate)

    def log_probs(self, readout: Readout) -> Tensor:
        """Log p of every word, (T, B, V), normalised in float32 (or float64)."""
        own, pointer = self.own_log_probs(readout), readout.pointer
        if pointer is None:
            return own
        return mixed_log_probs(own, pointer.log_weights, pointer.words, pointer.log_gate)

    def extra_loss(self, readout: Readout, targets: Tensor) -> Tensor | float:
        """What training adds to −log p(target) of each step, (T, B); 0.0 where nothing is asked for.

        A pointer that is trained alone: −log(gate + Σ_{j: words_j = target} weights_j) (Merity et al., 2017).
        """
        pointer = readout.pointer
        if pointer is None or not pointer.trained_alone:
            return 0.0
        certain = torch.zeros_like(pointer.log_gate)
        return -mixed_log_prob(certain, targets, pointer.log_weights, pointer.words, pointer.log_gate)

    def penalty(self) -> Tensor | float:
        """What training adds to its loss for the weights alone; 0.0 where nothing is asked for."""
        return 0.0


class EncoderConfig(Protocol):
    """What an encoder's configuration can do."""

    @property
    def output_size(self) -> int:
        """H."""

    @property
    def description(self) -> str:
        """What it is, in a few words, for people."""

    def build(self, input_size: int, init: Init) -> Encoder:
        """Make the encoder; its weights start as `init` says."""

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

    def build(self, hidden_size: int, vocabulary_size: int, init: Init) -> Memory:
        """Make the memory that reads encoder outputs of `hidden_size`; its weights start as `init` says."""


class HeadConfig(Protocol):
    """What a head's configuration can do."""

    tied: bool

    def build(self, readout_size: int, embedding: nn.Embedding, init: Init) -> Head:
        """Make the head; a tied one scores with `embedding.weight`."""
