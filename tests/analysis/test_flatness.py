"""One number for how flat attention is: by hand, by a plain loop, and what changes nothing."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spanlm
from spanlm.analysis.flatness import GROUPS, Flatness, FlatnessAccumulator, mean_flatness
from spanlm.errors import InputError


def measure(weights: object, slots: object, nearest_lag: int = 1) -> Flatness:
    accumulator = FlatnessAccumulator(nearest_lag)
    accumulator.update(weights, slots)  # type: ignore[arg-type]
    return accumulator.result()


def test_rows_without_a_choice_are_left_out_and_counted() -> None:
    found = measure([[0, 0], [0, 1], [0.5, 0.5]], [0, 1, 2])
    assert (found.overall.rows, found.left_out) == (1, 2)
    with pytest.raises(InputError, match="none of 2 positions has two words"):
        measure([[0, 0], [0, 1]], [0, 1])


def test_a_column_for_the_word_just_read_which_no_slot_holds_yet_changes_nothing(tiny_run: Path) -> None:
    record = spanlm.load(tiny_run).attend("the cat sat on the mat")
    weights = np.pad(record.weights, ((0, 0), (0, 1)))
    assert record.nearest_lag == 1 and (by_token := mean_flatness([record])) is not None
    assert mean_flatness([replace(record, weights=weights, nearest_lag=0, of_written_words=True)]) == replace(
        by_token, nearest_lag=0
    )


def test_a_weight_of_nothing_on_the_word_just_read_is_a_weight(tiny_run: Path) -> None:
    record = spanlm.load(tiny_run).attend("the cat sat on the mat")
    weights = record.weights.copy()
    weights[3:, -1] = 0
    flatness = mean_flatness([replace(record, weights=weights, nearest_lag=0)])
    assert flatness is not None and flatness == replace(
        measure(weights, record.occupied.sum(axis=1), 0), left_out=flatness.left_out
    )


def test_what_lies_on_no_word_is_left_out_and_reported() -> None:
    found = measure([[0.1, 0.1], [0.3, 0.1], [0, 0]], [2, 2, 2])
    assert found.overall.on_no_word == pytest.approx(0.7)
    assert found.overall.largest == pytest.approx((0.5 + 0.75) / 2)
    assert found.left_out == 1, "a gate of one leaves no weight to look at"


def test_groups_are_by_the_number_of_slots() -> None:
    slots = [2, 5, 6, 10, 11, 20, 21, 35, 36, 100, 101, 255, 256, 300]
    found = measure(np.full((14, 300), 1 / 300), slots)
    assert [(group.slots, group.rows) for group in found.groups] == [(name, 2) for name in GROUPS]
    assert [group.equal for group in found.groups] == pytest.approx(
        [(1 / a + 1 / b) / 2 for a, b in zip(slots[::2], slots[1::2], strict=True)]
    )
    assert found.overall.slots == "all"
    assert [group.slots for group in measure(np.ones((1, 12)) / 12, [12]).groups] == ["11-20"]


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_it_is_the_plain_loop_whatever_the_windows_and_the_parts(seed: int, parts: int) -> None:
    draw = np.random.default_rng(seed)
    accumulator, expected = FlatnessAccumulator(), []
    for _ in range(parts):
        window = int(draw.integers(1, 45))
        weights, slots = np.zeros((4, window)), draw.integers(0, window + 1, 4)
        for row, held in zip(weights, slots.tolist(), strict=True):
            row[window - held :] = draw.dirichlet(np.ones(held)) if held else 0
            if held >= 2:
                entropy = -sum(weight * math.log(weight) for weight in row.tolist() if weight > 0)
                expected.append((entropy / math.log(held), max(row), row[-1]))
        accumulator.update(weights, slots)
    assert accumulator.rows == len(expected)
    if expected:
        found = accumulator.result()
        assert (found.overall.flatness, found.overall.largest, found.overall.nearest) == pytest.approx(
            tuple(np.mean(expected, axis=0))
        )
        assert sum(group.rows for group in found.groups) == len(expected)


@pytest.mark.parametrize(
    ("weights", "slots", "message"),
    [
        ([[0.5, float("nan")]], [2], "finite"),
        ([[1.5, -0.5]], [2], "not negative"),
    ],
)
def test_what_cannot_be_measured_is_refused(weights: object, slots: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        measure(weights, slots)
