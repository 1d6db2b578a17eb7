"""Attention by lag beside what Figure 3b printed, of one model and of several."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spanlm.analysis.export import save_lag_comparison
from spanlm.analysis.lags import (
    PUBLISHED,
    RECURRENT_MEMORY,
    LagProfile,
    MeasuredLags,
    PublishedRow,
    axis_title,
    format_lag_table,
    in_words,
    lag_columns,
    lag_range,
    notes,
    published_by_lag,
    published_notes,
    signed,
)
from spanlm.errors import InputError

from .conftest import mean_by_lag

RM = RECURRENT_MEMORY
# typed from the paper, oldest position first; the last of the first row is what the others lack to 100
FIGURE_3B = {
    "RM(+tM-g)": "1.6 2.1 2.0 2.1 2.3 2.3 2.6 2.9 3.5 4.1 4.9 5.9 8.6 15.2 39.9",
    "key-value-predict": "4.0 4.0 4.0 4.1 4.2 4.4 4.6 4.9 5.4 5.9 6.7 7.8 9.5 12.5 17.8",
    "key-value": "4.2 4.2 4.3 4.4 4.5 4.7 5.0 5.3 5.8 6.3 7.1 8.0 9.5 11.8 14.9",
    "attention": "4.6 4.6 4.7 4.7 4.9 5.0 5.2 5.5 5.8 6.2 6.8 7.5 8.8 11.1 14.7",
}
SHORT = MeasuredLags("kvp-w3", "a text", LagProfile((20.0, 30.0, 50.0), 97, 3), "key-value-predict")
CURRENT = MeasuredLags("rm-w2", "a text", LagProfile((40.0, 60.0), 98, 1, 0), RM)
UNKNOWN = MeasuredLags("mine", "a text", LagProfile((25.0, 75.0), 99, 2))
WHOLE = MeasuredLags("single", "a text", LagProfile((20.0, 25.0, 30.0), 50, 40, older=25.0))
POINTER = MeasuredLags("pointer", "a text", LagProfile((10.0, 27.5), 98, 1, 0))


def as_published(model: str) -> MeasuredLags:
    row = PUBLISHED[model]
    return MeasuredLags(model.lower(), "a text", LagProfile(row.percent, 1234, 15, row.nearest_lag), model)


def written(folder: Path, suffix: str, *measured: MeasuredLags) -> str:
    save_lag_comparison(measured, folder / f"a{suffix}")
    return (folder / f"a{suffix}").read_text(encoding="utf-8")


def test_lags_count_down_to_the_nearest_and_the_current_word_is_named() -> None:
    assert (list(lag_range(3, 1)), list(lag_range(3, 0))) == ([3, 2, 1], [2, 1, 0])
    assert [signed(lag) for lag in (2, 1, 0)] == ["−2", "−1", "0"]
    assert [in_words(lag) for lag in (1, 0)] == ["−1", "0 (current word)"]
    assert "current word" in axis_title(0) and "current word" not in axis_title(1)


def test_every_number_is_that_of_the_figure() -> None:
    assert {name: " ".join(map(str, row.percent)) for name, row in PUBLISHED.items()} == FIGURE_3B
    for name, row in PUBLISHED.items():
        assert sum(row.percent) == pytest.approx(100, abs=0.25)  # printed with one decimal
        # position −1 is the current word for the recurrent memory alone, and its number is what the others lack
        assert (row.lags[-1], row.inferred_lags) == ((0, (0,)) if name == RM else (1, ()))


@pytest.mark.parametrize("model", PUBLISHED)
@pytest.mark.parametrize("window", [1, 5, 14])
def test_a_cut_row_keeps_its_ratios_and_sums_to_100(model: str, window: int) -> None:
    row, cut = PUBLISHED[model], published_by_lag(model, window, cut=True)
    assert cut is not None and cut.scaled and sum(cut.percent) == pytest.approx(100)
    assert cut.lags == row.lags[-window:] and cut.inferred_lags == row.inferred_lags
    ratios = [one / other for one, other in zip(cut.percent, row.percent[-window:], strict=True)]
    assert ratios == pytest.approx([ratios[0]] * window)


@pytest.mark.parametrize("cut", [False, True])
def test_a_row_is_of_its_own_window(cut: bool) -> None:
    assert published_by_lag("attention", 15, cut=cut) is PUBLISHED["attention"]
    assert published_by_lag("attention", 16, cut=cut) is published_by_lag(None, 15, cut=cut) is None
    assert published_by_lag("attention", 14) is None
    with pytest.raises(InputError, match="Did you mean 'key-value'"):
        published_by_lag("key-valeu", 15, cut=cut)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([PUBLISHED["attention"]], []),
        ([published_by_lag("attention", 5, cut=True)], ["scaled to sum to 100"]),
        ([PUBLISHED[RM]], ["≈ (lag 0): illegible", "lag 0 here"]),
        ([PublishedRow((50.0, 50.0), inferred_lags=(2,)), PUBLISHED["attention"]], ["≈ (lag −2): illegible"]),
    ],
)
def test_notes_on_the_paper_say_what_was_done_and_no_more(rows: list[PublishedRow], said: list[str]) -> None:
    found = published_notes(rows)
    assert len(found) == len(said) and all(part in note for note, part in zip(found, said, strict=True))


def test_published_numbers_stand_beside_those_of_their_own_lag() -> None:
    equal = np.full((3, 15), 1 / 15)
    assert format_lag_table(mean_by_lag(equal), "key-value-predict")[-1] == (1, pytest.approx(100 / 15), 17.8, False)
    current = mean_by_lag(equal, nearest_lag=0)
    assert format_lag_table(current, RM)[-1] == (0, pytest.approx(100 / 15), 39.9, True)
    # a window of 15 that does not end where the published one does shares fourteen lags with it
    assert [row.published for row in format_lag_table(current, "attention")[-3:]] == [11.1, 14.7, None]
    assert [row.published for row in format_lag_table(UNKNOWN.profile, "attention")] == [None, None]
    assert [row.published for row in format_lag_table(UNKNOWN.profile)] == [None, None]


def test_every_lag_has_a_row_and_every_model_a_column_with_the_papers_beside() -> None:
    # 9.5, 12.5 and 17.8 are 39.8 together; of RM the last two, 15.2 and 39.9, are 55.1
    assert list(lag_columns([SHORT, CURRENT, UNKNOWN])) == [
        ["lag", "kvp-w3", "paper", "rm-w2", "paper", "mine"],
        ["−3", "20.0", "23.9", "", "", ""],
        ["−2", "30.0", "31.4", "", "", "25.0"],
        ["−1", "50.0", "44.7", "40.0", "27.6", "75.0"],
        ["0 (current word)", "", "", "60.0", "≈72.4", ""],
        ["last 5", "100.0", "100.0", "100.0", "≈100.0", "100.0"],
        ["positions", "97", "", "98", "", "99"],
    ]


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_window_of_fifteen_stands_beside_what_was_printed(model: str) -> None:
    header, *rows = lag_columns([as_published(model)])
    assert header == ["lag", model.lower(), "paper"] and len(rows) == 17
    assert [row[2].removeprefix("≈") for row in rows[:-1]] == [row[1] for row in rows[:-1]]
    assert (rows[14][2] == "≈39.9") == (model == RM)


def test_what_is_older_has_a_row_of_its_own_and_a_note(tmp_path: Path) -> None:
    """Of memories that hold the whole sentence."""
    assert list(lag_columns([SHORT, WHOLE]))[:2] == [["lag", "kvp-w3", "paper", "single"], ["older", "", "", "25.0"]]
    said = notes([SHORT, WHOLE])
    assert said[0] == "Mean over positions with a full window or with at least 3 words to look back at: a text."
    assert "cannot be compared" in said[1]
    assert said[2] == "On older words, of memories that hold all since the last reset: single 25.0 %."
    one, other = json.loads(written(tmp_path, ".json", SHORT, WHOLE))["runs"]
    assert (one["older_percent"], other["older_percent"], other["on_no_step_percent"]) == (None, 25.0, 0.0)
    assert "| model | older | −3 |" in written(tmp_path, ".md", SHORT, WHOLE)


def test_notes_say_what_was_done_and_where_weights_do_not_sum_to_100() -> None:
    said = " ".join(notes([SHORT, CURRENT, UNKNOWN]))
    for part in ("a text.", "cannot be compared", "Fig. 3b", "scaled to sum to 100", "≈ (lag 0)", "lag 0 here"):
        assert part in said, part
    for part in ("cannot be compared", "Fig. 3b", "scaled", "≈", "lag 0", "no word"):
        assert part not in " ".join(notes([UNKNOWN])), part
    assert "On no word: pointer 62.5 %." in notes([SHORT, POINTER])


def test_markdown_has_a_row_for_each_model_and_one_for_the_papers(tmp_path: Path) -> None:
    piped = MeasuredLags("a|b", "a text", UNKNOWN.profile)
    table, said = written(tmp_path, ".md", SHORT, CURRENT, piped).split("\n\n")
    cells = [line.replace("\\|", "/").strip("| ").split(" | ") for line in table.splitlines()]
    assert [row[0] for row in cells] == ["model", "---", "kvp-w3", "paper", "rm-w2", "paper", "a/b"]
    assert cells[0][1:] == ["−3", "−2", "−1", "0 (current word)", "last 5", "positions"]
    assert cells[3][1:4] == ["23.9", "31.4", "44.7"] and "scaled to sum to 100" in said


def test_csv_has_a_row_for_each_model_and_lag(tmp_path: Path) -> None:
    rows = list(csv.DictReader(written(tmp_path, ".csv", SHORT, CURRENT, UNKNOWN).splitlines()))
    assert [(row["run"], row["lag"]) for row in rows] == [
        *(("kvp-w3", "3"), ("kvp-w3", "2"), ("kvp-w3", "1")),
        *(("rm-w2", "1"), ("rm-w2", "0"), ("mine", "2"), ("mine", "1")),
    ]
    assert [float(row["measured_percent"]) for row in rows] == [20, 30, 50, 40, 60, 25, 75]
    assert [row["published_inferred"] for row in rows] == ["0", "0", "0", "0", "1", "", ""]
    assert float(rows[2]["published_percent"]) == pytest.approx(100 * 17.8 / 39.8)
    assert {row["published_scaled"] for row in rows} == {"1", ""}


def test_json_keeps_everything(tmp_path: Path) -> None:
    measured = [SHORT, as_published(RM), UNKNOWN, POINTER]
    content: dict[str, Any] = json.loads(written(tmp_path, ".json", *measured))
    short, current, mine, pointer = content["runs"]
    assert (short["lags"], short["measured_percent"], short["positions"]) == ([3, 2, 1], [20, 30, 50], 97)
    assert short["published"]["scaled"] and sum(short["published"]["percent"]) == pytest.approx(100)
    assert (current["lags"][-1], current["published"]["inferred_lags"]) == (0, [0])
    assert not current["published"]["scaled"] and current["published"]["percent"] == list(PUBLISHED[RM].percent)
    assert mine["published"] is None and pointer["on_no_step_percent"] == pytest.approx(62.5)
    assert content["notes"] == notes(measured)
