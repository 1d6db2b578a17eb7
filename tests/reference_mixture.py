"""The mixture of softmaxes and the adversarial softmax once more: plain loops over steps, streams, experts and words.

Written from the papers and the public code, like `tests/reference.py`: float64, one vector at a time, slow on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tests.reference import grid


@dataclass
class Mixture:
    """A mixture of softmaxes (Yang et al., 2018); `mask[b]` is stream b's dropout of g, None: no dropout."""

    w_l: Tensor  # (K E, D)
    b_l: Tensor  # (K E,)
    w_p: Tensor  # (K, D)
    words: Tensor  # (V, E)
    bias: Tensor | None  # (V,)
    mask: Tensor | None = None  # (B, K E)

    def latents(self, h: Tensor, stream: int) -> list[Tensor]:
        """g_k of one step."""
        g = (self.w_l.mv(h) + self.b_l).tanh()
        if self.mask is not None:
            g = g * self.mask[stream]
        size = self.words.shape[1]
        return [g[k * size : (k + 1) * size] for k in range(len(self.w_p))]

    def priors(self, h: Tensor) -> list[Tensor]:
        """π_k of one step."""
        exponentials = [row.dot(h).exp() for row in self.w_p]
        return [e / sum(exponentials) for e in exponentials]


def mixture_of_softmaxes(features: Tensor, p: Mixture) -> Tensor:
    """Log Σ_k π_k softmax(W g_k + b), (T, B, V), mixed as probabilities."""
    rows = [[torch.empty(0)] * features.shape[1] for _ in features]
    for t, step in enumerate(features):
        for b, h in enumerate(step):
            total = torch.zeros(len(p.words), dtype=h.dtype)
            for share, g in zip(p.priors(h), p.latents(h, b), strict=True):
                exponentials = torch.stack([z.exp() for z in logits(g, p.words, p.bias)])
                total = total + share * exponentials / exponentials.sum()
            rows[t][b] = total.log()
    return grid(rows)


def logits(x: Tensor, words: Tensor, bias: Tensor | None) -> list[Tensor]:
    """w_v · x + b_v of every word."""
    return [w.dot(x) + (0 if bias is None else bias[v]) for v, w in enumerate(words)]


def adversarial_change(x: Tensor, w: Tensor, epsilon: float) -> Tensor:
    """What is added to w: −ε‖w‖ x/‖x‖, a constant, and nothing unless cos(x, w) > 0."""
    x, w = x.detach(), w.detach()
    x_norm, w_norm = (x.dot(x) + 1e-8).sqrt(), (w.dot(w) + 1e-8).sqrt()
    if not x.dot(w) / x_norm / w_norm > 0:
        return torch.zeros_like(w)
    return -epsilon * w_norm * x / x_norm


def adversarial_log_prob(
    xs: list[Tensor], targets: list[int], words: Tensor, bias: Tensor | None, epsilon: float
) -> list[Tensor]:
    """Log p(target) of each x where the target's vector has moved."""
    changes = [adversarial_change(x, words[y], epsilon) for x, y in zip(xs, targets, strict=True)]
    found = []
    for x, y, change in zip(xs, targets, changes, strict=True):
        z = logits(x, words, bias)
        z[y] = z[y] + change.dot(x)
        found.append(z[y] - sum(one.exp() for one in z).log())
    return found


def adversarial_mixture(features: Tensor, targets: Tensor, p: Mixture, epsilon: float) -> Tensor:
    """Log p(target) (T, B) of a mixture whose experts all meet the moved vector."""
    steps, streams = targets.shape
    xs, repeated, priors = [], [], []
    for t in range(steps):
        for b in range(streams):
            xs += p.latents(features[t, b], b)
            repeated += [int(targets[t, b])] * len(p.w_p)
            priors += p.priors(features[t, b])
    each = adversarial_log_prob(xs, repeated, p.words, p.bias, epsilon)
    terms = torch.stack([share * one.exp() for share, one in zip(priors, each, strict=True)])
    return terms.view(steps, streams, -1).sum(-1).log()
