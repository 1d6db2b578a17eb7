from __future__ import annotations

import pytest

from spanlm.analysis.lags import axis_title, in_words, lag_range, signed
from spanlm.analysis.published_lags import (
    PUBLISHED,
    RECURRENT_MEMORY,
    PublishedRow,
    published_by_lag,
    published_cut,
    published_notes,
)
from spanlm.errors import InputError


def test_lags_count_down_to_the_nearest() -> None:
    assert list(lag_range(3, 1)) == [3, 2, 1]
    assert list(lag_range(3, 0)) == [2, 1, 0]


def test_the_current_word_is_named() -> None:
    assert [signed(lag) for lag in (2, 1, 0)] == ["−2", "−1", "0"]
    assert [in_words(lag) for lag in (1, 0)] == ["−1", "0 (current word)"]
    assert "current word" in axis_title(0) and "current word" not in axis_title(1)


# typed from the paper, oldest position first; the last of the first row is what the others lack to 100
FIGURE_3B = {
    "RM(+tM-g)": "1.6 2.1 2.0 2.1 2.3 2.3 2.6 2.9 3.5 4.1 4.9 5.9 8.6 15.2 39.9",
    "key-value-predict": "4.0 4.0 4.0 4.1 4.2 4.4 4.6 4.9 5.4 5.9 6.7 7.8 9.5 12.5 17.8",
    "key-value": "4.2 4.2 4.3 4.4 4.5 4.7 5.0 5.3 5.8 6.3 7.1 8.0 9.5 11.8 14.9",
    "attention": "4.6 4.6 4.7 4.7 4.9 5.0 5.2 5.5 5.8 6.2 6.8 7.5 8.8 11.1 14.7",
}


def test_every_number_is_that_of_the_figure() -> None:
    assert {name: " ".join(map(str, row.percent)) for name, row in PUBLISHED.items()} == FIGURE_3B


@pytest.mark.parametrize("model", PUBLISHED)
def test_published_rows_are_whole(model: str) -> None:
    row = PUBLISHED[model]
    assert len(row.percent) == 15
    assert sum(row.percent) == pytest.approx(100, abs=0.25)  # printed with one decimal
    assert row.percent[-5:] == tuple(sorted(row.percent[-5:]))


def test_the_illegible_number_is_what_its_row_lacks() -> None:
    row = PUBLISHED[RECURRENT_MEMORY]
    assert row.inferred_lags == (0,) and row.lags[-1] == 0
    assert row.percent[-1] == pytest.approx(100 - sum(row.percent[:-1]))
    assert all(not row.inferred_lags for name, row in PUBLISHED.items() if name != RECURRENT_MEMORY)


def test_position_minus_one_is_the_current_word_for_the_recurrent_memory_alone() -> None:
    assert {name: row.lags[-1] for name, row in PUBLISHED.items()} == {
        "attention": 1,
        "key-value": 1,
        "key-value-predict": 1,
        RECURRENT_MEMORY: 0,
    }


@pytest.mark.parametrize("model", PUBLISHED)
@pytest.mark.parametrize("window", [1, 5, 14])
def test_a_cut_row_keeps_its_ratios_and_sums_to_100(model: str, window: int) -> None:
    row = PUBLISHED[model]
    cut = row.cut(window)
    assert cut.scaled and sum(cut.percent) == pytest.approx(100)
    assert cut.lags == row.lags[-window:] and cut.inferred_lags == row.inferred_lags
    ratios = [one / other for one, other in zip(cut.percent, row.percent[-window:], strict=True)]
    assert ratios == pytest.approx([ratios[0]] * window)


def test_the_whole_row_is_as_printed() -> None:
    row = PUBLISHED["attention"]
    assert row.cut(15) is row and not row.scaled


def test_what_is_longer_than_the_row_has_none() -> None:
    assert published_cut("attention", 16) is None
    assert published_by_lag("attention", 14) is None
    assert published_by_lag("attention", 15) is PUBLISHED["attention"]
    assert published_by_lag(None, 15) is published_cut(None, 5) is None
    with pytest.raises(InputError, match="window=16: must be from 1 to 15"):
        PUBLISHED["attention"].cut(16)


def test_a_misspelt_model_is_answered_with_the_nearest() -> None:
    for find in (published_by_lag, published_cut):
        with pytest.raises(InputError, match="Did you mean 'key-value'"):
            find("key-valeu", 15)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], []),
        ([PUBLISHED["attention"]], []),
        ([PUBLISHED["attention"].cut(5)], ["scaled to sum to 100"]),
        ([PUBLISHED[RECURRENT_MEMORY]], ["≈ (lag 0): illegible", "lag 0 here"]),
        ([PublishedRow((50.0, 50.0), inferred_lags=(2,)), PUBLISHED["attention"]], ["≈ (lag −2): illegible"]),
    ],
)
def test_notes_say_what_was_done_and_no_more(rows: list[PublishedRow], said: list[str]) -> None:
    notes = published_notes(rows)
    assert len(notes) == len(said)
    for note, part in zip(notes, said, strict=True):
        assert part in note
