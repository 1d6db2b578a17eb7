"""The weights of a log-linear choice among hypotheses, tuned for the fewest word errors.

The hypothesis that is chosen of a list is that with the greatest Σ_k w_k · s_k, the first of them where several are
equal. How many words are wrong then changes only where another hypothesis comes to be the greatest, so along one weight
it is constant in intervals, which are found exactly: each hypothesis is a line in that weight, and those chosen are the
upper envelope of the lines (Och, 2003, "Minimum Error Rate Training in Statistical Machine Translation", §5). A single
weight goes to the middle of its best interval, and no other value has fewer errors. Of several, one after another does,
and so does their sum in directions drawn by chance, until none helps: the best of several starts is a local optimum.
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
"""Relative distance of two numbers that differ by rounding."""

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Candidates:
    """What is chosen from: of every list, the scores of its hypotheses and how many words of each are wrong.

    Attributes:
        scores: of every list, (hypotheses, K).
        errors: of every list, the edit distance of its hypotheses to its reference, (hypotheses,).
        words: of every list, those of the reference that each of its hypotheses is compared with, (hypotheses,).
    """

    scores: list[Array]
    errors: list[Counts]
    words: list[Counts]

    def errors_of(self, chosen: Sequence[int]) -> Counts:
        """Return the errors of one hypothesis a list, (lists,)."""
        return np.array([errors[place] for errors, place in zip(self.errors, chosen, strict=True)], dtype=np.int64)

    def words_of(self, chosen: Sequence[int]) -> Counts:
        """Return the words of the references of one hypothesis a list, (lists,)."""
        return np.array([words[place] for words, place in zip(self.words, chosen, strict=True)], dtype=np.int64)

    @cached_property
    def padded(self) -> tuple[Array, Counts]:
        """Scores and errors in one array each; lists that are shorter repeat their first hypothesis."""
        most = max(map(len, self.errors))
        places = [np.pad(np.arange(len(errors)), (0, most - len(errors))) for errors in self.errors]
        both = zip(self.scores, self.errors, places, strict=True)
        scores, wrong = zip(*((scores[place], errors[place]) for scores, errors, place in both), strict=True)
        return np.array(scores), np.array(wrong)

    @property
    def oracle(self) -> list[int]:
        """The hypothesis with the fewest errors of every list, the first of them."""
        return [int(errors.argmin()) for errors in self.errors]


@dataclass(frozen=True)
class Tuned:
    """Weights that were found.

    Attributes:
        weights: (K,).
        errors: with them.
        intervals: of every weight but the first, where it can lie so that the number of errors stays.
        starts: from how many points the search began.
        exact: no weights have fewer errors; else they are a local optimum.
    """

    weights: Array
    errors: int
    intervals: tuple[tuple[float, float] | None, ...]
    starts: int
    exact: bool


def edits() -> Any:
    """Return rapidfuzz's Levenshtein distance of lists of words; an InputError where it is not installed."""
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError:
        raise InputError(f"word errors are counted by rapidfuzz: {installation('rescore')}") from None
    return Levenshtein


def choose(scores: Sequence[Array], weights: Array) -> list[int]:
    return [int((matrix @ weights).argmax()) for matrix in scores]


def tune(candidates: Candidates, first: Array) -> Tuned:
    """Find weights with the fewest word errors, on lists that are not those to report.

    The first weight of `first` (K,) stays, for the choice has no scale; the search of the others begins there, and at
    points that are drawn around it.
    """
    generator = np.random.default_rng(1)
    # a weight matters in proportion to how far its scores differ within a list
    spreads = np.mean([scores.std(axis=0) for scores in candidates.scores], axis=0)
    scale = max(float(spreads @ np.abs(first)), 1e-9) / np.maximum(spreads, 1e-9)
    axes = list(np.eye(len(first))[1:])
    exact = len(axes) == 1
    starts, rounds = (1, 0) if exact else (STARTS, ROUNDS)

    optima = []
    for start in range(starts):
        weights = first.astype(np.float64)
        if start:
            weights[1:] = generator.uniform(-0.5, 3.0, len(axes)) * scale[1:]
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
    """Move along one direction after another, each to the middle of its best interval, until none has fewer errors."""
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
    """Return how many words are wrong with weights + x · direction, both (K,), for every x.

    These are the n values of x at which another hypothesis is chosen somewhere, in order, and the errors below the
    first, between each two, and above the last, (n + 1,).
    """
    scores, wrong = candidates.padded
    heights, slopes = scores @ weights, scores @ direction
    # far below 0 the least slope is the greatest line; of equal ones the highest, of these the first
    top = np.where(slopes == slopes.min(axis=1, keepdims=True), heights, -np.inf).argmax(axis=1)
    rows = np.arange(len(top))
    errors, edges, changes = int(wrong[rows, top].sum()), [np.zeros(0)], [np.zeros(0, dtype=np.int64)]
    while len(rows):
        # the line that crosses the greatest one first is the next of the upper envelope
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
    # where several lists change at one value, nothing lies between but rounding, of the value and of the weights
    rounded = NEAR * np.maximum(np.abs(ordered[1:]), np.abs(weights).max() / np.abs(direction).max())
    last = np.append(np.diff(ordered) > rounded, True)[: len(ordered)]
    return ordered[last], np.append(counts[:1], counts[1:][last])


def _best_step(edges: Array, counts: Counts) -> tuple[float, int]:
    """Return the middle of the widest interval with the fewest errors, and these; neighbours with as many are one."""
    fewest = int(counts.min())
    if not len(edges):
        return 0.0, fewest
    # half the range of all edges is added at both ends, so that no interval is endless
    reach = max(1.0, float(edges[-1] - edges[0])) / 2
    bounds = np.concatenate([[edges[0] - reach], edges, [edges[-1] + reach]])
    starts = np.flatnonzero((counts == fewest) & np.append(True, counts[:-1] != fewest))
    ends = np.flatnonzero((counts == fewest) & np.append(counts[1:] != fewest, True)) + 1
    widest = int((bounds[ends] - bounds[starts]).argmax())
    return float(bounds[starts[widest]] + bounds[ends[widest]]) / 2, fewest


def _interval(edges: Array, counts: Counts) -> tuple[float, float]:
    """Return the interval around 0 in which the number of errors is the same."""
    place = int(np.searchsorted(edges, 0.0))
    other = np.flatnonzero(counts != counts[place])
    low, high = other[other < place], other[other > place]
    return float(edges[low[-1]]) if len(low) else -np.inf, float(edges[high[0] - 1]) if len(high) else np.inf


def bootstrap(errors: Counts, words: Counts, *, other: Counts | None = None) -> tuple[float, float]:
    """Return the 95 % interval of a word error rate, or of the difference `other` − `errors` of two, by drawing lists.

    As `spanlm.scoring.resampling` says: with few lists it is wider than the middle of the plain draws, and NaN where
    fewer than `FEWEST_BLOCKS` of the references have words. `errors`, `words` of the reference and `other` (errors of
    another choice) are of every list, (lists,).
    """
    wrong = errors if other is None else other - errors
    if (words > 0).sum() < FEWEST_BLOCKS:
        return math.nan, math.nan
    draws = drawn_means(wrong[:, None].astype(float), words[:, None].astype(float), np.random.default_rng(1))
    ((low, high),) = interval_of(draws[np.isfinite(draws)][:, None])  # without draws of silence alone
    return (max(0.0, low) if other is None else low), high
