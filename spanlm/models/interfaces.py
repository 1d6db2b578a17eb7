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
        return LMState.from_flat({name: function(x) for name, x in self.flat().items()})

    def detach(self) -> LMState:
        """Cut the graph: values go on to the next segment, gradients do not."""
        return self.map(Tensor.detach)

    def to(self, device: torch.device | str) -> LMState:
        return self.map(lambda x: x.to(device))

    def select(self, streams: Tensor) -> LMState:
        """Take (or repeat) streams by index."""
        return self.map(lambda x: x.index_select(1, streams))

    def reset(self, streams: Tensor, initial: LMState) -> LMState:
        """Put the streams marked in `streams` (B,) back to `initial`; the others stay as they are.

        If all are marked, the result is `initial` itself. A growing memory has fewer slots in `initial`: in the marked
        streams the additional, older slots get zeros.
        """
        # reading a GPU's tensor would wait for the device: batchers leave `reset` on the CPU
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
    """Initial weights: uniform in plus or minus a range."""

    weights: float
    biases: float  # 0: they start at zero

    @torch.no_grad()
    def start(self, tensor: Tensor, *, bias: bool = False) -> Tensor:
        """Draw a tensor's values, in place."""
        limit = self.biases if bias else self.weights
        return tensor.uniform_(-limit, limit)

    def start_all(self, room: nn.Module) -> None:
        """Draw every parameter of a room, in place, in the order of creation."""
        for name, parameter in room.named_parameters():
            self.start(parameter, bias=name.rsplit(".", 1)[-1].startswith("bias"))


@dataclass(frozen=True)
class Attention:
    """The attention of every step over L slots, each of which is a step or ends with one.

    Column j is lag (L − 1 − j) · stride + nearest_lag: how many steps back its slot ends. `given` has the weights
    (T, B, L), oldest first, or a function that computes them, if the features do not need them.
    """

    given: Tensor | Callable[[], Tensor]
    nearest_lag: int = 1  # of the last column: 1 is the step before, 0 the current one
    stride: int = 1  # steps between the ends of two neighbouring slots
    reach: int = 0  # steps that a stream must have read before a slot's last step for the slot to exist

    @property
    def weights(self) -> Tensor:
        """(T, B, L). A row sums to 1, or to 0 while the memory is empty.

        If a row sums to less than 1, the rest is on a slot that is not a time step (the pointer's sentinel).
        """
        return self.given() if callable(self.given) else self.given

    def by_lag(self) -> Tensor:
        """(T, B, L · stride): a column for every lag, zero at lags where no slot ends."""
        weights = self.weights
        spread = weights.new_zeros(*weights.shape, self.stride)
        spread[..., -1] = weights
        return spread.flatten(-2)

    def slots(self, read: Tensor, most: int) -> Tensor:
        """Number of slots, at most `most`, that exist at steps before which the stream has read `read` (T, B) steps."""
        return ((read - self.reach - self.nearest_lag) // self.stride + 1).clamp(0, most)


@dataclass(frozen=True)
class Scores:
    """A head's scores of target words."""

    log_prob: Tensor  # log p(target), (T, B), float32 or float64
    extra_loss: Tensor | float = 0.0  # training adds it to −log p(target) of each step, (T, B); or 0.0
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    """Other numbers of each step, (T, B), without a graph, to be summed over the predicted words."""


def metric_sums(metrics: Mapping[str, Tensor], mask: Tensor) -> Tensor:
    """Sum each metric (T, B) over the places of `mask`, (n,) float64, without waiting for the device."""
    if not metrics:
        return torch.zeros(0, dtype=torch.float64, device=mask.device)
    return torch.stack(list(metrics.values())).where(mask, 0).sum((1, 2), dtype=torch.float64)


@dataclass(frozen=True)
class Parts:
    """The predictions in a mixture: the head's own and another one.

    `log_probs` has the log p of all words, (T, B, V), by name of the prediction; the mixture comes last. The other
    prediction exists where `there` (T, B); the gate prefers it by `preference` (T, B), and its weight in the mixture
    is `share` (T, B).
    """

    log_probs: Mapping[str, Tensor]
    there: Tensor
    preference: Tensor
    share: Tensor


class Mixture(Protocol):
    """Another distribution, which a head mixes with its own."""

    def score(self, head: MixingHead, features: Tensor, targets: Tensor) -> Scores:
        """Score targets (T, B) by the mixture of this and the head's prediction from `features` (T, B, D)."""

    def score_twice(self, head: MixingHead, features: Tensor, targets: Tensor) -> tuple[Scores, Scores]:
        """Score targets as `score` does, and as in training, with a single call of the head."""

    def log_probs(self, head: MixingHead, features: Tensor) -> Tensor:
        """Log p of every word, (T, B, V)."""

    def parts(self, head: MixingHead, features: Tensor) -> Parts | None:
        """Return the separate predictions; None: reports show only the mixture."""

    def map(self, function: Callable[[Tensor], Tensor]) -> Mixture:
        """Apply `function` to every tensor."""


@dataclass(frozen=True)
class Readout:
    """The output of a memory, which the head reads."""

    features: Tensor  # (T, B, D), the head predicts the next word from them
    attention: Attention | None = None  # the memory's attention
    mixture: Mixture | None = None  # the distribution that the head mixes with its own
    hidden: Tensor | None = None  # (T, B, H), the encoder's output before any dropout, for penalties

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Apply `function` to the tensors that a head reads, and drop the others."""
        mixture = None if self.mixture is None else self.mixture.map(function)
        return replace(self, features=function(self.features), attention=None, mixture=mixture, hidden=None)


class Encoder(nn.Module, ABC):
    """Reads words: from x (T, B, E) and a state to h (T, B, H) and the state after the last step."""

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
    """Whether the memory's own dropout replaces `model.output_dropout`."""
    mixes: ClassVar[bool] = False
    """Whether the memory predicts words itself, so that its readouts have a mixture."""
    paper: ClassVar[str] = ""
    """Citation of the paper, such as `Tran et al., 2016`."""

    @property
    def mixing(self) -> str:
        """Equation of the mixture, which reports print before the head's equation."""
        return ""

    @property
    def equation(self) -> str:
        """Equation of the memory in one line for people, with its number in the paper."""
        return ""

    @property
    def parts(self) -> int:
        """Number of equal parts into which the encoder's output is split."""
        return 1

    @property
    def slots(self) -> int | None:
        """Largest number of slots to attend to; 0: no attention; None: no limit, so that the state grows."""
        return 0

    def nearest(self, slots: int) -> Self:
        """Return the configuration with only the `slots` nearest slots, by default with `window=slots`."""
        window: dict[str, Any] = {"window": slots}
        return replace(self, **window)

    def part_size(self, hidden_size: int, field: str) -> int:
        """Return the size of a part; InputError about the option `field`: `parts` does not divide `hidden_size`."""
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
    """Temperature of the gate in evaluation; None: no gate with a temperature."""

    @property
    def half_life(self) -> float | None:
        """Lag, in steps, over which recency halves an attention weight; None: there is no recency."""
        return None

    @abstractmethod
    def init_state(self, batch_size: int) -> Tensors:
        """State of `batch_size` streams with nothing to look back at."""

    @abstractmethod
    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        """Look back from every step of h (T, B, H); `tokens` (T, B) are the words the encoder read at these steps."""

    def equalise(self) -> None:
        """From now on, give all slots of a step equal weights; only for memories that attend."""
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
        """Log p(target), (T, B), of features (T, B, D); `mixed`, for speed: words will get different gradients."""

    @abstractmethod
    def own_log_probs(self, features: Tensor) -> Tensor:
        """Log p of every word, (T, B, V)."""

    def score(self, readout: Readout, targets: Tensor) -> Scores:
        if readout.mixture is not None:
            return readout.mixture.score(self, readout.features, targets)
        return Scores(self.own_log_prob(readout.features, targets))

    def log_probs(self, readout: Readout) -> Tensor:
        if readout.mixture is not None:
            return readout.mixture.log_probs(self, readout.features)
        return self.own_log_probs(readout.features)


class NextWordModel(nn.Module, ABC):
    """A language model, or several as one: all that evaluation, sampling and ranking need."""

    head: Head
    vocabulary_size: int

    @property
    def device(self) -> torch.device:
        """Device of the weights, or of the buffers of a model without weights; inputs must be there."""
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
