"""The contract between the rooms of a language model. Read this first.

    tokens (T, B) ─ embedding ─► (T, B, E) ─ encoder ─► (T, B, H) ─ memory ─► Readout ─ head ─► Scores
             └──────────────────────────────────────────────────────────┘ (memories of words read them, too)

Shape legend, used everywhere: T time steps, B streams (batch), V vocabulary, E embedding, H encoder output,
D readout, L slots of the memory. Tensors are time-major. Logarithms are natural.

Every encoder and every memory keeps three promises, which the contract tests check:

* State is a value: it goes in, a new one comes out, nothing hides on a module.
* Any cut is the same stream: one call over T steps equals T calls over one step.
* The output at step t depends on steps <= t alone, bit by bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor, nn

from spanlm.errors import InputError
from spanlm.options import option, options

Tensors = dict[str, Tensor]
"""The state of one room: named tensors, each with its streams along dimension 1."""


@dataclass(frozen=True)
class LMState:
    """The state that a language model carries from one segment to the next."""

    encoder: Tensors
    memory: Tensors

    def flat(self) -> Tensors:
        """Name every tensor `room.name`, for saving."""
        rooms = {"encoder": self.encoder, "memory": self.memory}
        return {f"{room}.{name}": x for room, tensors in rooms.items() for name, x in tensors.items()}

    @property
    def nbytes(self) -> int:
        """How many bytes its tensors have."""
        return sum(x.nbytes for x in self.flat().values())

    @staticmethod
    def from_flat(flat: Tensors) -> LMState:
        """Undo `flat`."""
        rooms: dict[str, Tensors] = {"encoder": {}, "memory": {}}
        for key, x in flat.items():
            room, _, name = key.partition(".")
            rooms[room][name] = x
        return LMState(**rooms)

    def map(self, function: Callable[[Tensor], Tensor]) -> LMState:
        """Apply `function` to every tensor."""
        return LMState.from_flat({name: function(x) for name, x in self.flat().items()})

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
        `initial`: the older slots of the streams that are put back get zeros.
        """
        # to look at a GPU's tensor would wait for it: batchers leave `reset` on the CPU
        if streams.device.type == "cpu" and bool(streams.all()):
            return initial
        fresh = initial.flat()

        def back(name: str, x: Tensor) -> Tensor:
            marked = streams.to(x.device, non_blocking=True).view(1, -1, *[1] * (x.dim() - 2))
            return torch.where(marked, _lengthened(fresh[name], len(x)), x)

        return LMState.from_flat({name: back(name, x) for name, x in self.flat().items()})

    @staticmethod
    def beside(states: Sequence[LMState]) -> LMState:
        """Put the streams of several states side by side; a tensor with fewer slots gets zeros in the older ones."""
        flat = [state.flat() for state in states]
        joined = {}
        for name in flat[0]:
            longest = max(len(tensors[name]) for tensors in flat)
            joined[name] = torch.cat([_lengthened(tensors[name], longest) for tensors in flat], 1)
        return LMState.from_flat(joined)


def _lengthened(tensor: Tensor, slots: int) -> Tensor:
    missing = slots - len(tensor)
    return torch.cat([tensor.new_zeros(missing, *tensor.shape[1:]), tensor]) if missing else tensor


@dataclass(frozen=True)
class Init:
    """How weights start: uniform in plus or minus a range."""

    weights: float
    biases: float  # 0: they start at zero

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
class Attention:
    """Where a memory looked from every step: at L slots, of which each stands for a step or ends with one.

    Column j is lag (L − 1 − j) · stride + nearest_lag: how many steps back its slot ends. The weights (T, B, L), oldest
    first, are `given`, or how to compute them where the features do not need them.
    """

    given: Tensor | Callable[[], Tensor]
    nearest_lag: int = 1  # of the last column: 1 is the step before, 0 the current one
    stride: int = 1  # how many steps lie between the ends of two neighbouring slots
    reach: int = 0  # how many steps before its last one a stream must have read for a slot to exist

    @property
    def weights(self) -> Tensor:
        """(T, B, L). A row sums to 1, or to 0 while the memory is empty.

        What is missing lies on a slot that is no step (the pointer's sentinel).
        """
        return self.given() if callable(self.given) else self.given

    def by_lag(self) -> Tensor:
        """(T, B, L · stride): a column for every lag, zero at those where no slot ends."""
        weights = self.weights
        spread = weights.new_zeros(*weights.shape, self.stride)
        spread[..., -1] = weights
        return spread.flatten(-2)

    def slots(self, read: Tensor, most: int) -> Tensor:
        """How many of `most` slots exist at steps before which `read` (T, B) steps were read."""
        return ((read - self.reach - self.nearest_lag) // self.stride + 1).clamp(0, most)


@dataclass(frozen=True)
class Scores:
    """A head's scores of target words."""

    log_prob: Tensor  # log p(target), (T, B), float32 or float64
    extra_loss: Tensor | float = 0.0  # what training adds to −log p(target) of each step, (T, B); or 0.0
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    """More numbers of each step, (T, B), without a graph, to be summed over the predicted words."""


def metric_sums(metrics: Mapping[str, Tensor], mask: Tensor) -> Tensor:
    """Sum each metric (T, B) over the places of `mask`, (n,) float64; costs no wait for the device."""
    if not metrics:
        return torch.zeros(0, dtype=torch.float64, device=mask.device)
    return torch.stack(list(metrics.values())).where(mask, 0).sum((1, 2), dtype=torch.float64)


@dataclass(frozen=True)
class Parts:
    """Predictions of which a mixture is made, as another distribution beside the head's makes two.

    `log_probs` of all words, (T, B, V), by the names of the parts, and last of the mixture. What is beside the head's
    own is only `there` (T, B) at some steps; `preference` (T, B) is the gate's for it, `share` (T, B) what it has of
    the mixture.
    """

    log_probs: Mapping[str, Tensor]
    there: Tensor
    preference: Tensor
    share: Tensor


class Mixture(Protocol):
    """Another distribution, with which a head mixes its own."""

    def score(self, head: MixingHead, features: Tensor, targets: Tensor) -> Scores:
        """Score targets (T, B): the mixture of what the head predicts from `features` (T, B, D) and this."""

    def score_twice(self, head: MixingHead, features: Tensor, targets: Tensor) -> tuple[Scores, Scores]:
        """Score targets as `score` does, and as in training, where that is another: the head is asked once."""

    def log_probs(self, head: MixingHead, features: Tensor) -> Tensor:
        """Log p of every word, (T, B, V)."""

    def parts(self, head: MixingHead, features: Tensor) -> Parts | None:
        """What each prediction alone gives all words; None: it is shown as one."""

    def map(self, function: Callable[[Tensor], Tensor]) -> Mixture:
        """Apply `function` to every tensor."""


@dataclass(frozen=True)
class Readout:
    """The output of a memory, which the head reads."""

    features: Tensor  # (T, B, D), what the next word is predicted from
    attention: Attention | None = None  # where the memory looked
    mixture: Mixture | None = None  # what the head is to mix with its own distribution
    hidden: Tensor | None = None  # (T, B, H), what the encoder gave, before any dropout, which penalties ask for

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Apply `function` to all that a head reads, and leave out the rest."""
        mixture = None if self.mixture is None else self.mixture.map(function)
        return replace(self, features=function(self.features), attention=None, mixture=mixture, hidden=None)


class Encoder(nn.Module, ABC):
    """Reads words: x (T, B, E) and a state give h (T, B, H) and the state after the last step."""

    output_size: int

    @abstractmethod
    def init_state(self, batch_size: int) -> Tensors:
        """State of `batch_size` streams that have read nothing."""

    @abstractmethod
    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Read x (T, B, E)."""


@options("model.memory")
class MemoryConfig:
    """The base of every memory's configuration, a dataclass with fields of its own and a `build`."""

    kind: str = option("which memory")
    drops_output: ClassVar[bool] = False
    """Whether it has a dropout of its own in place of `model.output_dropout`."""
    mixes: ClassVar[bool] = False
    """Whether it predicts, too, so that its readouts have a mixture."""
    paper: ClassVar[str] = ""
    """Where it was published, as one cites it."""

    @property
    def mixing(self) -> str:
        """How the head's equation goes into that of a mixture: what is written before it."""
        return ""

    @property
    def equation(self) -> str:
        """How it reads the past, in a line for people, with the number in its paper."""
        return ""

    @property
    def parts(self) -> int:
        """The number of equal parts that the encoder's output is split into."""
        return 1

    @property
    def slots(self) -> int | None:
        """How many slots it attends to at most; 0: it does not attend, None: no limit, and its state grows."""
        return 0

    def nearest(self, slots: int) -> Self:
        """Return the same with so many slots, the nearest; only if it attends, by default by a field `window`."""
        window: dict[str, Any] = {"window": slots}
        return replace(self, **window)

    def part_size(self, hidden_size: int, field: str) -> int:
        """Return the size of a part; refuse a `hidden_size` that their number, the option `field`, does not divide."""
        if hidden_size % self.parts:
            below = hidden_size // self.parts * self.parts
            use = f"{below} or {below + self.parts}" if below else self.parts
            # a memory does not know which encoder it reads
            raise InputError(
                field,
                self.parts,
                f"needs model.encoder.hidden_size divisible by {self.parts}, got {hidden_size}; of an awd_lstm "
                "model.encoder.last_size",
                f"Use {use}.",
            )
        return hidden_size // self.parts


class Memory(nn.Module, ABC):
    """Reads the past: h (T, B, H) and the words of the same steps give a Readout.

    The Readout never feeds back into the encoder.
    """

    readout_size: int
    gate_temperature: float | None = None
    """T of a gate in evaluation that has another one in training; None: there is no such gate."""

    @abstractmethod
    def init_state(self, batch_size: int) -> Tensors:
        """State of `batch_size` streams with nothing to look back at."""

    @abstractmethod
    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        """Look back from every step of h (T, B, H); `tokens` (T, B) are the words the encoder read at these steps."""

    def equalise(self) -> None:
        """From now on give all slots of a step equal weights; only if it attends."""
        raise NotImplementedError


class Head(nn.Module, ABC):
    """Turns a Readout into a distribution over the next word."""

    @abstractmethod
    def score(self, readout: Readout, targets: Tensor) -> Scores:
        """Score targets (T, B) without ever holding more than a chunk of (T, B, V)."""

    @abstractmethod
    def log_probs(self, readout: Readout) -> Tensor:
        """Log p of every word, (T, B, V), normalised in float32 (or float64)."""

    def log_prob(self, readout: Readout, targets: Tensor) -> Tensor:
        """Log p(target), (T, B); see `score`."""
        return self.score(readout, targets).log_prob

    def penalty(self) -> Tensor | float:
        """The penalty on the weights that training adds to its loss; 0.0 by default."""
        return 0.0


class MixingHead(Head):
    """A head that predicts from features alone, and mixes that with the readout's mixture if there is one."""

    @abstractmethod
    def own_log_prob(self, features: Tensor, targets: Tensor, *, mixed: bool = False) -> Tensor:
        """Log p(target), (T, B), of features (T, B, D); `mixed`: each word will have a gradient of its own (speed)."""

    @abstractmethod
    def own_log_probs(self, features: Tensor) -> Tensor:
        """Log p of every word, (T, B, V)."""

    def score(self, readout: Readout, targets: Tensor) -> Scores:
        """Score targets (T, B)."""
        if readout.mixture is not None:
            return readout.mixture.score(self, readout.features, targets)
        return Scores(self.own_log_prob(readout.features, targets))

    def log_probs(self, readout: Readout) -> Tensor:
        """Log p of every word, (T, B, V)."""
        if readout.mixture is not None:
            return readout.mixture.log_probs(self, readout.features)
        return self.own_log_probs(readout.features)


class NextWordModel(nn.Module, ABC):
    """A language model, or several as one: all that evaluation, sampling and ranking need."""

    head: Head
    vocabulary_size: int

    @property
    def device(self) -> torch.device:
        """Where the weights are, or the buffers of a model without, and what is read must be."""
        return next(chain(self.parameters(), self.buffers())).device

    @abstractmethod
    def init_state(self, batch_size: int) -> LMState:
        """State of `batch_size` streams that have read nothing."""

    @abstractmethod
    def forward(self, tokens: Tensor, state: LMState) -> tuple[Readout, LMState]:
        """Read tokens (T, B); return the readout that predicts the next words, and the state after the last step."""

    def log_prob(self, tokens: Tensor, targets: Tensor, state: LMState) -> tuple[Tensor, LMState]:
        """Log p(targets | tokens up to and including the same step), (T, B)."""
        readout, state = self(tokens, state)
        return self.head.log_prob(readout, targets), state

    def log_probs(self, tokens: Tensor, state: LMState) -> tuple[Tensor, LMState]:
        """Log p of every next word, (T, B, V)."""
        readout, state = self(tokens, state)
        return self.head.log_probs(readout), state
