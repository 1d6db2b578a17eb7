"""Weights: the exact line search against trying every value, the search against planted weights, the intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spanlm.rescoring.weights import Candidates, bootstrap, choose, line_search, tune

AXIS = np.array([0.0, 1.0, 0.5])


def candidates(seed: int, lists: int = 6, most: int = 7, names: int = 3, *, whole: bool = False) -> Candidates:
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, most + 1, size=lists)
    draw = (lambda n: generator.integers(-2, 3, size=(n, names)).astype(float)) if whole else None
    scores = [draw(n) if draw else generator.normal(size=(n, names)) for n in sizes]
    errors = [generator.integers(0, 6, size=n) for n in sizes]
    return Candidates(scores, errors, [np.full(n, 5) for n in sizes])


@example(1525, True)  # several lists change at 0, but for rounding
@given(st.integers(0, 10_000), st.booleans())
def test_line_search_counts_what_choosing_counts(seed: int, whole: bool) -> None:
    found = candidates(seed, whole=whole)
    weights = np.array([1.0, 0.3, -0.2])
    edges, counts = line_search(found, weights, AXIS)
    assert len(counts) == len(edges) + 1
    assert (np.diff(edges) > 0).all(), "between equal edges there would be nothing to choose"
    bounds = np.concatenate([edges[:1] - 1, edges, edges[-1:] + 1]) if len(edges) else np.array([0.0, 1.0])
    for low, high, count in zip(bounds, bounds[1:], counts, strict=False):
        moved = weights + (low + high) / 2 * AXIS
        assert found.errors_of(choose(found.scores, moved)).sum() == count


def test_of_equal_hypotheses_the_first_is_chosen() -> None:
    assert choose([np.zeros((3, 2))], np.ones(2)) == [0]
    found = Candidates([np.array([[0.0, 1.0], [0.0, 1.0]])], [np.array([2, 0])], [np.array([2, 2])])
    assert line_search(found, np.ones(2), np.array([0.0, 1.0]))[1].tolist() == [2]


def test_tuning_finds_planted_weights() -> None:
    # the right hypothesis is the greatest exactly with the planted weights' signs and sizes
    generator = np.random.default_rng(3)
    planted = np.array([1.0, 0.6, 1.5])
    scores = [generator.normal(size=(30, 3)) for _ in range(60)]
    errors = [np.where(np.arange(30) == (each @ planted).argmax(), 0, 4) for each in scores]
    found = Candidates(scores, errors, [np.full(30, 10)] * 60)
    alone = found.errors_of(choose(scores, np.array([1.0, 0.0, 0.0]))).sum()
    result = tune(found, np.array([1.0, 0.0, 0.0]))
    assert result.errors == found.errors_of(choose(scores, result.weights)).sum()
    assert result.errors < alone / 10
    assert result.weights == pytest.approx(planted, rel=0.15)
    assert result.intervals[0] is None and result.weights[0] == 1.0
    for interval, weight in zip(result.intervals[1:], result.weights[1:], strict=True):
        assert interval is not None and interval[0] < weight < interval[1]


@pytest.mark.parametrize("seed", range(8))
def test_one_weight_is_tuned_exactly_and_several_as_well_as_by_many_draws(seed: int) -> None:
    """Against a value between each two at which any two hypotheses change their order, and against random weights."""
    one = candidates(seed, lists=15, names=2)
    pairs = [(x - y) for scores in one.scores for x in scores for y in scores]
    edges = np.sort([-difference[0] / difference[1] for difference in pairs if difference[1]])
    values = np.concatenate([[edges[0] - 1], (edges[1:] + edges[:-1]) / 2, [edges[-1] + 1]])

    def least(found: Candidates, weights: list[np.ndarray]) -> int:
        return min(int(found.errors_of(choose(found.scores, each)).sum()) for each in weights)

    tuned = tune(one, np.array([1.0, 0.0]))
    assert tuned.exact and tuned.errors == least(one, [np.array([1.0, value]) for value in values])
    several = candidates(seed, lists=15)
    tuned = tune(several, np.array([1.0, 0.0, 0.0]))
    drawn = np.random.default_rng(seed).normal(size=(2_000, 2)) * 3
    assert not tuned.exact and tuned.errors <= least(several, [np.array([1.0, *draw]) for draw in drawn])


def test_errors_that_no_weight_gives_are_not_claimed() -> None:
    """Two lists of the same scores change at the same weight: one of them is wrong on either side."""
    scores = [np.array([[0.0, 2.0], [-1.0, 1.0]])] * 2
    found = Candidates(scores, [np.array([3, 0]), np.array([0, 3])], [np.array([5, 5])] * 2)
    result = tune(found, np.array([1.0, 0.5]))
    assert result.errors == found.errors_of(choose(scores, result.weights)).sum() == 3


def test_bootstrap_holds_the_rate_and_is_none_wide_where_lists_are_alike() -> None:
    generator = np.random.default_rng(0)
    errors, words = generator.integers(0, 5, size=200), np.full(200, 10)
    low, high = bootstrap(errors, words)
    assert low < errors.sum() / words.sum() < high
    assert bootstrap(np.full(10, 2), np.full(10, 8)) == (0.25, 0.25)
    assert bootstrap(errors, words, other=errors) == (0.0, 0.0)
    assert np.isnan(bootstrap(np.full(9, 2), np.full(9, 8))).all()
    words[5:190] = 0  # references of silence
    assert np.isfinite(bootstrap(errors, words)).all() and np.isnan(bootstrap(errors[5:], words[5:] * 0)).all()
