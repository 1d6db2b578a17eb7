"""Paired answers to cloze questions: the test, the interval and the counts against brute force."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlm.analysis.questions import Answers, PairedAnswers, drawn_differences, mcnemar, paired

COUNTS = st.tuples(*[st.integers(0, 60)] * 4).filter(lambda counts: sum(counts) >= 10)


def pair(*counts: int) -> PairedAnswers:
    return PairedAnswers("all", *counts)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (1, 0), (5, 2), (12, 12), (3, 40), (700, 640)])
def test_mcnemar_is_the_binomial_tail_on_both_sides(gained: int, lost: int) -> None:
    n = gained + lost
    chances = [math.comb(n, k) / 2**n for k in range(n + 1)]
    tail = math.fsum(chance for k, chance in enumerate(chances) if abs(2 * k - n) >= abs(gained - lost))
    assert mcnemar(gained, lost) == pytest.approx(tail, rel=1e-9)


@pytest.mark.parametrize("changes", [(1, 0, 0, 0, 0), (1, 1, -1, 0, 0), (1, 1, 1, -1, -1), (0, 0, 0, -1, -1, 1)])
def test_the_interval_is_the_middle_of_all_draws(changes: tuple[int, ...]) -> None:
    size = len(changes)
    draws = sorted(sum(draw) / size for draw in product(changes, repeat=size))
    expected = tuple(draws[math.ceil(share * len(draws)) - 1] for share in (0.025, 0.975))
    assert drawn_differences(changes.count(1), changes.count(-1), size) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=50)
@given(COUNTS)
def test_exchanged_models_change_signs_alone(counts: tuple[int, int, int, int]) -> None:
    both, gained, lost, neither = counts
    one, other = pair(*counts), pair(both, lost, gained, neither)
    assert (one.accuracy, one.p, one.sparse) == (other.baseline_accuracy, other.p, other.sparse)
    assert one.difference == -other.difference
    assert one.interval == pytest.approx((-other.interval[1], -other.interval[0]), abs=1.01 / sum(counts))
    assert one.interval[0] <= one.difference <= one.interval[1]


def test_a_model_beside_itself() -> None:
    right = np.arange(40) % 3 == 0
    answers = Answers("kvp", {("full", "sentence"): right}, np.ones(40, np.bool_))
    (row,) = paired(answers, answers, ("full", "sentence"), ["NE"] * 40, answers.scored)
    assert (row.difference, row.interval, row.p) == (0.0, (0.0, 0.0), 1.0)
    assert (row.both, row.gained, row.lost, row.neither) == (14, 0, 0, 26)


def test_counts_are_of_the_questions_that_both_scored_by_class() -> None:
    generator = np.random.default_rng(3)
    scored, right = generator.random((2, 200)) < 0.9, generator.random((2, 200)) < 0.5
    classes = generator.choice(["NE", "CN", "V"], 200).tolist()
    lstm, kvp = (Answers(name, {("query", "candidate"): right[n]}, scored[n]) for n, name in enumerate(("lstm", "kvp")))
    rows = paired(lstm, kvp, ("query", "candidate"), classes, lstm.scored & kvp.scored)
    assert {row.name for row in rows} == {"all", "NE", "CN", "V"}
    for row in rows:
        cells = {(False, False): 0, (False, True): 0, (True, False): 0, (True, True): 0}
        for n in range(200):
            if scored[0, n] and scored[1, n] and row.name in ("all", classes[n]):
                cells[bool(right[0, n]), bool(right[1, n])] += 1
        assert [row.neither, row.gained, row.lost, row.both] == [*cells.values()]
