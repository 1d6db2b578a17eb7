"""The pointer sentinel (Merity et al., 2017): attention that may decline to point, and its mixture with a softmax.

The softmax of the attention has one place more than the window, the sentinel. What falls on the sentinel is the gate
g with which the head's own distribution is taken; what falls on a step goes to the word that was read there:

    [a_t; g_t] = softmax([z_t; q_t · s]),    p(w) = g_t p_own(w) + Σ_{i: x_i = w} a_{t,i}

Everything stays a logarithm. The scores are products of hundreds of units, so weights that float32 rounds to zero are
common, and log 0 has no gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spanlm.models.ops.dot_window_attention import dot_window_scores
from spanlm.models.ops.window_attention import window_filled


def sentinel_attention(query: Tensor, keys: Tensor, sentinel: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
    """Attend over the window that ends with each step, or over the sentinel.

    Computed in float32 (float64 for float64 input) whatever the autocast.

    Args:
        query: q (T, B, D).
        keys: (L - 1 + T, B, D); the first L - 1 are carried, then one a step.
        sentinel: s (D,).
        filled: (L - 1, B) bool, which carried slots hold something; what stands in the others must be finite.

    Returns:
        log a (T, B, L), column j being lag L - 1 - j, -inf for an empty slot; and log g (T, B).
    """
    steps, window = len(query), len(filled) + 1
    scores = dot_window_scores(query, keys, window).masked_fill(~window_filled(filled, steps, window), -torch.inf)
    with torch.autocast(query.device.type, enabled=False):
        to_sentinel = query.to(scores.dtype) @ sentinel.to(scores.dtype)
        log_weights = torch.cat([scores, to_sentinel.unsqueeze(-1)], -1).log_softmax(-1)
    return log_weights[..., :-1], log_weights[..., -1]


def mixed_log_prob(own: Tensor, targets: Tensor, log_weights: Tensor, words: Tensor, log_gate: Tensor) -> Tensor:
    """Mix the log-probability of one word a step.

    Args:
        own: log p_own(target), (T, B).
        targets: (T, B) int64.
        log_weights: log a (T, B, L), -inf where there is no weight.
        words: x (T, B, L) int64, the word of each weight.
        log_gate: log g (T, B), finite.

    Returns:
        log p(target), (T, B).
    """
    pointed = log_weights.masked_fill(words != targets.unsqueeze(-1), -torch.inf)
    return torch.cat([(log_gate + own).unsqueeze(-1), pointed], -1).logsumexp(-1)


def mixed_log_probs(own: Tensor, log_weights: Tensor, words: Tensor, log_gate: Tensor) -> Tensor:
    """Mix the log-probabilities of all words.

    The slots are added one after the other, each in place to its own word of every row: two slots with the same word
    are never added at once, so the sum has one order on every device, and only (T, B) numbers are touched a slot.

    Args:
        own: log p_own, (T, B, V).
        log_weights: log a (T, B, L), -inf where there is no weight.
        words: x (T, B, L) int64, the word of each weight.
        log_gate: log g (T, B), finite.

    Returns:
        log p, (T, B, V).
    """
    mixed = (own + log_gate.unsqueeze(-1)).flatten()
    starts = torch.arange(0, mixed.numel(), own.shape[-1], device=own.device)
    places = starts.unsqueeze(1) + words.flatten(0, 1)
    for place, log_weight in zip(places.unbind(1), log_weights.flatten(0, 1).unbind(1), strict=True):
        mixed.index_copy_(0, place, torch.logaddexp(mixed.index_select(0, place), log_weight))
    return mixed.view_as(own)
