"""The neural cache: any trained model, at evaluation time, mixed with the words it read in situations like now.

Grave, Joulin & Usunier, "Improving Neural Language Models with a Continuous Cache" (2017), §3, the linear
interpolation:

    p(w) = (1 − λ) p_vocab(w) + λ p_cache(w),    p_cache(w) ∝ Σ_{t-C <= i < t} 1[x_{i+1} = w] exp(θ h_t · h_i)

h is what the head reads; that of an ensemble is its members' side by side, so their products add up. A pair
(h_i, x_{i+1}) is in the cache of the steps after i alone, once x_{i+1} was read; the word that a step predicts never
is. While fewer than C pairs were read the sum goes over those; while there is none, p = p_vocab. (The public code of
Merity et al., 2018, leaves the cache out until it is full, and at the first word of each segment.) A stream or document
that begins anew begins with an empty cache. Lines do not: a model whose state is reset at each line has a cache over
the lines before, in the order of the text.

The paper's other mixture, one softmax over vocabulary and cache, needs the normaliser of the vocabulary's softmax,
which heads do not give; it is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import tee
from typing import Any

import torch
from torch import Tensor

from spanlm.data.batching import Segment
from spanlm.data.corpora import Corpus
from spanlm.errors import require
from spanlm.evaluation.scoring import Scored
from spanlm.models.interfaces import Readout
from spanlm.models.ops.neural_cache import Lookup, cache_log_prob


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """A cache and its share.

    Attributes:
        window: C, how many pairs of each stream are kept.
        theta: θ, how much likeness counts; 0: all pairs alike.
        lambda_: λ, the cache's share of the probability.
        tuned_on: the text on which θ and λ were chosen, if they were.

    Raises:
        InputError: a window below 1, a theta that is negative or not finite, a lambda outside [0, 1].
    """

    window: int
    theta: float
    lambda_: float
    tuned_on: str | None = None

    def __post_init__(self) -> None:
        require(self.window >= 1, "cache.window", self.window, "at least 1")
        require(0 <= self.theta < math.inf, "cache.theta", self.theta, "finite and at least 0")
        require(0 <= self.lambda_ <= 1, "cache.lambda", self.lambda_, "in [0, 1]")

    @property
    def description(self) -> str:
        """What it is, in a few words, for people."""
        chosen = "" if self.tuned_on is None else f" (tuned on {self.tuned_on})"
        return f"neural cache of the last {self.window:,} words, θ {self.theta:g}, λ {self.lambda_:g}{chosen}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values, under the papers' names."""
        return {"window": self.window, "theta": self.theta, "lambda": self.lambda_, "tuned_on": self.tuned_on}


def require_text(window: int, corpus: Corpus, split: str) -> None:
    """Refuse a window that no word of a text could fill.

    Raises:
        InputError: the text has fewer tokens than the window.
    """
    tokens = len(corpus.splits[split])
    require(window <= tokens, "cache.window", window, f"at most {tokens}: {corpus.name} {split} has no more tokens")


def as_one_stream(item: Scored) -> Scored:
    """Put the lines of a batch, which follow each other in the text, into one stream that no reset interrupts."""
    segment, kept = item.segment, item.segment.mask.T

    def line_up(x: Tensor) -> Tensor:
        return x.transpose(0, 1)[kept].unsqueeze(1)

    targets = line_up(segment.targets)
    whole = Segment(
        line_up(segment.inputs),
        targets,
        torch.ones_like(targets, dtype=torch.bool),
        torch.zeros(1, dtype=torch.bool, device=segment.reset.device),
    )
    return Scored(whole, line_up(item.log_p), Readout(line_up(item.readout.features)))


def lookups(scored: Iterable[Scored], window: int) -> Iterator[tuple[Scored, Lookup]]:
    """Give each segment what its steps look at in a cache of `window` pairs."""
    cache: Lookup | None = None
    for item in scored:
        segment, features = item.segment, item.readout.features
        keys, words, filled = features, segment.targets, segment.mask
        # asking a GPU would wait for it; there what was reset is carried on as empty slots
        if cache is not None and not (segment.reset.device.type == "cpu" and bool(segment.reset.all())):
            keys = torch.cat([cache.keys[-window:], keys])
            words = torch.cat([cache.words[-window:], words])
            filled = torch.cat([cache.filled[-window:] & ~segment.reset, filled])
        cache = Lookup(features, keys, words, filled, window)
        yield item, cache


def mixed(log_p: Tensor, log_cache: Tensor, empty: Tensor, lambda_: float | Tensor) -> Tensor:
    """Log((1 − λ) p + λ p_cache) in float64, and log p where the cache is empty.

    Args:
        log_p: (T, B).
        log_cache: (T, B).
        empty: (T, B) bool.
        lambda_: one number, or several as (M, 1, 1), which gives (M, T, B).
    """
    share = torch.as_tensor(lambda_, dtype=torch.float64, device=log_p.device)
    both = torch.logaddexp(log_p.double() + torch.log1p(-share), log_cache.double() + share.log())
    return torch.where(empty, log_p.double(), both)


def with_cache(scored: Iterable[Scored], config: CacheConfig, across: bool = False) -> Iterator[Scored]:
    """Mix a cache into the log-probabilities of segments, as `scored_segments` gives them.

    Whatever is made of scored segments can be made of these: log_p is that of the mixture, in its own type.

    Args:
        scored: the segments of a text.
        config: of the cache.
        across: the segments are batches of lines in the order of the text, and the cache goes on from one to the next.
    """
    if across:
        yield from _over_lines(scored, config)
        return
    for item, lookup in lookups(scored, config.window):
        log_cache, empty = cache_log_prob(lookup, (config.theta,))
        log_p = mixed(item.log_p, log_cache[0], empty, config.lambda_)
        yield replace(item, log_p=log_p.to(item.log_p.dtype), metrics={})


def _over_lines(scored: Iterable[Scored], config: CacheConfig) -> Iterator[Scored]:
    batches, again = tee(scored)
    for item, stream in zip(batches, with_cache(map(as_one_stream, again), config), strict=True):
        log_p = item.log_p.clone()
        log_p.transpose(0, 1)[item.segment.mask.T] = stream.log_p.squeeze(1)
        yield replace(item, log_p=log_p, metrics={})
