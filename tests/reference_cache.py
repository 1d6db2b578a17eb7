"""The neural cache's distribution over all words, a plain loop over streams, time steps and slots.

Written from the papers, not from `spanlm.models`; slow on purpose. As in `tests.reference`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def cache_distribution(
    query: Tensor, keys: Tensor, words: Tensor, filled: Tensor, window: int, theta: float, size: int
) -> tuple[Tensor, Tensor]:
    """p_cache of each of `size` words (T, B, size), zero where the cache is empty; and where that is, (T, B) bool.

    Grave et al. (2017), §3, over the filled slots among the last C before each step's own:

        p_cache(w) ∝ Σ_i 1[x_{i+1} = w] exp(θ h_t · h_i)

    query (T, B, D) are the h_t of the steps; keys (S + T, B, D), words and filled (S + T, B) the slots, the steps' own
    last, and the word that followed each.
    """
    steps, streams, _ = query.shape
    carried = len(keys) - steps
    p = torch.zeros(steps, streams, size, dtype=torch.float64)
    empty = torch.ones(steps, streams, dtype=torch.bool)
    for t in range(steps):
        for b in range(streams):
            slots = [i for i in range(max(0, carried + t - window), carried + t) if filled[i, b]]
            alike = [float((theta * (query[t, b] @ keys[i, b])).exp()) for i in slots]
            for i, weight in zip(slots, alike, strict=True):
                p[t, b, words[i, b]] += weight / sum(alike)
                empty[t, b] = False
    return p, empty


def cached_log_probs(log_probs: Tensor, p_cache: Tensor, empty: Tensor, share: float) -> Tensor:
    """log((1 − λ) p + λ p_cache) of every word (T, B, V), and log p where the cache is empty."""
    mixed = ((1 - share) * log_probs.exp() + share * p_cache).log()
    return torch.where(empty.unsqueeze(-1), log_probs, mixed)
