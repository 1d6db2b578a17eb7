from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.analysis.lags import LagAccumulator
from spanlm.errors import InputError

from .conftest import mean_by_lag

OPENING = [
    [0.0, 0.0, 0.0],  # nothing to look at
    [0.0, 0.0, 1.0],
    [0.0, 0.3, 0.7],
    [0.2, 0.3, 0.5],
    [0.4, 0.1, 0.5],
]


def test_only_full_windows_are_averaged() -> None:
    profile = mean_by_lag(OPENING)
    assert profile.percent == pytest.approx((30, 20, 50))
    assert (profile.positions, profile.left_out) == (2, 3)
    assert list(profile.lags) == [3, 2, 1]


def test_a_window_with_the_current_word_is_full_one_position_earlier() -> None:
    profile = mean_by_lag([[0.0, 0.0, 1.0], [0.0, 0.3, 0.7], *OPENING[3:]], nearest_lag=0)
    assert profile.percent == pytest.approx((30, 20, 50))
    assert (profile.positions, profile.left_out) == (2, 2)
    assert list(profile.lags) == [2, 1, 0]
    only = mean_by_lag(np.ones((4, 1)), nearest_lag=0)
    assert (only.positions, only.left_out, list(only.lags)) == (4, 0, [0])


def test_what_lies_on_no_word_is_what_is_missing() -> None:
    """A pointer's rows sum to one less its gate; the rows of the others to one."""
    profile = mean_by_lag([[0.1, 0.3], [0.2, 0.2]], nearest_lag=0)
    assert profile.null_mass == pytest.approx(60)
    assert profile.last_five == pytest.approx(40)
    assert mean_by_lag([[0.5, 0.5]]).null_mass == 0


def held(rows: object) -> np.ndarray:
    """How many slots held a word, where every one that did has weight."""
    return np.count_nonzero(np.logical_or.accumulate(np.asarray(rows) > 0, axis=1), axis=1)


GROWING = [[[0.0, 0.0, 1.0]], [[0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 0.5, 0.5]], [[1.0]], [[0.2, 0.2, 0.2, 0.2, 0.2]]]


def test_of_a_window_that_grows_the_nearest_lags_are_told_apart() -> None:
    accumulator = LagAccumulator(nearest=3)
    for rows in GROWING:
        accumulator.update(rows, held(rows))
    profile = accumulator.profile()
    assert (profile.positions, profile.left_out, list(profile.lags)) == (2, 3, [3, 2, 1])
    assert profile.percent == pytest.approx((20, 25, 30)) and profile.older == pytest.approx((10 + 40) / 2)
    assert profile.null_mass == pytest.approx(0, abs=1e-9)
    assert profile.counted == "with at least 3 words to look back at"


def test_a_window_that_grows_and_never_reaches_the_nearest_lags_is_an_error() -> None:
    accumulator = LagAccumulator(nearest=15)
    accumulator.update(GROWING[0], [1])
    with pytest.raises(InputError, match="none of 1 positions has 15 words to look back at"):
        accumulator.profile()
    with pytest.raises(InputError, match="nearest=0"):
        LagAccumulator(nearest=0)


@given(
    st.integers(1, 6).flatmap(
        lambda window: st.lists(
            st.lists(st.lists(st.floats(0, 1, width=32), min_size=window, max_size=window), max_size=5),
            min_size=1,
            max_size=5,
        )
    )
)
def test_streaming_equals_whole(parts: list[list[list[float]]]) -> None:
    rows = [row for part in parts for row in part]
    streamed = LagAccumulator()
    for part in parts:
        if part:
            full = len(part[0]) * (np.asarray(part)[:, 0] > 0)
            streamed.update(np.asarray(part, dtype=np.float32), full)
    if not any(row[0] > 0 for row in rows):
        with pytest.raises(InputError, match="full window"):
            streamed.profile()
        return
    whole = mean_by_lag(np.asarray(rows, dtype=np.float32))
    assert streamed.profile().percent == pytest.approx(whole.percent, rel=1e-12)
    assert (streamed.positions, streamed.left_out) == (whole.positions, whole.left_out)


def test_small_weights_are_not_lost_in_a_large_sum() -> None:
    # float32 would stop counting: 2**24 + 1 == 2**24
    accumulator = LagAccumulator()
    accumulator.update(np.array([[2.0**24, 1.0]], dtype=np.float32), [2])
    for _ in range(10):
        accumulator.update(np.ones((1, 2), dtype=np.float32), [2])
    assert accumulator.profile().percent[0] * 11 / 100 == 2.0**24 + 10


def test_a_full_window_may_have_no_weight_on_its_oldest_word() -> None:
    accumulator = LagAccumulator()
    accumulator.update([[0.0, 0.0, 1.0], [0.5, 0.25, 0.25], [0.0, 0.0, 1.0]], [3, 3, 1])
    assert (accumulator.positions, accumulator.left_out) == (2, 1)
    assert accumulator.profile().percent == pytest.approx((25, 12.5, 62.5))


def test_the_window_may_not_change() -> None:
    accumulator = LagAccumulator()
    accumulator.update(np.ones((1, 3)), [3])
    with pytest.raises(InputError, match=r"\(N, 3\)"):
        accumulator.update(np.ones((1, 4)), [4])


def test_weights_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="finite"):
        mean_by_lag([[0.5, float("nan")]])


def test_nothing_seen_is_an_error_not_a_nan() -> None:
    with pytest.raises(InputError, match="full window"):
        LagAccumulator().profile()
    with pytest.raises(InputError, match="none of 3 positions"):
        mean_by_lag(OPENING[:3])
