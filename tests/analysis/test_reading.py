"""Nested linear models of reading times, against plain loops and against a law that is known."""

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from spanlm.analysis.reading import Gain, NestedModels, Times, folds_of, partial_r2
from spanlm.errors import InputError

Array = NDArray[np.float64]

PER_BIT, PER_LETTER, NOISE = 2.0, 5.0, 60.0


class Law:
    """Times of words by a law: 300 + 5 length + 2 surprisal + subject + noise, ms; `wrong` has no part in it."""

    def __init__(self, seed: int, items: int = 40, words: int = 25, subjects: int = 0) -> None:
        draw = np.random.default_rng(seed)
        count = items * words * max(subjects, 1)
        self.items = np.repeat(np.arange(items), words * max(subjects, 1))
        self.length = draw.integers(1, 12, count).astype(float)
        self.right, self.wrong = draw.gamma(2, 3, count), draw.gamma(2, 3, count)
        self.subjects = np.tile(np.arange(subjects), items * words) if subjects else None
        level = 0.0 if self.subjects is None else draw.normal(0, 40, subjects)[self.subjects]
        self.times = 300 + PER_LETTER * self.length + PER_BIT * self.right + level + draw.normal(0, NOISE, count)
        self.population = 0.5 * math.log(1 + PER_BIT**2 * 18 / NOISE**2)  # gamma(2, 3) has the variance 18

    def models(self, folds: int = 10) -> NestedModels:
        return NestedModels(Times(self.times, self.items, self.subjects), self.length[:, None], ["length"], folds)

    def gain(self, surprisal: Array) -> Gain:
        return self.models().gain(surprisal[:, None], ["surprisal"])


def covers(gain: Gain, value: float) -> bool:
    return gain.interval[0] <= value <= gain.interval[1]


@pytest.mark.slow
def test_the_law_is_found_again_and_a_wrong_model_is_worth_nothing() -> None:
    law = Law(1, items=60, words=40, subjects=3)
    gain = law.gain(law.right)
    found = {row.name: row for row in gain.coefficients}
    assert found["surprisal"].value == pytest.approx(PER_BIT, abs=3 * found["surprisal"].error)
    assert found["length"].value == pytest.approx(PER_LETTER, abs=3 * found["length"].error)
    assert gain.interval[0] > 0 and covers(gain, law.population)
    # nothing that the held-out words do not show themselves
    shuffled = law.gain(np.random.default_rng(2).permutation(law.right))
    assert shuffled.delta < 1e-4 and covers(shuffled, 0)
    difference = gain.draws - law.gain(law.wrong).draws
    assert np.quantile(difference, 0.025) > 0, "pairs see the same draws"


@pytest.mark.slow
@pytest.mark.parametrize("items", [12, 40])
def test_intervals_cover_the_truth_in_95_of_100_draws(items: int) -> None:
    """Of 200 draws 95 % are 190; fewer than 180, or of 95 % intervals more than 199, come once in 500 times."""
    trials, right, length, population, zero, gained = 200, 0, 0, 0, 0, 0
    for seed in range(trials):
        law = Law(seed, items, words=25)
        gain, useless = law.gain(law.right), law.gain(law.wrong)
        found = {row.name: row for row in gain.coefficients}
        right += abs(found["surprisal"].value - PER_BIT) < 1.96 * found["surprisal"].error
        length += abs(found["length"].value - PER_LETTER) < 1.96 * found["length"].error
        population += covers(gain, law.population)
        zero += covers(useless, 0.0)
        gained += gain.interval[0] > 0
    print(f"{items} items: surprisal {right}, length {length}, Δ {population}, 0 {zero}, above 0 {gained} of {trials}")
    assert 180 <= right <= 199 and 180 <= length <= 199
    assert population >= 180 and zero >= 180


def test_folds_are_whole_items_of_equal_numbers() -> None:
    folds = folds_of(23, 5, seed=3)
    assert sorted(np.bincount(folds)) == [4, 4, 5, 5, 5]
    assert (folds == folds_of(23, 5, seed=3)).all() and (folds != folds_of(23, 5, seed=4)).any()
    with pytest.raises(InputError, match="folds=10: must be at most 9, the items"):
        folds_of(9, 10, seed=1)


def log_likelihood(times: Array, mean: Array, spread: float) -> float:
    return float(
        sum(
            -0.5 * math.log(2 * math.pi * spread**2) - (y - m) ** 2 / (2 * spread**2)
            for y, m in zip(times, mean, strict=True)
        )
    )


def test_means_are_fit_by_ordinary_least_squares_fold_by_fold() -> None:
    law = Law(5, items=8, words=12)
    models = law.models(folds=4)
    gain, total = models.gain(law.right[:, None], ["surprisal"]), 0.0
    for fold in range(4):
        train = models.folds[law.items] != fold
        for sign, columns in ((1, [law.length, law.right]), (-1, [law.length])):
            x = np.column_stack([np.ones(len(law.times)), *columns])
            beta, squares, *_ = np.linalg.lstsq(x[train], law.times[train], rcond=None)
            spread = math.sqrt(squares[0] / (train.sum() - x.shape[1]))
            total += sign * log_likelihood(law.times[~train], x[~train] @ beta, spread)
    assert gain.delta == pytest.approx(total / len(law.times), rel=1e-6)


class Dense(NamedTuple):
    """A fit with a random intercept by subject, of dense matrices."""

    deviance: float  # −2 the restricted log-likelihood, but for a constant
    beta: Array
    errors: Array
    spread: float  # σ
    levels: Array  # b of each subject


def dense_fit(x: Array, y: Array, subjects: NDArray[np.int64]) -> Dense:
    """Return the fit with the least deviance on a fine grid of θ."""
    z, fits = np.eye(subjects.max() + 1)[subjects], []
    for theta in np.exp(np.linspace(-3, 2, 200)):
        v = np.eye(len(y)) + theta * z @ z.T
        inverse = np.linalg.inv(x.T @ np.linalg.solve(v, x))
        beta = inverse @ x.T @ np.linalg.solve(v, y)
        residual, freedom = y - x @ beta, len(y) - x.shape[1]
        variance = residual @ np.linalg.solve(v, residual) / freedom
        deviance = np.linalg.slogdet(v)[1] - np.linalg.slogdet(inverse)[1] + freedom * math.log(variance)
        errors, levels = np.sqrt(variance * np.diag(inverse)), theta * z.T @ np.linalg.solve(v, residual)
        fits.append(Dense(deviance, beta, errors, math.sqrt(variance), levels))
    return min(fits, key=lambda fit: fit.deviance)


def test_random_intercepts_are_those_of_dense_matrices() -> None:
    law = Law(7, items=4, words=6, subjects=5)
    assert law.subjects is not None
    models = law.models(folds=2)
    gain, total = models.gain(law.right[:, None], ["surprisal"]), 0.0
    x = np.column_stack([np.ones(len(law.times)), law.length, law.right])
    fit = dense_fit(x, law.times, law.subjects)
    assert [row.value for row in gain.coefficients] == pytest.approx(fit.beta, rel=2e-3)
    assert [row.error for row in gain.coefficients] == pytest.approx(fit.errors, rel=1e-2)
    for fold in range(2):
        train = models.folds[law.items] != fold
        for sign, columns in ((1, x), (-1, x[:, :2])):
            fit = dense_fit(columns[train], law.times[train], law.subjects[train])
            mean = columns[~train] @ fit.beta + fit.levels[law.subjects[~train]]
            total += sign * log_likelihood(law.times[~train], mean, fit.spread)
    assert gain.delta == pytest.approx(total / len(law.times), rel=0.01)


def test_predictors_that_say_nothing_of_their_own_are_named() -> None:
    law = Law(1, items=12, words=5)
    both = np.column_stack([law.length, law.right, law.length - 2 * law.right])
    with pytest.raises(InputError, match="baseline=third: is a sum of the predictors before it"):
        NestedModels(Times(law.times, law.items), both, ["first", "second", "third"])
    with pytest.raises(InputError, match="surprisal=surprisal: is a sum"):
        law.gain(3 * law.length)
    with pytest.raises(InputError, match="baseline=first: is the same at every word"):
        NestedModels(Times(law.times, law.items), np.ones((60, 1)), ["first"])
    with pytest.raises(InputError, match="6 times are left, too few for 3 coefficients"):
        NestedModels(Times(law.times[:6], np.arange(6)), both[:6, :2], ["first", "second"], folds=2)


def test_a_baseline_that_explains_nothing() -> None:
    law = Law(1)
    models = NestedModels(Times(law.times, law.items), law.wrong[:, None], ["wrong"])
    assert models.baseline_gain <= 0 < law.models().baseline_gain


def test_scores_of_babylm_are_their_sums_of_squares() -> None:
    """Columns of its reading task by hand: normal equations, with products of predictors, in place of a formula."""
    draw, names = np.random.default_rng(4), ["Subtlex_log10", "length", "context_length"]
    table = dict(
        zip(names, (draw.normal(3, 1, 90), draw.integers(1, 12, 90) * 1.0, draw.integers(0, 20, 90) * 1.0), strict=True)
    )
    pred, previous = draw.gamma(2, 3, 90), draw.gamma(2, 3, 90)
    times = 200 + 8 * pred + 4 * table["length"] * table["Subtlex_log10"] + draw.normal(0, 30, 90)
    times[::11], previous[:3] = np.nan, np.nan
    for columns in ([*table.values()], [*table.values(), draw.integers(1, 12, 90) * 1.0, previous]):
        rows = ~np.isnan(times) & ~np.isnan(sum(columns))
        y = times[rows]
        x = [np.ones(rows.sum()), *(column[rows] for column in columns)]
        x += [a * b for a, b in combinations(x[1:], 2)]
        squares = []
        for features in (x, [*x, pred[rows]]):
            a = np.stack(features)
            beta = np.linalg.solve(a @ a.T, a @ y)
            squares.append(float(((y - beta @ a) ** 2).sum()))
        score = partial_r2(times, np.column_stack(columns), pred)
        assert score == pytest.approx(100 * (1 - squares[1] / squares[0]), rel=1e-6) and score > 5
