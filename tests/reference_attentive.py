"""The attentive memory once more, as `reference.py` has the other memories: a plain loop, one vector at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tests.reference import Past, grid


@dataclass
class Attentive:
    """Eq. 7, 9 and 10 of Salton et al. (2017).

    `w_q` None: single, a score of what is remembered alone; `w_s` None: all scores are 0.
    """

    w_s: Tensor | None  # (k, k)
    w_q: Tensor | None  # (k, k)
    v_s: Tensor | None  # (k,)
    w_c: Tensor  # (k, 2 k)
    b_c: Tensor | None  # (k,)


def score(remembered: Tensor, current: Tensor, p: Attentive) -> Tensor:
    """Eq. 9 without W_q, Eq. 10 with it."""
    if p.w_s is None or p.v_s is None:
        return remembered.new_zeros(())
    inner = p.w_s.mv(remembered)
    if p.w_q is not None:
        inner = inner + p.w_q.mv(current)
    return p.v_s.dot(inner.tanh())


def attentive(
    h: Tensor, past: Past, window: int | None, columns: int, tanh: bool, zero_slot: bool, p: Attentive
) -> tuple[Tensor, Tensor, Past]:
    """Eq. 3-7: average the outputs of the last `window` steps (None: of all), without the current one; merge.

    Nothing remembered: c = 0. With the zero slot a zero vector is among what is averaged. Its score is that of any
    other vector, and it has no column. Weights are (T, B, columns), the last column one step back.
    """
    steps, streams = h.shape[:2]
    features = [[torch.empty(0)] * streams for _ in range(steps)]
    weights = [[torch.empty(0)] * streams for _ in range(steps)]
    after = [list(outputs) for outputs in past]
    for b in range(streams):
        for t in range(steps):
            remembered = after[b] if window is None else after[b][-window:]
            always = [torch.zeros_like(h[t, b])] if zero_slot else []
            exponentials = [score(output, h[t, b], p).exp() for output in [*always, *remembered]]
            a = [e / sum(exponentials) for e in exponentials][len(always) :]
            c = torch.zeros_like(h[t, b])
            for share, output in zip(a, remembered, strict=True):
                c = c + share * output
            merged = p.w_c.mv(torch.cat([h[t, b], c]))
            if p.b_c is not None:
                merged = merged + p.b_c
            features[t][b] = merged.tanh() if tanh else merged
            weights[t][b] = torch.stack([h.new_zeros(())] * (columns - len(a)) + a)
            after[b].append(h[t, b])
    return grid(features), grid(weights), after if window is None else [outputs[-window:] for outputs in after]
