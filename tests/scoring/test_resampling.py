"""Intervals and p against brute force on tiny data, and how often an interval holds the truth on simulated texts."""

import math
from collections.abc import Sequence
from itertools import combinations, product
from statistics import NormalDist

import numpy as np
import pytest

from spanlm.errors import InputError
from spanlm.scoring.resampling import (
    BLOCKS,
    DRAWS,
    FEWEST_DOCUMENTS,
    blocks_of,
    drawn_means,
    drawn_p,
    drawn_shifts,
    interval_of,
    lopsided,
    moved_means,
)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def every_draw(sums: list[float], counts: list[float], t: float) -> list[float]:
    """All draws of blocks that there are, one by one: the moved and the studentised, those farther from the mean."""
    blocks, total = range(len(sums)), sum(counts)
    theta, moved, studentised = sum(sums) / total, [], []

    def error(rows: Sequence[int], mean: float) -> float:
        pulls = [(sums[b] - mean * counts[b]) / (1 - counts[b] / total) for b in rows]
        return math.sqrt(sum(pull**2 for pull in pulls)) / sum(counts[b] for b in rows)

    for rows in product(blocks, repeat=len(blocks)):
        mean = sum(sums[b] for b in rows) / sum(counts[b] for b in rows)
        moved.append(theta + (mean - theta) * t / 1.96 * math.sqrt(len(blocks) / (len(blocks) - 1)))
        studentised.append(theta - (mean - theta) * error(blocks, theta) / max(error(rows, mean), 1e-9))
    pairs = zip(sorted(moved), sorted(studentised), strict=True)
    return [min(pair) if pair[0] < theta else max(pair) for pair in pairs]


def test_drawn_blocks_spread_as_all_draws_there_are() -> None:
    """Blocks of several sizes, two classes, one of them in a single block; t of 3 and 4 degrees of freedom."""
    sums = np.array([[1.0, 0.0], [5.0, 0.0], [-2.0, 3.0], [0.5, 0.0], [2.0, 0.0]])
    counts = np.array([[4.0, 0.0], [7.0, 0.0], [3.0, 6.0], [1.0, 0.0], [5.0, 0.0]])
    drawn = drawn_means(sums, counts, generator())
    # t of 4 degrees of freedom is 2.776 (any table), the library's approximation of it 2.762
    every = np.array(every_draw(sums[:, 0].tolist(), counts[:, 0].tolist(), 2.762))
    for share in (0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95):
        most = np.quantile(every, share) + 0.01  # many are equal, but for rounding
        assert (drawn[:, 0] <= most).mean() == pytest.approx((every <= most).mean(), abs=0.04)
    assert np.isnan(drawn[:, 1]).mean() == pytest.approx(0.8**5, abs=0.03)
    assert interval_of(drawn)[1] == (0.5, 0.5), "a class in one block has no spread, and draws without it do not count"
    alike = drawn_means(np.ones((3, 1)), np.ones((3, 1)), generator())
    assert (alike == 1).all() and not lopsided(np.ones((3, 1)), np.ones((3, 1))).any()


@pytest.mark.parametrize(("blocks", "t"), [(10, 2.262), (20, 2.093), (100, 1.984)])
def test_draws_of_few_blocks_spread_as_students_t(blocks: int, t: float) -> None:
    """The interval of the textbook: mean ± t s / √B."""
    values = np.array([[NormalDist(2).inv_cdf((n + 0.5) / blocks)] for n in range(blocks)])
    drawn = drawn_means(values, np.ones((blocks, 1)), generator())
    low, high = interval_of(drawn)[0]
    assert high - low == pytest.approx(2 * t * values.std(ddof=1) / np.sqrt(blocks), rel=0.08)


def test_seeds_spread_as_students_t() -> None:
    """97.5 % of t with 1, 2 and 9 degrees of freedom is below 12.706, 4.303 and 2.262 (any table of t)."""
    for seeds, t in ((2, 12.706), (3, 4.303), (10, 2.262)):
        means = np.arange(seeds, dtype=float)[:, None]
        shifts = drawn_shifts(means, generator()) * np.sqrt(seeds) / means.std(ddof=1)
        assert np.quantile(shifts, 0.975) == pytest.approx(t, rel=0.01)
        assert (shifts <= t).mean() == pytest.approx(0.975, abs=0.001)
    assert (drawn_shifts(means[:1], generator()) == 0).all(), "one seed says nothing of others"


def test_p_of_draws() -> None:
    draws = np.array([-1.0, 0.5, 1.0, 2.0, 3.0])
    assert drawn_p(draws, 1.0) == drawn_p(-draws, -1.0) == 2 * (1 + 1) / 6, "−1 alone is beyond 0"
    assert drawn_p(draws, 0.0) == drawn_p(np.zeros(9), 0.1) == 1.0


def test_p_is_below_5_percent_exactly_where_the_interval_is_without_0() -> None:
    for beyond in range(40, 60):
        for sign in (1.0, -1.0):
            draws = sign * np.concatenate([-generator(1).random(beyond), generator(2).random(DRAWS - beyond)])
            ((low, high),) = interval_of(draws[:, None])
            assert (low > 0 or high < 0) == (drawn_p(draws, sign) < 0.05) == (beyond < 50), beyond


def test_other_draws_hardly_move_an_interval() -> None:
    """Two seeds against two: Student's t has one degree of freedom, and single far values would make an interval."""
    sums = generator(7).normal(0.15, 0.3, (100, 1))
    one, other = np.array([[0.0], [0.012]]), np.array([[0.15], [0.158]])
    lows = []
    for seed in range(20):
        draw = generator(seed)
        draws = drawn_means(sums, np.ones((100, 1)), draw) + drawn_shifts(one, draw) + drawn_shifts(other, draw)
        lows.append(interval_of(draws)[0][0])
    assert np.std(lows) < 0.01


@pytest.mark.parametrize("documents", [[0], [0, 30, 500], list(range(0, 3_000, 60))])
def test_blocks_hold_every_token_once_and_keep_to_documents(documents: list[int]) -> None:
    starts = np.array(documents)
    blocks = blocks_of(3_000, starts)
    assert len(blocks.of) == 3_000 and (np.diff(blocks.of) >= 0).all() and (np.diff(blocks.of) <= 1).all()
    assert all(blocks.of[start] != blocks.of[start - 1] for start in documents[1:]), "none spans two documents"
    if len(documents) >= FEWEST_DOCUMENTS:
        assert blocks.count == len(documents)
    else:
        assert blocks.count == pytest.approx(BLOCKS, abs=3)
    labels = np.arange(3_000) % 3 - 1
    sums = blocks.sums(labels, 2, np.ones(3_000))
    assert sums.sum() == 2_000 and (sums == blocks.sums(labels, 2)).all()


def test_a_text_must_hold_two_blocks() -> None:
    with pytest.raises(InputError, match="a text of 25 tokens"):
        blocks_of(25, np.array([0]))


def simulated(draw: np.random.Generator, tokens: int = 4_000, topic: int = 40, shared: float = 0.35) -> np.ndarray:
    """Differences whose mean is 0: neighbours share a topic, so that their differences are alike."""
    topics = draw.normal(0, shared, tokens // topic + 2)
    return topics[(np.arange(tokens) + draw.integers(topic)) // topic] + draw.normal(0, 1, tokens)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [20, 100])
@pytest.mark.parametrize("kind", ["normal", "log-normal", "long documents"])
def test_skewed_blocks_are_covered_and_p_agrees(kind: str, blocks: int) -> None:
    draw, held, texts = generator(3), 0, 500
    for _ in range(texts):
        counts, sums = np.full(blocks, 40.0), draw.normal(0, 40, blocks)
        if kind == "log-normal":
            sums = 40 * (np.exp(draw.normal(0, 1, blocks)) - math.exp(0.5))
        elif kind == "long documents":
            counts = np.ceil(np.exp(draw.normal(4, 2, blocks)))
            sums = counts * draw.normal(0, 0.3, blocks) + np.sqrt(counts) * draw.normal(0, 1, blocks)
        drawn = drawn_means(sums[:, None], counts[:, None], draw)
        ((low, high),) = interval_of(drawn)
        held += low <= 0 <= high
        assert (low <= 0 <= high) == (drawn_p(drawn[:, 0], sums.sum()) >= 0.05)
    assert 0.92 <= held / texts <= 0.99


@pytest.mark.slow
def test_where_intervals_are_too_short_blocks_are_lopsided() -> None:
    """Log-normal blocks with σ = 2: the mean is of blocks that most texts lack."""
    draw, missed, silent = generator(4), 0, 0
    for _ in range(400):
        sums, counts = (np.exp(draw.normal(0, 2, 100)) - math.exp(2))[:, None], np.ones((100, 1))
        low, high = interval_of(drawn_means(sums, counts, draw))[0]
        missed += not low <= 0 <= high
        silent += not (low <= 0 <= high or lopsided(sums, counts)[0])
    assert missed / 400 > 0.1 and silent / 400 < 0.06
    assert not lopsided(draw.normal(0, 1, (100, 50)), np.ones((100, 50))).any()


@pytest.mark.slow
def test_intervals_of_families_hold_the_truth_as_often_as_they_say() -> None:
    """Three seeds against three, on one text: both are drawn, and neither alone is enough."""
    draw, blocks, labels = generator(2), blocks_of(4_000, np.array([0])), np.zeros(4_000, np.int64)
    held = {"both": 0, "text alone": 0}
    for _ in range(400):
        text = simulated(draw)
        one, other = (draw.normal(0, 0.05, (3, 1)) + draw.normal(0, 0.3, (3, 4_000)) for _ in range(2))
        difference = text + other.mean(0) - one.mean(0)
        drawn = drawn_means(blocks.sums(labels, 1, difference), blocks.sums(labels, 1), draw)
        shifted = drawn + sum(drawn_shifts(each.mean(1, keepdims=True), draw) for each in (one, other))
        for name, draws in (("both", shifted), ("text alone", drawn)):
            low, high = interval_of(draws)[0]
            held[name] += low <= 0 <= high
    assert 0.93 <= held["both"] / 400 <= 0.995
    assert held["text alone"] / 400 < 0.88


def test_moved_means_of_columns_are_apart_as_the_mean_of_their_difference() -> None:
    """So in each draw the order of two rows is that of the sign of their difference."""
    draw = np.random.default_rng(1)
    counts, sums = draw.integers(5, 50, (30, 1)).astype(float), draw.lognormal(size=(30, 3))
    whole = moved_means(sums, counts, np.random.default_rng(2))
    for i, j in combinations(range(3), 2):
        apart = moved_means(sums[:, [i]] - sums[:, [j]], counts, np.random.default_rng(2))
        np.testing.assert_allclose(whole[:, [i]] - whole[:, [j]], apart, atol=1e-12)
    assert whole.mean(0) == pytest.approx(sums.sum(0) / counts.sum(), rel=0.02)
