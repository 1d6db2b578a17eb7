"""Mean attention by lag: measured, as Figure 3b printed it, and side by side in a table and in files."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spanlm.analysis.export import save_lags
from spanlm.analysis.lags import (
    MOST_ROWS,
    PUBLISHED,
    RECURRENT_MEMORY,
    LagAccumulator,
    LagProfile,
    MeasuredLags,
    lag_columns,
    notes,
)
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


def test_what_lies_on_no_word_is_what_is_missing() -> None:
    """A pointer's rows sum to one less its gate; the rows of the others to one."""
    profile = mean_by_lag([[0.1, 0.3], [0.2, 0.2]], nearest_lag=0)
    assert profile.null_mass == pytest.approx(60)
    assert profile.last_five == pytest.approx(40)
    assert mean_by_lag([[0.5, 0.5]]).null_mass == 0


def test_a_window_that_grows_and_never_reaches_the_nearest_lags_is_an_error() -> None:
    accumulator = LagAccumulator(nearest=15)
    accumulator.update([[0.0, 0.0, 1.0]], [1])
    with pytest.raises(InputError, match="none of 1 positions has 15 words to look back at"):
        accumulator.profile()
    with pytest.raises(InputError, match="nearest=0"):
        LagAccumulator(nearest=0)


def test_small_weights_are_not_lost_beside_a_large_sum() -> None:
    """2²⁴ + 1 is 2²⁴ in float32."""
    accumulator = LagAccumulator()
    for weight in (2.0**24, *[1.0] * 8):
        accumulator.update(np.full((1, 1), weight, dtype=np.float32), [1])
    accumulator.update(np.array([[2.0**24], *[[1.0]] * 6], dtype=np.float32), [1] * 7)
    assert accumulator.profile().percent == pytest.approx([100 * (2**25 + 14) / 16], rel=1e-12)


def test_what_cannot_be_summed_is_refused() -> None:
    accumulator = LagAccumulator()
    accumulator.update(np.ones((1, 3)), [3])
    with pytest.raises(InputError, match=r"\(N, 3\)"):
        accumulator.update(np.ones((1, 4)), [4])
    with pytest.raises(InputError, match="finite"):
        mean_by_lag([[0.5, float("nan")]])


# --- beside the paper ---

RM = RECURRENT_MEMORY
SHORT = MeasuredLags("kvp-w3", "a text", LagProfile((20.0, 30.0, 50.0), 97, 3), "key-value-predict")
CURRENT = MeasuredLags("rm-w2", "a text", LagProfile((40.0, 60.0), 98, 1, 0), RM)
UNKNOWN = MeasuredLags("mine", "a text", LagProfile((25.0, 75.0), 99, 2))
WHOLE = MeasuredLags("single", "a text", LagProfile((20.0, 25.0, 30.0), 50, 40, older=25.0))
POINTER = MeasuredLags("pointer", "a text", LagProfile((10.0, 27.5), 98, 1, 0))
SPANS = LagProfile((20.0, 30.0, 50.0), 90, 8, span=4)


def as_published(model: str) -> MeasuredLags:
    row = PUBLISHED[model]
    return MeasuredLags(model.lower(), "a text", LagProfile(row.percent, 1234, 15, row.nearest_lag), model)


def written(folder: Path, suffix: str, *measured: MeasuredLags) -> str:
    save_lags(measured, folder / f"a{suffix}")
    return (folder / f"a{suffix}").read_text(encoding="utf-8")


def test_the_published_rows_sum_to_all_attention() -> None:
    for name, row in PUBLISHED.items():
        assert sum(row.percent) == pytest.approx(100, abs=0.25)  # printed with one decimal
        # position −1 is the current word for the recurrent memory alone, and its number is what the others lack
        assert (row.lags[-1], row.inferred_lags) == ((0, (0,)) if name == RM else (1, ()))


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_row_is_cut_to_a_shorter_window_and_not_made_longer(model: str) -> None:
    row = PUBLISHED[model]
    measured = {n: MeasuredLags("m", "t", LagProfile((100 / n,) * n, 9, 1), model) for n in (1, 5, 14, 15, 16)}
    assert measured[15].published is row and measured[16].published is None and UNKNOWN.published is None
    for window in (1, 5, 14):
        cut = measured[window].published
        assert cut is not None and cut.scaled and sum(cut.percent) == pytest.approx(100)
        assert cut.lags == row.lags[-window:] and cut.inferred_lags == row.inferred_lags
        ratios = [one / other for one, other in zip(cut.percent, row.percent[-window:], strict=True)]
        assert ratios == pytest.approx([ratios[0]] * window)


def test_every_lag_has_a_row_and_every_model_a_column_with_the_papers_beside() -> None:
    # 9.5, 12.5 and 17.8 are 39.8 together; of RM the last two, 15.2 and 39.9, are 55.1
    assert lag_columns([SHORT, CURRENT, UNKNOWN]) == [
        ["lag", "kvp-w3", "paper", "rm-w2", "paper", "mine"],
        ["−3", "20.0", "23.9", "", "", ""],
        ["−2", "30.0", "31.4", "", "", "25.0"],
        ["−1", "50.0", "44.7", "40.0", "27.6", "75.0"],
        ["0 (current word)", "", "", "60.0", "≈72.4", ""],
        ["last 5", "100.0", "100.0", "100.0", "≈100.0", "100.0"],
        ["positions", "97", "", "98", "", "99"],
    ]
    assert lag_columns([SHORT, WHOLE])[:2] == [["lag", "kvp-w3", "paper", "single"], ["older", "", "", "25.0"]]


@pytest.mark.parametrize("count", [1, 2, MOST_ROWS, MOST_ROWS + 1, 64, 65, 256])
def test_many_lags_are_summed_in_groups_that_double(count: int) -> None:
    percent = tuple(100 * np.arange(1, count + 1) / np.arange(1, count + 1).sum())
    header, *rows, last, _ = lag_columns([MeasuredLags("long", "a", replace(SPANS, percent=percent))])
    assert last[0] == "last 5 spans" and (header == ["lag", "long", "if equal"]) == (count > MOST_ROWS)
    for column in range(1, len(header)):
        assert sum(float(row[column]) for row in rows) == pytest.approx(100, abs=0.05 * len(rows) + 1e-9)
    if count <= MOST_ROWS:
        assert len(rows) == count
        return
    sizes = [float(row[2]) * count / 100 for row in reversed(rows)]
    assert sizes[:-1] == pytest.approx([1, *(2**power for power in range(len(sizes) - 2))], abs=0.06 * count / 100)
    assert [row[0] for row in rows[-3:]] == ["−13 … −9", "−5", "−1"] and rows[0][0].startswith(f"−{4 * count - 3}")


def test_csv_has_a_row_for_each_model_and_lag(tmp_path: Path) -> None:
    rows = list(csv.DictReader(written(tmp_path, ".csv", SHORT, CURRENT, UNKNOWN).splitlines()))
    assert [(row["run"], row["lag"]) for row in rows] == [
        *(("kvp-w3", "3"), ("kvp-w3", "2"), ("kvp-w3", "1")),
        *(("rm-w2", "1"), ("rm-w2", "0"), ("mine", "2"), ("mine", "1")),
    ]
    assert [float(row["measured_percent"]) for row in rows] == [20, 30, 50, 40, 60, 25, 75]
    assert [row["published_inferred"] for row in rows] == ["0", "0", "0", "0", "1", "", ""]
    assert float(rows[2]["published_percent"]) == pytest.approx(100 * 17.8 / 39.8)
    assert written(tmp_path, ".csv", as_published(RM)).splitlines()[-2:] == ["1,15.2,15.2,0", "0,39.9,39.9,1"]
    assert written(tmp_path, ".csv", SHORT).splitlines()[1:] == ["3,20.0,,", "2,30.0,,", "1,50.0,,"]


def test_json_keeps_everything(tmp_path: Path) -> None:
    measured = [SHORT, as_published(RM), UNKNOWN, POINTER]
    content = json.loads(written(tmp_path, ".json", *measured))
    short, current, mine, pointer = content["runs"]
    assert (short["lags"], short["measured_percent"], short["positions"]) == ([3, 2, 1], [20, 30, 50], 97)
    assert short["published"]["scaled"] and sum(short["published"]["percent"]) == pytest.approx(100)
    assert (current["lags"][-1], current["published"]["inferred_lags"]) == (0, [0])
    assert mine["published"] is None and pointer["on_no_step_percent"] == pytest.approx(62.5)
    assert content["notes"] == notes(measured)
    alone = json.loads(written(tmp_path, ".json", as_published("key-value")))
    assert (alone["positions"], alone["left_out"], alone["window"], alone["fixed"]) == (1234, 15, 15, False)
    assert alone["published_percent"] == alone["measured_percent"] and alone["published_model"] == "key-value"
    assert json.loads(written(tmp_path, ".json", SHORT))["published_model"] is None
