"""Two predictions of one head and the gate between them (Li et al., 2020, Eq. 8-15).

p is the head's prediction from the encoder's output, q its prediction from the span buffer's reading, or from both
(`reads`). λ is the buffer's share:

    p̃ = λ̂ q + (1 − λ̂) p                                      (9)
    λ  = softmax(g)_0,  λ̂ = softmax(g / T)_0                  (10, 14)
    L  = −log p̃ − η r log λ                                   (11)
    r  = f(min((q / p)^κ, a) − b),  f(z) = z if z >= 0 else β z (12, 13), κ = 5, a = 10, b = 1, β = 3

The temperature T differs between training and evaluation; the paper uses 100 and 0.1. In training λ̂ is near ½, so the
likelihood teaches both predictions but hardly the gate; the gate learns from the reward, whose λ has no temperature.
The reward r is a constant for the gradient, as in REINFORCE: p and q do not learn from it. With an empty buffer p̃ = p
and there is no reward. Under adversarial training p and q are those of the loss, with margins. Everything is computed
in logarithms, without the paper's ε (1e-10, against p = 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from spanlm.errors import require
from spanlm.models.interfaces import MixingHead, Parts, Scores
from spanlm.models.ops.precision import wide
from spanlm.options import NOT_NEGATIVE, Limit, option, options

LEAST_LOG_SHARE = -20.0
"""Below this log λ a negative reward no longer lowers λ, since −η r log λ has no lower bound."""

POWER, MOST, BASE, SLOPE = 5.0, 10.0, 1.0, 3.0
"""κ, the power of q / p; a, the limit of that power; b; and β, the factor of negative rewards."""

LEAST_TEMPERATURE = 1e-6
"""Smallest temperature of a gate; float32 overflows below it."""


TEMPERATURE = Limit(
    lambda temperature: LEAST_TEMPERATURE <= temperature < math.inf,
    f"from {LEAST_TEMPERATURE:g} on and finite; 0 would be a gate that only chooses: 0.01 is nearly that",
)


def require_temperature(temperature: float, name: str) -> None:
    """Refuse a temperature of a gate that is below `LEAST_TEMPERATURE` or not finite."""
    require(TEMPERATURE.fits(temperature), name, temperature, TEMPERATURE.words)


@options("model.memory.gate")
class GateConfig:
    """The temperatures of the gate (Li et al., 2020, Eq. 14)."""

    training_temperature: float = option(
        "temperature of the gate in the training likelihood", default=100.0, limit=TEMPERATURE
    )
    evaluation_temperature: float = option("temperature of the gate in evaluation", default=0.1, limit=TEMPERATURE)


@options("model.memory.reward")
class RewardConfig:
    """The reward from which the gate learns beside the likelihood (Li et al., 2020, Eq. 11-13)."""

    weight: float = option(
        "η, weight of the reward in the loss; 0: the gate learns from the likelihood alone",
        default=0.1,
        limit=NOT_NEGATIVE,
    )


@dataclass(frozen=True)
class SpanMixture:
    """The span buffer's prediction q and its share in the mixture."""

    features: Tensor  # (T, B, D), the input of q: ξ, or h merged with ξ
    gate: Tensor  # g (T, B, 2), logits; index 0 is the buffer
    filled: Tensor  # (T, B) bool, where any span exists
    temperatures: GateConfig
    reward: RewardConfig
    training: bool = False
    """Whether T is the training temperature and the loss contains the reward."""

    def score(self, head: MixingHead, features: Tensor, targets: Tensor) -> Scores:
        return self._scores(*self._log_prob_of_each(head, features, targets))

    def score_twice(self, head: MixingHead, features: Tensor, targets: Tensor) -> tuple[Scores, Scores]:
        """Score targets as `score` does, and as in training: with its temperature and the reward."""
        log_ps = self._log_prob_of_each(head, features, targets)
        return self._scores(*log_ps), replace(self, training=True)._scores(*log_ps)

    def _log_prob_of_each(self, head: MixingHead, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        # one call over 2 T steps, so that masks locked in time are the same for both
        both = torch.cat([features, self.features.to(features.dtype)])
        log_p, log_q = head.own_log_prob(both, targets.repeat(2, 1), mixed=True).chunk(2)
        return log_p, log_q

    def _scores(self, log_p: Tensor, log_q: Tensor) -> Scores:
        reward = rewards(log_p.detach(), log_q.detach()).where(self.filled, 0)
        metrics = self.metrics(log_p.detach(), log_q.detach(), reward)
        if not self.training:
            return Scores(self.mixed(log_p, log_q), 0.0, metrics)
        loss = self.reward_loss(reward)
        return Scores(self.mixed(log_p, log_q), loss, {**metrics, "reward_loss": loss.detach().where(self.filled, 0)})

    def log_probs(self, head: MixingHead, features: Tensor) -> Tensor:
        return self.each(head, features)[2]

    def each(self, head: MixingHead, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log p, log q and log p̃ of every word, (T, B, V) each."""
        log_p, log_q = head.own_log_probs(features), head.own_log_probs(self.features)
        return log_p, log_q, self.mixed(log_p, log_q)

    def parts(self, head: MixingHead, features: Tensor) -> Parts:
        log_probs = dict(zip(("encoder", "buffer", "mixture"), self.each(head, features), strict=True))
        shares = self.gate.double().softmax(-1)[..., 0], self.log_shares()[..., 0].double().exp()
        return Parts(log_probs, self.filled, *shares)

    def map(self, function: Callable[[Tensor], Tensor]) -> SpanMixture:
        features, gate, filled = map(function, (self.features, self.gate, self.filled))
        return replace(self, features=features, gate=gate, filled=filled)

    def log_shares(self) -> Tensor:
        """Log λ̂ and log(1 − λ̂), (T, B, 2), Eq. 14."""
        temperatures = self.temperatures
        t = temperatures.training_temperature if self.training else temperatures.evaluation_temperature
        return (wide(self.gate) / t).log_softmax(-1)

    def mixed(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        """Log p̃ (Eq. 9) of one word a step, (T, B), or of all, (T, B, V); log p with an empty buffer."""
        shape = (*self.filled.shape, *[1] * (log_p.dim() - 2))
        share, rest = (x.reshape(shape) for x in self.log_shares().unbind(-1))
        return torch.where(self.filled.view(shape), torch.logaddexp(share + log_q, rest + log_p), log_p)

    def reward_loss(self, reward: Tensor) -> Tensor:
        """−η r log λ, the second term of Eq. 11, (T, B); where r < 0 with log λ not below `LEAST_LOG_SHARE`."""
        log_share = wide(self.gate).log_softmax(-1)[..., 0]
        # a positive reward keeps its gradient however small λ is: a closed gate can open again
        bounded = torch.where(reward < 0, log_share.clamp(min=LEAST_LOG_SHARE), log_share)
        return -self.reward.weight * reward * bounded

    @torch.no_grad()
    def metrics(self, log_p: Tensor, log_q: Tensor, reward: Tensor) -> dict[str, Tensor]:
        """Return the metrics to sum over a text, (T, B) each; 0 with an empty buffer, `other_…` 0 with a filled one.

        steps: 1; encoder_nll: −log p; buffer_nll: −log q; reward: r; gate: λ, without temperature; utilisation: 1 if
        λ >= ½ (Eq. 15); oracle_utilisation: 1 if q > p; oracle_nll: −log max(p, q);
        untempered_nll: −log p̃ with T = 1, and equal_nll: −log (p + q) / 2, neither in training; other_nll: −log p;
        other_steps: 1.
        """
        shares = wide(self.gate).log_softmax(-1)
        share = shares[..., 0].exp()
        ones = torch.ones_like(share)
        metrics = {
            "steps": ones,
            "encoder_nll": -log_p,
            "buffer_nll": -log_q,
            "reward": reward,
            "gate": share,
            "utilisation": (share >= 0.5).to(share.dtype),
            "oracle_utilisation": (log_q > log_p).to(share.dtype),
            "oracle_nll": -torch.maximum(log_p, log_q),
            "other_nll": -log_p,
            "other_steps": ones,
        }
        if not self.training:
            both = torch.logaddexp(shares[..., 0] + log_q, shares[..., 1] + log_p)
            metrics |= {"untempered_nll": -both, "equal_nll": math.log(2) - torch.logaddexp(log_q, log_p)}
        empty = ~self.filled
        return {name: x.where(empty if "other" in name else self.filled, 0) for name, x in metrics.items()}


def rewards(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Compute the reward r of log p and log q (Eq. 12-13), above −β b and at most a − b."""
    # clamped before the exponential, which would overflow
    over = (POWER * (log_q - log_p)).clamp(max=math.log(MOST)).exp() - BASE
    return torch.where(over >= 0, over, SLOPE * over)
