from dataclasses import replace

import numpy as np
import pytest

from spanlm.errors import InputError
from spanlm.scoring.attention import AttentionRecord

from .conftest import make_record


def test_a_slot_between_two_weights_is_occupied_even_at_zero(record: AttentionRecord) -> None:
    weights = record.weights.copy()
    weights[6] = [0.5, 0, 0.5]  # a full window that ignores its middle
    weights[7] = [0, 0, 1]  # a new text began one word ago
    occupied = replace(record, weights=weights).occupied
    assert occupied[6].tolist() == [True, True, True]
    assert occupied[7].tolist() == [False, False, True]


@pytest.mark.parametrize(("nearest_lag", "counts"), [(0, [1, 2, 3, 3]), (1, [0, 1, 2, 3]), (3, [0, 0, 0, 1])])
def test_no_slot_is_occupied_before_the_text_begins(
    record: AttentionRecord, nearest_lag: int, counts: list[int]
) -> None:
    everywhere = replace(record, weights=np.full((8, 3), 1 / 3), nearest_lag=nearest_lag)
    assert everywhere.occupied.sum(axis=1).tolist()[:4] == counts


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("surprisal", np.full(8, np.inf), "finite"),
        ("weights", np.full((8, 3), np.nan), "finite"),
        ("weights", np.full((8, 3), -0.1), "not negative"),
    ],
)
def test_what_does_not_fit_is_refused(record: AttentionRecord, field: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(record, **{field: value})


def test_scales_are_for_full_windows_or_of_one_that_grows_for_the_later_half() -> None:
    words = ["<eos>", *"abcdefghij"]
    bounded, growing, opening = (make_record(words, window) for window in (3, 9, 15))
    np.testing.assert_array_equal(bounded.settled, bounded.weights[3:])
    np.testing.assert_array_equal(growing.settled, growing.weights[5:])
    np.testing.assert_array_equal(opening.settled, opening.weights[5:])
