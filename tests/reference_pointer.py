"""The pointer sentinel once more, as `reference.py` has the other memories: a plain loop, one vector at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tests.reference import grid

PastWords = list[list[tuple[Tensor, int]]]
Copies = list[list[dict[int, Tensor]]]


@dataclass
class Sentinel:
    """W, b and s of Merity et al. (2017)."""

    w: Tensor  # (k, k)
    b: Tensor  # (k,)
    s: Tensor  # (k,)


def pointer_sentinel(
    h: Tensor, words: Tensor, past: PastWords, window: int, p: Sentinel
) -> tuple[Tensor, Tensor, Copies, PastWords]:
    """For each step: softmax over its product with the last `window` states, its own included, and the sentinel.

    `past` pairs each state with the word that was read there. Weights are (T, B, window), the last column the current
    step; gates (T, B); for each step and stream, what is copied: the probability of each word in the window.
    """
    steps, streams = h.shape[:2]
    weights = [[torch.empty(0)] * streams for _ in range(steps)]
    gates = [[torch.empty(0)] * streams for _ in range(steps)]
    copies: Copies = [[{} for _ in range(streams)] for _ in range(steps)]
    after = [list(earlier) for earlier in past]
    for b in range(streams):
        for t in range(steps):
            after[b].append((h[t, b], int(words[t, b])))
            q = (p.w.mv(h[t, b]) + p.b).tanh()
            seen = after[b][-window:]
            exponentials = [q.dot(state).exp() for state, _ in seen]
            gate = q.dot(p.s).exp()
            total = sum(exponentials) + gate
            a = [e / total for e in exponentials]
            weights[t][b] = torch.stack([h.new_zeros(())] * (window - len(a)) + a)
            gates[t][b] = gate / total
            for weight, (_, word) in zip(a, seen, strict=True):
                copies[t][b][word] = copies[t][b].get(word, 0) + weight
    remembered = [earlier[max(0, len(earlier) - (window - 1)) :] for earlier in after]
    return grid(weights), grid(gates), copies, remembered


def mixture(vocabulary: Tensor, gates: Tensor, copies: Copies) -> Tensor:
    """Log of g p_vocab(w) + what is copied of w, (T, B, V), from log p_vocab (T, B, V)."""
    steps, streams, size = vocabulary.shape
    rows = [[torch.empty(0)] * streams for _ in range(steps)]
    for b in range(streams):
        for t in range(steps):
            p = [gates[t, b] * vocabulary[t, b, w].exp() + copies[t][b].get(w, 0) for w in range(size)]
            rows[t][b] = torch.stack(p).log()
    return grid(rows)
