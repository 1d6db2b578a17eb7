"""The neural cache: similarities of a step to each of the last C steps, and the words that followed them.

Grave, Joulin & Usunier, "Improving Neural Language Models with a Continuous Cache" (2017), §3, over the pairs
(h_i, x_{i+1}) of the last C steps before t:

    p_cache(w) ∝ Σ_{t-C <= i < t} 1[x_{i+1} = w] exp(θ h_t · h_i)

All scores of a block of Q queries are one matrix product with the C + Q slots that they may see; each query's band is
cut out of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from spanlm.models.ops.precision import no_autocast, wide, wide_dtype

BLOCK_ELEMENTS = 2**21
"""Scores held at a time (8 MB of float32), so the passes over them run in cache and any window fits in memory."""

LEAST_BLOCK = 32
"""Least steps of a block for any window: fewer make slow matrix products."""


@dataclass(frozen=True)
class Lookup:
    """The slots that a segment's steps look at: S carried slots, then the T steps' own.

    Step t sees at most the last `window` slots before slot S + t, which has step t itself and its target.
    """

    query: Tensor  # (T, B, D), h of the segment's steps
    keys: Tensor  # (S + T, B, D), h of every slot
    words: Tensor  # (S + T, B) int64, the word that followed each slot
    filled: Tensor  # (S + T, B) bool, the slots that hold something; others are not read
    window: int  # C


def cache_log_prob(lookup: Lookup, thetas: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return log p_cache of each step's target for K finite θ >= 0, at the cost of one θ's matrix products.

    (K, T, B) in float32 or float64, -inf where the cache lacks the word; and (T, B) bool, where the cache is empty.
    """
    targets = lookup.words[-len(lookup.query) :]
    log_p = lookup.query.new_empty((len(thetas), *targets.shape), dtype=wide_dtype(lookup.query.dtype))
    empty = torch.empty_like(targets, dtype=torch.bool)
    for steps, slots, scores in _scores(lookup):
        other = _other(lookup, steps, slots)
        for number, theta in enumerate(thetas):
            weights = _exp(scores, theta)
            total = weights.sum(-1)
            hits = weights.masked_fill_(other, 0).sum(-1)
            log_p[number, steps] = (hits / total.clamp(min=1)).log().T
        empty[steps] = (total == 0).T
    return log_p, empty


def cache_places(lookup: Lookup, theta: float, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return p_cache of each step's target, the slots that hold the word, and the slots' shares, largest first.

    (T, B), NaN where the cache is empty; (T, B, M) int64; (T, B, M), for finite θ >= 0, in float32 or float64. M is
    `most`, or the number of slots if that is less. If fewer than M slots hold the word, the last shares are 0, and
    their slots are meaningless.
    """
    chance = lookup.query.new_empty(lookup.query.shape[:-1], dtype=wide_dtype(lookup.query.dtype))
    size = (*lookup.query.shape[:-1], min(most, len(lookup.keys)))
    places = torch.zeros(size, dtype=torch.long, device=lookup.query.device)
    shares = lookup.query.new_zeros(size, dtype=wide_dtype(lookup.query.dtype))
    for steps, slots, scores in _scores(lookup):
        weights = _exp(scores, theta)
        total = weights.sum(-1, keepdim=True)
        weights.div_(total.clamp(min=1)).masked_fill_(_other(lookup, steps, slots), 0)
        chance[steps] = weights.sum(-1).masked_fill_((total == 0).squeeze(-1), torch.nan).T
        share, place = (x.transpose(0, 1) for x in weights.topk(min(most, weights.shape[-1])))
        shares[steps, :, : share.shape[-1]], places[steps, :, : share.shape[-1]] = share, slots.start + place
    return chance, places, shares


def _other(lookup: Lookup, steps: slice, slots: slice) -> Tensor:
    targets = lookup.words[-len(lookup.query) :]
    return lookup.words[slots].T.unsqueeze(1) != targets[steps].T.unsqueeze(2)


def _scores(lookup: Lookup) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield steps, the slots they see, and h_t · h_i (B, Q, slots) minus its maximum; -inf for unseen slots."""
    query, keys = wide(lookup.query), wide(lookup.keys)
    steps, batch, _ = query.shape
    carried, window = len(keys) - steps, lookup.window
    size = max(LEAST_BLOCK, min(window, BLOCK_ELEMENTS // (window * batch)))
    for first in range(0, steps, size):
        block = slice(first, min(first + size, steps))
        slots = slice(max(0, carried + first - window), carried + block.stop)
        with no_autocast(query.device):
            scores = torch.bmm(query[block].transpose(0, 1), keys[slots].permute(1, 2, 0))
        step_slots = torch.arange(carried + first, slots.stop, device=query.device).unsqueeze(1)
        slot = torch.arange(slots.start, slots.stop, device=query.device)
        seen = (step_slots - window <= slot) & (slot < step_slots) & lookup.filled[slots].T.unsqueeze(1)
        scores.masked_fill_(~seen, -torch.inf)
        # the maximum is -inf in an empty cache, and -inf - -inf is NaN
        scores -= scores.amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
        yield block, slots, scores


def _exp(scores: Tensor, theta: float) -> Tensor:
    """Return exp θ s, 0 for s = -inf and every θ, since 0 · -inf and inf · 0 are NaN."""
    limits = torch.finfo(scores.dtype)
    return torch.mul(scores, min(max(theta, limits.tiny), limits.max)).exp_()
