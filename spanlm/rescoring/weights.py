"""The weights of a log-linear choice among hypotheses, tuned for the fewest word errors.

The hypothesis that is chosen of a list is that with the greatest Σ_k w_k · s_k, the first of them where several are
equal. How many words are wrong then changes only where another hypothesis comes to be the greatest, so along one weight
it is constant in intervals, which are found exactly: each hypothesis is a line in that weight, and those chosen are the
upper envelope of the lines (Och, 2003, "Minimum Error Rate Training in Statistical Machine Translation", §5). One
weight after another is put into the middle of its best interval until no weight helps; from several starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spanlm.errors import InputError, require

STARTS = 8
ROUNDS = 20
RESAMPLES = 1000

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Candidates:
    """What is chosen from: of every list, the scores of its hypotheses and how many words of each are wrong.

    Attributes:
        names: of the scores, (K,).
        scores: of every list, (hypotheses, K).
        errors: of every list, the edit distance of its hypotheses to its reference, (hypotheses,).
        words: of every list's reference.
    """

    names: tuple[str, ...]
    scores: list[Array]
    errors: list[Counts]
    words: Counts

    def errors_of(self, chosen: Sequence[int]) -> Counts:
        """Return the errors of one hypothesis a list, (lists,)."""
        return np.array([errors[place] for errors, place in zip(self.errors, chosen, strict=True)], dtype=np.int64)

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
        intervals: of every weight, where it can lie so that the number of errors stays; None: it was not tuned.
        starts: from how many points the search began.
    """

    weights: Array
    errors: int
    intervals: tuple[tuple[float, float] | None, ...]
    starts: int


def edit_distances(hypotheses: Sequence[Sequence[str]], reference: Sequence[str]) -> Counts:
    """Return the least number of words to substitute, delete or insert, of every hypothesis."""
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError:
        raise InputError("word errors are counted by rapidfuzz and jiwer: pip install 'spanlm[rescore]'") from None
    return np.array([Levenshtein.distance(list(words), list(reference)) for words in hypotheses], dtype=np.int64)


def choose(scores: Sequence[Array], weights: Array) -> list[int]:
    """Return which hypothesis of every list has the greatest weighted score; of equal ones the first."""
    return [int((each @ weights).argmax()) for each in scores]


def tune(candidates: Candidates, first: Array, tuned: Sequence[int], *, starts: int = STARTS, seed: int = 1) -> Tuned:
    """Find weights with the fewest word errors.

    Args:
        candidates: of the lists to tune on; never those to report.
        first: the weights to begin with, (K,).
        tuned: which of them may change; one of the others must not be 0, as the choice has no scale.
        starts: points to search from: `first`, and others drawn around it.
        seed: of what is drawn.

    Raises:
        InputError: no list, or no weight to tune.
    """
    require(len(candidates.scores) > 0, "lists", 0, "at least 1")
    require(len(tuned) > 0, "weights", 0, "at least 1 to tune")
    generator = np.random.default_rng(seed)
    # a weight matters in proportion to how far its scores differ within a list
    spreads = np.mean([each.std(axis=0) for each in candidates.scores], axis=0)
    scale = max(float(spreads @ np.abs(first)), 1e-9) / np.maximum(spreads, 1e-9)
    best: tuple[int, Array] | None = None
    for start in range(starts):
        weights = first.astype(np.float64)
        if start:
            for k in tuned:
                weights[k] = generator.uniform(0.0, 1.0) * scale[k]
        found = _ascend(candidates, weights, tuned)
        if best is None or found[0] < best[0]:
            best = found
    assert best is not None
    errors, weights = best
    intervals: list[tuple[float, float] | None] = [None] * len(weights)
    for k in tuned:
        intervals[k] = _interval_around(candidates, weights, k)
    return Tuned(weights, errors, tuple(intervals), starts)


def _ascend(candidates: Candidates, weights: Array, tuned: Sequence[int]) -> tuple[int, Array]:
    errors = int(candidates.errors_of(choose(candidates.scores, weights)).sum())
    for _ in range(ROUNDS):
        before = errors
        for k in tuned:
            edges, counts = line_search(candidates, weights, k)
            low, high, fewest = _widest(edges, counts)
            if fewest < errors:
                weights, errors = weights.copy(), fewest
                weights[k] = _middle(low, high)
        if errors == before:
            break
    return errors, weights


def line_search(candidates: Candidates, weights: Array, k: int) -> tuple[Array, Counts]:
    """Return how many words are wrong for every value of one weight, the others as they are.

    Args:
        candidates: to choose from.
        weights: (K,).
        k: which weight.

    Returns:
        The n values at which another hypothesis is chosen somewhere, in order, and the errors below the first, between
        each two, and above the last, (n + 1,).
    """
    others = weights.copy()
    others[k] = 0.0
    edges: list[float] = []
    changes: list[int] = []
    errors = 0
    for scores, wrong in zip(candidates.scores, candidates.errors, strict=True):
        chosen, values = _envelope(scores @ others, scores[:, k])
        errors += int(wrong[chosen[0]])
        edges += values
        changes += np.diff(wrong[chosen]).tolist()
    order = np.argsort(edges, kind="stable")
    counts = errors + np.concatenate([[0], np.cumsum(np.array(changes, dtype=np.int64)[order])])
    return np.array(edges, dtype=np.float64)[order], counts.astype(np.int64)


def _envelope(heights: Array, slopes: Array) -> tuple[list[int], list[float]]:
    """Return the lines height + value · slope that are the greatest from −∞ to ∞, and the values between them."""
    order = np.lexsort((np.arange(len(slopes)), -heights, slopes))
    chosen: list[int] = []
    values: list[float] = []
    for line in order.tolist():
        if chosen and slopes[line] == slopes[chosen[-1]]:
            continue  # lower, or the same and later in the list
        while chosen:
            top = chosen[-1]
            value = float((heights[top] - heights[line]) / (slopes[line] - slopes[top]))
            if not values or value > values[-1]:
                values.append(value)
                break
            chosen.pop()
            values.pop()
        chosen.append(line)
    return chosen, values[: len(chosen) - 1]


def _widest(edges: Array, counts: Counts) -> tuple[float, float, int]:
    """Return the widest range of a weight with the fewest errors, and these; neighbours with as many are one range."""
    fewest = int(counts.min())
    bounds = np.concatenate([[-np.inf], edges, [np.inf]])
    best = (0.0, 0.0, -1.0)
    # outside of all values one more half of their range counts, so that no range is endless
    reach = max(1.0, float(edges[-1] - edges[0])) / 2 if len(edges) else 1.0
    ends = np.clip(bounds, bounds[1] - reach, bounds[-2] + reach) if len(edges) else np.array([-1.0, 1.0])
    place = 0
    while place < len(counts):
        if counts[place] != fewest:
            place += 1
            continue
        last = place
        while last + 1 < len(counts) and counts[last + 1] == fewest:
            last += 1
        width = float(ends[last + 1] - ends[place])
        if width > best[2]:
            best = (float(ends[place]), float(ends[last + 1]), width)
        place = last + 1
    return best[0], best[1], fewest


def _middle(low: float, high: float) -> float:
    return (low + high) / 2


def _interval_around(candidates: Candidates, weights: Array, k: int) -> tuple[float, float]:
    """Return the range of weight k around its value in which the number of errors stays."""
    edges, counts = line_search(candidates, weights, k)
    place = int(np.searchsorted(edges, weights[k]))
    low = high = place
    while low > 0 and counts[low - 1] == counts[place]:
        low -= 1
    while high < len(edges) and counts[high + 1] == counts[place]:
        high += 1
    bounds = np.concatenate([[-np.inf], edges, [np.inf]])
    return float(bounds[low]), float(bounds[high + 1])


def bootstrap(errors: Counts, words: Counts, *, other: Counts | None = None, seed: int = 1) -> tuple[float, float]:
    """Return the 95 % interval of a word error rate, or of the difference to another choice's, by drawing lists anew.

    Args:
        errors: of every list.
        words: of every list's reference.
        other: errors of the other choice; the difference is `other` − `errors`.
        seed: of what is drawn.
    """
    generator = np.random.default_rng(seed)
    drawn = generator.integers(len(errors), size=(RESAMPLES, len(errors)))
    wrong = errors if other is None else other - errors
    rates = wrong[drawn].sum(1) / np.maximum(1, words[drawn].sum(1))
    low, high = np.quantile(rates, [0.025, 0.975])
    return float(low), float(high)
