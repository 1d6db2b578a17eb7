"""The adversarial softmax (Wang, Gong & Liu, 2019): training against the worst small change of the target's vector.

The words' vectors may move within a ball, ε‖w_y‖ wide, and the worst place for the target's logit is known:

    min over ‖δ‖ <= ε‖w_y‖ of (w_y + δ)·x  =  w_y·x − ε‖w_y‖‖x‖,    at δ = −ε‖w_y‖ x / ‖x‖

so training lowers the target's logit by the margin ε‖w_y‖‖x‖ and leaves all others alone. The paper has it everywhere
(gate "none"); the public code, and the default here, has none unless cos(x, w_y) > 0 ("cosine"). As in that code δ is a
constant for the gradient: x meets −δ·x, whose gradient is that of the margin, w_y is not drawn to where the margin is
small. Norms are √(Σ + 1e-8).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from spanlm.errors import require
from spanlm.models.head import Head
from spanlm.models.interfaces import Readout
from spanlm.models.ops.linear_log_prob import linear_log_prob
from spanlm.models.ops.precision import wide

Direction = Literal["own", "shared"]
AdversarialGate = Literal["cosine", "none"]


@dataclass(frozen=True)
class Adversary:
    """How far a target's vector may move, and whereto.

    Attributes:
        epsilon: ε; 0: not at all.
        direction: own: each row's δ. shared: the public code's, in which all rows of a target have the δ of the
            last one of them, none if that has none. (Where a span buffer predicts with the same experts, or the same
            softmax, its rows come after the encoder's: the δ of either is the buffer's.)
        gate: cosine: none where cos(x, w) <= 0, as in the public code. none: everywhere, as in the paper.
    """

    epsilon: float = 0.0
    direction: Direction = "own"
    gate: AdversarialGate = "cosine"

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        require(0 <= self.epsilon < math.inf, "model.head.adversarial", self.epsilon, "0 or positive, and finite")
        for name, choices in (("direction", get_args(Direction)), ("gate", get_args(AdversarialGate))):
            value = getattr(self, name)
            require(value in choices, f"model.head.adversarial_{name}", value, " or ".join(choices))


NOBODY = Adversary()
"""No change at all."""


def adversarial_margin(x: Tensor, weight: Tensor, targets: Tensor, adversary: Adversary) -> Tensor:
    """What the target's logit loses.

    Args:
        x: (N, D), what the softmax reads.
        weight: w (V, D).
        targets: (N,) int64.
        adversary: ε and δ.

    Returns:
        (N,), float32 (float64 for float64 input).
    """
    x = wide(x)
    with torch.no_grad():
        words = weight[targets]
        x_norm, word_norm = _norm(x), _norm(words)
        change = adversary.epsilon * word_norm * x / x_norm  # -δ
        if adversary.gate == "cosine":
            change = change * ((x * words).sum(1, keepdim=True) > 0)
        if adversary.direction == "shared":
            change = change[_last_of_each(targets, len(weight))]
    return (change * x).sum(1)


def with_clean(ask: Callable[[Adversary], Tensor], adversary: Adversary) -> tuple[Tensor, Tensor]:
    """Ask for log p(target) with the margins of an adversary; and for the same without any, and without a gradient."""
    log_p = ask(adversary)
    if not adversary.epsilon:
        return log_p, log_p.detach()
    with torch.no_grad():
        return log_p, ask(NOBODY)


class AdversarialHead(Head):
    """A head whose target words may be moved in training, and are where they are in evaluation."""

    adversary: Adversary

    @abstractmethod
    def asking(self, readout: Readout, targets: Tensor) -> Callable[[Adversary], Tensor]:
        """Return what gives log p(target), (T, B), for any adversary; all that is drawn is drawn before."""

    def own_log_prob(self, readout: Readout, targets: Tensor) -> Tensor:
        """Log p(target), (T, B); in training with the margin of `adversary`."""
        return self.asking(readout, targets)(self.present_adversary)

    def own_log_prob_and_clean(self, readout: Readout, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Log p(target), and the same without the margin, under the same dropout."""
        return with_clean(self.asking(readout, targets), self.present_adversary)

    @property
    def present_adversary(self) -> Adversary:
        """Who moves words now."""
        return self.adversary if self.training else NOBODY


def adversarial_log_prob(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, adversary: Adversary
) -> Tensor:
    """Log p(target) of a linear softmax of x (N, D) whose target's vector has moved, (N,); see `linear_log_prob`."""
    margin = adversarial_margin(x, weight, targets, adversary) if adversary.epsilon else None
    return linear_log_prob(x, weight, bias, targets, margin)


def _norm(x: Tensor) -> Tensor:
    return (x.square().sum(1, keepdim=True) + 1e-8).sqrt()


def _last_of_each(targets: Tensor, vocabulary_size: int) -> Tensor:
    """Return for every row the last row of the same target."""
    rows = torch.arange(len(targets), device=targets.device)
    last = rows.new_zeros(vocabulary_size).scatter_reduce_(0, targets, rows, "amax")
    return last[targets]
