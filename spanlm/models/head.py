"""The last room of a language model: from a Readout to a distribution over the next word."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from spanlm.models.interfaces import Readout
from spanlm.models.ops.pointer import mixed_log_prob, mixed_log_probs
from spanlm.models.span_mixture import Buffered, PartScores, log_mixture, part_scores, reward_loss


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
