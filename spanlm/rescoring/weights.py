"""The weights of a log-linear choice among hypotheses, tuned for the fewest word errors.

Each list yields the hypothesis with the greatest Σ_k w_k · s_k, the first of equal ones. Errors change only where
another hypothesis becomes the greatest, so along one weight they are constant in intervals. These are found exactly:
each hypothesis is a line in that weight, and the chosen ones form the upper envelope of the lines (Och, 2003, "Minimum
Error Rate Training in Statistical Machine Translation", §5). A single weight moves to the middle of its best interval;
no other value has fewer errors. Several weights move one after another, and along random directions, until no move
helps. This is a local optimum; the best of several random starts is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlm.errors import InputError, installation
from spanlm.scoring.resampling import FEWEST_BLOCKS, drawn_means, interval_of

STARTS, DIRECTIONS = 8, 32
ROUNDS = 20
NEAR = 1e-12
"""Numbers that differ only by rounding are at most this far apart, relatively."""

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Candidates:
    """Scores and word errors of the hypotheses of every list.

    Attributes:
        scores: per list, (hypotheses, K).
        errors: per list, the edit distance of each hypothesis to the reference, (hypotheses,).
        words: per list, the number of reference words for each hypothesis, (hypotheses,); alternatives may differ.
    """

    scores: list[Array]
    errors: list[Counts]
    words: list[Counts]

    def errors_of(self, chosen: Sequence[int]) -> Counts:
        """Return the errors of the chosen hypotheses, (lists,)."""
        return np.array([errors[place] for errors, place in zip(self.errors, chosen, strict=True)], dtype=np.int64)

    def words_of(self, chosen: Sequence[int]) -> Counts:
        """Return the reference words for the chosen hypotheses, (lists,)."""
        return np.array([words[place] for words, place in zip(self.words, chosen, strict=True)], dtype=np.int64)

    @cached_property
    def padded(self) -> tuple[Array, Counts]:
        """Scores and errors in one array each; shorter lists repeat their first hypothesis."""
        most = max(map(len, self.errors))
        places = [np.pad(np.arange(len(errors)), (0, most - len(errors))) for errors in self.errors]
        both = zip(self.scores, self.errors, places, strict=True)
        scores, wrong = zip(*((scores[place], errors[place]) for scores, errors, place in both), strict=True)
        return np.array(scores), np.array(wrong)

    @property
    def oracle(self) -> list[int]:
        """The first hypothesis with the fewest errors, of every list."""
        return [int(errors.argmin()) for errors in self.errors]


@dataclass(frozen=True)
class Tuned:
    """The result of tuning.

    Attributes:
        weights: (K,).
        errors: word errors with these weights.
        intervals: per weight, the interval in which the number of errors is the same; None for the first.
        starts: number of starting points.
        exact: True: no weights have fewer errors; False: the weights are a local optimum.
    """

    weights: Array
    errors: int
    intervals: tuple[tuple[float, float] | None, ...]
    starts: int
    exact: bool


def edits() -> Any:
    """Return rapidfuzz's Levenshtein module; InputError: rapidfuzz is not installed."""
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError:
        raise InputError(f"word errors are counted by rapidfuzz: {installation('rescore')}") from None
    return Levenshtein


def totals(scores: Array, weights: Array) -> Array:
    """Return Σ_k w_k · s_k of scores (…, K), added in the order of k, so that equal rows have equal totals."""
    total = scores[..., 0] * weights[0]
    for k in range(1, len(weights)):
        total = total + scores[..., k] * weights[k]
    return np.asarray(total)


def choose(scores: Sequence[Array], weights: Array) -> list[int]:
    return [int(totals(matrix, weights).argmax()) for matrix in scores]


def tune(candidates: Candidates, first: Array) -> Tuned:
    """Find weights with the fewest word errors, on other lists than those to report.

    The search starts at `first` (K,) and at random points around it. The first weight is fixed, as only the ratios of
    the weights matter; so is one of a score that is the same for all hypotheses of each list.
    """
    generator = np.random.default_rng(1)
    # a weight's effect is proportional to the spread of its scores within a list
    spreads = np.mean([scores.std(axis=0) for scores in candidates.scores], axis=0)
    varies = np.any([np.ptp(scores, axis=0) > 0 for scores in candidates.scores], axis=0)
    scale = max(float(spreads @ np.abs(first)), 1e-9) / np.maximum(spreads, 1e-9) * varies
    axes = list(np.eye(len(first))[1:])
    exact = int(varies[1:].sum()) <= 1
    starts, rounds = (1, 0) if exact else (STARTS, ROUNDS)

    optima = []
    for start in range(starts):
        weights = first.astype(np.float64)
        if start:
            weights[1:] = np.where(varies[1:], generator.uniform(-0.5, 3.0, len(axes)) * scale[1:], first[1:])
        drawn = generator.normal(size=(rounds, DIRECTIONS, len(first))) * scale
        drawn[..., 0] = 0.0
        optima.append(_ascend(candidates, weights, [[*axes, *directions] for directions in drawn] or [axes]))
    errors, weights = min(optima, key=itemgetter(0))
    intervals: list[tuple[float, float] | None] = [None]
    for weight, axis in zip(weights[1:].tolist(), axes, strict=True):
        low, high = _interval(*line_search(candidates, weights, axis))
        intervals.append((weight + low, weight + high))
    return Tuned(weights, errors, tuple(intervals), starts, exact)


def _ascend(candidates: Candidates, weights: Array, rounds: Sequence[Sequence[Array]]) -> tuple[int, Array]:
    """Move along each direction to the middle of its best interval, until no direction reduces the errors."""
    errors = int(candidates.errors_of(choose(candidates.scores, weights)).sum())
    for directions in rounds:
        before = errors
        for direction in directions:
            step, fewest = _best_step(*line_search(candidates, weights, direction))
            if fewest < errors:
                weights, errors = weights + step * direction, fewest
        if errors == before:
            break
    return errors, weights


def line_search(candidates: Candidates, weights: Array, direction: Array) -> tuple[Array, Counts]:
    """Return the word errors with weights + x · direction, both (K,), for every x.

    The result is the n sorted values of x at which the choice in some list changes, and the errors in the n + 1
    intervals between these values.
    """
    scores, wrong = candidates.padded
    heights, slopes = totals(scores, weights), totals(scores, direction)
    # at x → −∞ the line with the least slope is the greatest; of equal slopes the highest, then the first
    top = np.where(slopes == slopes.min(axis=1, keepdims=True), heights, -np.inf).argmax(axis=1)
    rows = np.arange(len(top))
    errors, edges, changes = int(wrong[rows, top].sum()), [np.zeros(0)], [np.zeros(0, dtype=np.int64)]
    while len(rows):
        # the line that first crosses the current greatest line is next on the upper envelope
        rise = slopes - slopes[rows, top][:, None]
        crossing = np.full(rise.shape, np.inf)
        np.divide(heights[rows, top][:, None] - heights, rise, out=crossing, where=rise > 0)
        following = crossing.argmin(axis=1)
        edge = crossing[rows, following]
        more = np.isfinite(edge)
        edges.append(edge[more])
        changes.append((wrong[rows, following] - wrong[rows, top])[more])
        heights, slopes, wrong, top = heights[more], slopes[more], wrong[more], following[more]
        rows = np.arange(len(top))
    values = np.concatenate(edges)
    order = np.argsort(values, kind="stable")
    counts = errors + np.concatenate([[0], np.cumsum(np.concatenate(changes)[order])]).astype(np.int64)
    ordered = values[order]
    # lists that change at the same value differ only by rounding, of the value and of the weights
    rounded = NEAR * np.maximum(np.abs(ordered[1:]), np.abs(weights).max() / np.abs(direction).max())
    last = np.append(np.diff(ordered) > rounded, True)[: len(ordered)]
    return ordered[last], np.append(counts[:1], counts[1:][last])


def _best_step(edges: Array, counts: Counts) -> tuple[float, int]:
    """Return the middle of the widest interval with the fewest errors, and the errors; equal neighbours are joined."""
    fewest = int(counts.min())
    if not len(edges):
        return 0.0, fewest
    # extend both ends by half the range of the edges, so that every interval is finite
    reach = max(1.0, float(edges[-1] - edges[0])) / 2
    bounds = np.concatenate([[edges[0] - reach], edges, [edges[-1] + reach]])
    starts = np.flatnonzero((counts == fewest) & np.append(True, counts[:-1] != fewest))
    ends = np.flatnonzero((counts == fewest) & np.append(counts[1:] != fewest, True)) + 1
    widest = int((bounds[ends] - bounds[starts]).argmax())
    return float(bounds[starts[widest]] + bounds[ends[widest]]) / 2, fewest


def _interval(edges: Array, counts: Counts) -> tuple[float, float]:
    """Return the interval around 0 in which the number of errors is constant."""
    place = int(np.searchsorted(edges, 0.0))
    other = np.flatnonzero(counts != counts[place])
    low, high = other[other < place], other[other > place]
    return float(edges[low[-1]]) if len(low) else -np.inf, float(edges[high[0] - 1]) if len(high) else np.inf


def bootstrap(errors: Counts, words: Counts, *, other: Counts | None = None) -> tuple[float, float]:
    """Return the 95 % interval of a word error rate, or of the difference `other` − `errors`, by resampling lists.

    All arguments are (lists,): `errors` of one choice, `other` of another, and `words` of the references. The interval
    is NaN if fewer than `FEWEST_BLOCKS` references have words. The method is that of `spanlm.scoring.resampling`, which
    widens the interval if there are few lists.
    """
    wrong = errors if other is None else other - errors
    if (words > 0).sum() < FEWEST_BLOCKS:
        return math.nan, math.nan
    draws = drawn_means(wrong[:, None].astype(float), words[:, None].astype(float), np.random.default_rng(1))
    ((low, high),) = interval_of(draws[np.isfinite(draws)][:, None])  # skip draws of lists without words
    return (max(0.0, low) if other is None else low), high
