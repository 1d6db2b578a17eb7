"""Two predictions of one head and the gate between them (Li et al., 2020, Eq. 8-15).

p is what the head says of the encoder's output, q what it says of what the span buffer read. λ is the buffer's share:

    p̃ = λ̂ q + (1 − λ̂) p                                      (9)
    λ  = softmax(g)_0,  λ̂ = softmax(g / T)_0                  (10, 14)
    L  = −log p̃ − η r log λ                                   (11)
    r  = f(min((q / p)^κ, a) − b),  f(z) = z if z >= 0 else β z (12, 13)

T is one temperature in training and another in evaluation; the paper uses 100 and 0.1. In training λ̂ is near ½ and the
likelihood teaches both parts and hardly the gate; the gate learns from the reward, whose λ knows no temperature
(`reward_gate` tempered: it is λ̂, and W_g learns 1/T as fast). The reward is a number to the gradient, as in REINFORCE:
p and q do not learn from it. (If `reward_constant` is false they do, wherever (q / p)^κ < a: since log λ < 0 the loss
grows with r, so that p learns to grow and q to shrink.) Where nothing is remembered p̃ = p and there is no reward. All
is worked out in logarithms, so the paper's ε (1e-10, against p = 0) has no part in it.

Under adversarial training there are two readings of the p and q in r. Eq. 12 names those of Eq. 2 and 8, which know no
margins, and the gate that the reward teaches is used where there are none; a margin grows with the length of what the
softmax reads, so that with margins the part with the shorter vectors looks better than it is, by κ times the
difference. That speaks for `rewarded` clean. The paper adds the adversarial softmax to its model without a word on the
reward, and one pass of the model with it gives the p and q of the loss: that is `rewarded` adversarial, the default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch
from torch import Tensor

from spanlm.errors import require
from spanlm.models.ops.precision import wide

NegativeReward = Literal["literal", "complement"]
Rewarded = Literal["adversarial", "clean"]
RewardGate = Literal["plain", "tempered"]

LEAST_LOG_SHARE = -20.0
"""Below it a negative reward no longer lowers λ: −η r log λ has no lower bound there."""

LEAST_TEMPERATURE = 1e-6
"""Of a gate. What is divided by it is float32, where smaller numbers overflow, and at last are 0 themselves."""


def require_temperature(temperature: float, field: str) -> None:
    """Refuse what is no temperature of a gate.

    Raises:
        InputError: it is below `LEAST_TEMPERATURE` or not finite.
    """
    limit = f"from {LEAST_TEMPERATURE:g} on and finite; 0 would be a gate that only chooses: 0.01 is nearly that"
    require(LEAST_TEMPERATURE <= temperature < math.inf, field, temperature, limit)


@dataclass(frozen=True)
class GateRule:
    """How two predictions are mixed, and what their gate is taught.

    Attributes:
        training_temperature: T in training.
        evaluation_temperature: T in evaluation.
        reward: η, what the reward counts beside −log p̃.
        reward_power: κ.
        reward_most: a, the largest (q / p)^κ that counts.
        reward_base: b, what is taken off.
        reward_slope: β, of f below 0.
        negative_reward: literal, or complement: where r < 0 the loss grows by −η |r| log(1 − λ), which is bounded.
        rewarded: which p and q the reward compares in adversarial training: those of the loss, or clean ones.
        reward_gate: plain, or tempered: the λ of the reward's term is the λ̂ of training.
        reward_constant: r is a number to the gradient; else p and q learn from it.
    """

    training_temperature: float
    evaluation_temperature: float
    reward: float
    reward_power: float
    reward_most: float
    reward_base: float
    reward_slope: float
    negative_reward: NegativeReward = "literal"
    rewarded: Rewarded = "adversarial"
    reward_gate: RewardGate = "plain"
    reward_constant: bool = True


@dataclass(frozen=True)
class Buffered:
    """What a span buffer hands to the head beside the encoder's features.

    Attributes:
        features: ξ (T, B, D), what the buffer predicts from.
        gate: g (T, B, 2), logits; index 0 is the buffer.
        filled: (T, B) bool, where there is anything to read.
        rule: of the mixture.
        policy: g once more, from an h_t that is a number to the gradient: the reward then teaches W_g alone. None: it
            teaches all that g depends on.
    """

    features: Tensor
    gate: Tensor
    filled: Tensor
    rule: GateRule
    policy: Tensor | None = None

    def log_shares(self, training: bool) -> Tensor:
        """Return log λ̂ and log(1 − λ̂), (T, B, 2), with the temperature of training or evaluation (Eq. 14)."""
        rule = self.rule
        temperature = rule.training_temperature if training else rule.evaluation_temperature
        return (wide(self.gate) / temperature).log_softmax(-1)

    def rewarded_log_shares(self) -> Tensor:
        """Return log λ and log(1 − λ) as the reward's term has them, (T, B, 2)."""
        temperature = self.rule.training_temperature if self.rule.reward_gate == "tempered" else 1.0
        return (wide(self.gate if self.policy is None else self.policy) / temperature).log_softmax(-1)

    def map(self, function: Callable[[Tensor], Tensor]) -> Buffered:
        """Apply `function` to every tensor."""
        policy = None if self.policy is None else function(self.policy)
        features, gate, filled = map(function, (self.features, self.gate, self.filled))
        return replace(self, features=features, gate=gate, filled=filled, policy=policy)


@dataclass(frozen=True)
class PartScores:
    """What each part says of the target words, all (T, B).

    Attributes:
        encoder: log p(target).
        buffer: log q(target).
        log_share: log λ, without temperature.
        reward: r, detached unless `reward_constant` is false; 0 where nothing is remembered.
        filled: bool, where there is anything to read.
    """

    encoder: Tensor
    buffer: Tensor
    log_share: Tensor
    reward: Tensor
    filled: Tensor

    def detach(self) -> PartScores:
        """Cut it off from the graph that made it."""
        return PartScores(*(getattr(self, field.name).detach() for field in fields(self)))


def log_mixture(encoder: Tensor, buffer: Tensor, buffered: Buffered, training: bool) -> Tensor:
    """Log p̃, Eq. 9 with the λ̂ of Eq. 14.

    Args:
        encoder: log p, (T, B) of one word a step or (T, B, V) of all.
        buffer: log q likewise.
        buffered: the gate.
        training: which temperature is used.

    Returns:
        Of the shape of `encoder`; log p where nothing is remembered.
    """
    shape = (*buffered.filled.shape, *[1] * (encoder.dim() - 2))
    share, rest = (x.reshape(shape) for x in buffered.log_shares(training).unbind(-1))
    return torch.where(buffered.filled.view(shape), torch.logaddexp(share + buffer, rest + encoder), encoder)


def part_scores(
    encoder: Tensor, buffer: Tensor, buffered: Buffered, compared: Sequence[Tensor] | None = None
) -> PartScores:
    """Name the parts and work out λ and the reward.

    Args:
        encoder: log p of the targets.
        buffer: log q.
        buffered: the gate.
        compared: log p and log q as the reward is to compare them; None: as they are.
    """
    log_share = wide(buffered.gate).log_softmax(-1)[..., 0]
    log_p, log_q = compared or (encoder, buffer)
    if buffered.rule.reward_constant:
        log_p, log_q = log_p.detach(), log_q.detach()
    reward = rewards(log_p, log_q, buffered.rule).where(buffered.filled, 0)
    return PartScores(encoder, buffer, log_share, reward, buffered.filled)


def rewards(encoder: Tensor, buffer: Tensor, rule: GateRule) -> Tensor:
    """Work out r of log p and log q (Eq. 12-13); it lies above −β b and goes up to a − b."""
    # clamped before the exponential, which would overflow
    power = (rule.reward_power * (buffer - encoder)).clamp(max=math.log(rule.reward_most)).exp()
    over = power - rule.reward_base
    return torch.where(over >= 0, over, rule.reward_slope * over)


def training_score(parts: PartScores, buffered: Buffered) -> Tensor:
    """Work out what training makes large, (T, B): log p̃ at its temperature + η r log λ (Eq. 11), of given parts.

    Args:
        parts: with the graph that made them.
        buffered: the gate.
    """
    return log_mixture(parts.encoder, parts.buffer, buffered, training=True) - reward_loss(parts, buffered)


def reward_loss(parts: PartScores, buffered: Buffered) -> Tensor:
    """Work out −η r log λ, the second term of Eq. 11, (T, B).

    Where r < 0 the term falls without end as λ goes to 0. There log λ is kept above `LEAST_LOG_SHARE`, or with
    `negative_reward="complement"` the term is −η |r| log(1 − λ).
    """
    rule = buffered.rule
    log_share, log_rest = buffered.rewarded_log_shares().unbind(-1)
    discouraged = -log_rest if rule.negative_reward == "complement" else log_share.clamp(min=LEAST_LOG_SHARE)
    # a positive reward keeps its gradient however small λ is: a closed gate can open again
    return -rule.reward * parts.reward * torch.where(parts.reward < 0, discouraged, log_share)
