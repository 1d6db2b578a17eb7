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

import torch
from torch import Tensor, nn

from spanlm.models.ops.pointer import mixed_log_prob, mixed_log_probs
from spanlm.models.span_mixture import Buffered, PartScores, log_mixture, part_scores, reward_loss
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


@dataclass(frozen=True)
class TargetScores:
    """What a head says of target words.

    Attributes:
        log_prob: log p(target), (T, B), float32 or float64.
        extra_loss: what training adds to −log p(target) of each step, (T, B); 0.0 where nothing is asked for, and in
            evaluation.
        parts: what each part of a mixture with a span buffer says; None where there is none.
    """

    log_prob: Tensor
    extra_loss: Tensor | float = 0.0
    parts: PartScores | None = None


Parts = tuple[Tensor, Tensor]
"""What the encoder's prediction says of something, and what the span buffer's says."""


class Head(nn.Module, ABC):
    """Turns a Readout into a distribution over the next word, mixed with its pointer or buffer.

    Logarithms are natural.
    """

    @abstractmethod
    def own_log_prob(self, readout: Readout, targets: Tensor) -> Tensor:
        """What `log_prob` is without a pointer and a buffer; of the readout it needs no more than the features."""

    @abstractmethod
    def own_log_probs(self, readout: Readout) -> Tensor:
        """What `log_probs` is without a pointer and a buffer."""

    def own_log_prob_and_clean(self, readout: Readout, targets: Tensor) -> tuple[Tensor, Tensor]:
        """`own_log_prob`, and the same without margins of adversarial training and without a gradient."""
        log_p = self.own_log_prob(readout, targets)
        return log_p, log_p.detach()

    def buffer_log_probs(self, buffer: Buffered) -> Tensor:
        """Log q of every word, (T, B, V), of what the buffer predicts by itself."""
        return self.own_log_probs(Readout(buffer.features))

    def part_log_prob(self, features: Tensor, buffer: Buffered, targets: Tensor, clean: bool) -> tuple[Parts, Parts]:
        """Log p and log q of the targets, (T, B) each; and, if `clean`, both without margins, else the same again.

        Both are asked for at once, one after the other as steps: masks that are locked in time are those of both.
        """
        both = Readout(torch.cat([features, buffer.features.to(features.dtype)]), buffer=buffer)
        if clean:
            log_prob, compared = self.own_log_prob_and_clean(both, targets.repeat(2, 1))
            return _halves(log_prob), _halves(compared)
        parts = _halves(self.own_log_prob(both, targets.repeat(2, 1)))
        return parts, parts

    def score(self, readout: Readout, targets: Tensor) -> TargetScores:
        """Say how probable targets (T, B) are, and what training adds; never holds more than a chunk of (T, B, V).

        A pointer that is trained alone adds −log(gate + Σ_{j: words_j = target} weights_j) (Merity et al., 2017), a
        buffer the reward of its gate (Li et al., 2020).
        """
        if readout.buffer is not None:
            return self._score_parts(readout.features, readout.buffer, targets)
        own, pointer = self.own_log_prob(readout, targets), readout.pointer
        if pointer is None:
            return TargetScores(own)
        pointed = targets, pointer.log_weights, pointer.words, pointer.log_gate
        log_prob = mixed_log_prob(own, *pointed)
        if not (self.training and pointer.trained_alone):
            return TargetScores(log_prob)
        return TargetScores(log_prob, -mixed_log_prob(torch.zeros_like(pointer.log_gate), *pointed))

    def _score_parts(self, features: Tensor, buffer: Buffered, targets: Tensor) -> TargetScores:
        clean = buffer.rule.rewarded == "clean"
        (log_p, log_q), compared = self.part_log_prob(features, buffer, targets, clean)
        parts = part_scores(log_p, log_q, buffer, compared)
        mixed = log_mixture(log_p, log_q, buffer, self.training)
        return TargetScores(mixed, reward_loss(parts, buffer) if self.training else 0.0, parts)

    def log_prob(self, readout: Readout, targets: Tensor) -> Tensor:
        """Log p(target) as (T, B) float32 (or float64); see `score`."""
        return self.score(readout, targets).log_prob

    def log_probs(self, readout: Readout) -> Tensor:
        """Log p of every word, (T, B, V), normalised in float32 (or float64)."""
        own, pointer, buffer = self.own_log_probs(readout), readout.pointer, readout.buffer
        if buffer is not None:
            return log_mixture(own, self.buffer_log_probs(buffer), buffer, self.training)
        if pointer is None:
            return own
        return mixed_log_probs(own, pointer.log_weights, pointer.words, pointer.log_gate)

    def penalty(self) -> Tensor | float:
        """What training adds to its loss for the weights alone; 0.0 where nothing is asked for."""
        return 0.0


def _halves(steps: Tensor) -> Parts:
    first, second = steps.chunk(2)
    return first, second
