from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest

from spanlm.analysis.by_lag import LagProfile
from spanlm.analysis.drawing import Drawing, Line, Mark
from spanlm.analysis.export import save_lag_comparison
from spanlm.analysis.lag_comparison import (
    MeasuredLags,
    comparison_csv,
    comparison_json,
    comparison_markdown,
    lag_columns,
    notes,
)
from spanlm.analysis.lag_comparison_figure import lag_comparison_figure
from spanlm.analysis.palette import STYLES, lighter
from spanlm.analysis.published_lags import PUBLISHED
from spanlm.errors import InputError

from .drawings import assert_on_paper, assert_texts_apart, marks, texts

RM = "RM(+tM-g)"


def profile(window: int, nearest_lag: int = 1, seed: int = 0) -> LagProfile:
    shares = np.random.default_rng(seed).dirichlet(np.ones(window))
    return LagProfile(tuple((100 * shares).tolist()), 1234, 5, nearest_lag)


def as_published(model: str) -> MeasuredLags:
    row = PUBLISHED[model]
    return MeasuredLags(model.lower(), "a text", LagProfile(row.percent, 1234, 15, row.nearest_lag), model)


SHORT = MeasuredLags("kvp-w3", "a text", LagProfile((20.0, 30.0, 50.0), 97, 3), "key-value-predict")
CURRENT = MeasuredLags("rm-w2", "a text", LagProfile((40.0, 60.0), 98, 1, 0), RM)
UNKNOWN = MeasuredLags("mine", "a text", LagProfile((25.0, 75.0), 99, 2))


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


def test_what_is_older_has_a_row_of_its_own_and_a_note() -> None:
    """Of memories that hold the whole sentence."""
    whole = MeasuredLags("single", "a text", LagProfile((20.0, 25.0, 30.0), 50, 40, older=25.0))
    rows = list(lag_columns([SHORT, whole]))
    assert rows[:3] == [
        ["lag", "kvp-w3", "paper", "single"],
        ["older", "", "", "25.0"],
        ["−3", "20.0", "23.9", "20.0"],
    ]
    said = notes([SHORT, whole])
    assert said[0] == "Mean over positions with a full window or with at least 3 words to look back at: a text."
    assert "cannot be compared" in said[1]
    assert said[2] == "On older words, of memories that hold all since the last reset: single 25.0 %."
    one, other = json.loads(comparison_json([SHORT, whole]))["runs"]
    assert (one["older_percent"], other["older_percent"], other["on_no_step_percent"]) == (None, 25.0, 0.0)
    assert "| model | older | −3 |" in comparison_markdown([SHORT, whole]).decode()
    assert "older" in lag_comparison_figure([SHORT, whole]).description


def test_what_lies_on_no_word_is_a_note() -> None:
    """Of the models whose weights do not sum to 100."""
    pointer = MeasuredLags("pointer", "a text", LagProfile((10.0, 27.5), 98, 1, 0))
    assert "On no word: pointer 62.5 %." in notes([SHORT, pointer])
    assert not any("no word" in note for note in notes([SHORT, CURRENT, UNKNOWN]))
    _, one = json.loads(comparison_json([SHORT, pointer]))["runs"]
    assert one["on_no_step_percent"] == pytest.approx(62.5)


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_window_of_fifteen_stands_beside_what_was_printed(model: str) -> None:
    header, *rows = lag_columns([as_published(model)])
    assert header == ["lag", model.lower(), "paper"] and len(rows) == 17
    assert [row[2].removeprefix("≈") for row in rows[:-1]] == [row[1] for row in rows[:-1]]
    assert (rows[14][2] == "≈39.9") == (model == RM)


def test_a_window_beyond_the_papers_stands_alone() -> None:
    assert next(lag_columns([MeasuredLags("long", "a text", profile(16), "attention")])) == ["lag", "long"]


def test_notes_say_what_was_done() -> None:
    said = " ".join(notes([SHORT, CURRENT, UNKNOWN]))
    for part in ("a text.", "cannot be compared", "Fig. 3b", "scaled to sum to 100", "≈ (lag 0)", "lag 0 here"):
        assert part in said, part
    alone = " ".join(notes([UNKNOWN]))
    for part in ("cannot be compared", "Fig. 3b", "scaled", "≈", "lag 0"):
        assert part not in alone, part


def test_markdown_has_a_row_for_each_model_and_one_for_the_papers() -> None:
    piped = MeasuredLags("a|b", "a text", UNKNOWN.profile)
    table, said = comparison_markdown([SHORT, CURRENT, piped]).decode().split("\n\n")
    cells = [line.replace("\\|", "/").strip("| ").split(" | ") for line in table.splitlines()]
    assert [row[0] for row in cells] == ["model", "---", "kvp-w3", "paper", "rm-w2", "paper", "a/b"]
    assert cells[0][1:] == ["−3", "−2", "−1", "0 (current word)", "last 5", "positions"]
    assert cells[3][1:4] == ["23.9", "31.4", "44.7"]
    assert "scaled to sum to 100" in said


def test_csv_has_a_row_for_each_model_and_lag() -> None:
    rows = list(csv.DictReader(io.StringIO(comparison_csv([SHORT, CURRENT, UNKNOWN]).decode())))
    assert [(row["run"], row["lag"]) for row in rows] == [
        *(("kvp-w3", "3"), ("kvp-w3", "2"), ("kvp-w3", "1")),
        *(("rm-w2", "1"), ("rm-w2", "0"), ("mine", "2"), ("mine", "1")),
    ]
    assert [float(row["measured_percent"]) for row in rows] == [20, 30, 50, 40, 60, 25, 75]
    assert [row["published_inferred"] for row in rows] == ["0", "0", "0", "0", "1", "", ""]
    assert float(rows[2]["published_percent"]) == pytest.approx(100 * 17.8 / 39.8)
    assert {row["published_scaled"] for row in rows} == {"1", ""}


def test_json_keeps_everything() -> None:
    content = json.loads(comparison_json([SHORT, as_published(RM), UNKNOWN]))
    short, current, mine = content["runs"]
    assert (short["lags"], short["measured_percent"], short["positions"]) == ([3, 2, 1], [20, 30, 50], 97)
    assert short["published"]["scaled"] and sum(short["published"]["percent"]) == pytest.approx(100)
    assert (current["lags"][-1], current["published"]["inferred_lags"]) == (0, [0])
    assert not current["published"]["scaled"] and current["published"]["percent"] == list(PUBLISHED[RM].percent)
    assert mine["published"] is None
    assert content["notes"] == notes([SHORT, as_published(RM), UNKNOWN])


def _lines(drawing: Drawing) -> tuple[list[Line], list[Line]]:
    """Solid and dashed lines of more than two points."""
    lines = [shape for shape in drawing.shapes if isinstance(shape, Line) and len(shape.points) > 2]
    return [line for line in lines if not line.dash], [line for line in lines if line.dash]


def test_the_figure_has_a_line_for_each_model_and_the_papers_for_windows_of_fifteen() -> None:
    drawing = lag_comparison_figure([*map(as_published, PUBLISHED), SHORT, MeasuredLags("mine", "a text", profile(4))])
    solid, dashed = _lines(drawing)
    assert [line.stroke for line in solid] == [style.colour for style in STYLES[:6]]
    assert [line.stroke for line in dashed] == [lighter(style.colour) for style in STYLES[:4]]
    for one, paper in zip(solid, dashed, strict=False):
        assert one.points == paper.points, "what was measured here is what was printed"
    assert "none stands beside shorter ones" in " ".join(texts(drawing))


def test_a_row_that_was_cut_is_no_line() -> None:
    ten = MeasuredLags("kv-w10", "a text", profile(10), "key-value")
    drawing = lag_comparison_figure([SHORT, ten, CURRENT])
    assert _lines(drawing)[1] == [] and "Fig. 3b" not in " ".join(texts(drawing))
    assert "none stands beside shorter ones" in " ".join(texts(drawing))


def test_lags_stand_at_their_place_whatever_the_window() -> None:
    drawing = lag_comparison_figure([as_published(RM), SHORT])
    (current, short), _ = _lines(drawing)
    ticks = {shape.text: shape.x for shape in drawing.shapes if hasattr(shape, "text")}
    assert [x for x, _ in short.points] == pytest.approx([ticks["−3"], ticks["−2"], ticks["−1"]])
    assert current.points[-1][0] == pytest.approx(ticks["0"])
    assert current.points[0][0] == pytest.approx(ticks["−14"])


def test_two_runs_of_one_model_share_the_papers_line() -> None:
    one = as_published("attention")
    drawing = lag_comparison_figure([one, MeasuredLags("another", "a text", profile(15), "attention")])
    assert [len(lines) for lines in _lines(drawing)] == [2, 1]
    assert texts(drawing).count("attention, paper") == 1


def test_only_the_number_that_could_not_be_read_is_hollow() -> None:
    drawing = lag_comparison_figure([*map(as_published, PUBLISHED)])
    (hollow,) = (mark for mark in marks(drawing) if mark.hollow)
    (_, dashed) = _lines(drawing)
    place = next(line.points[-1] for line in dashed if line.stroke == hollow.colour)
    assert (hollow.x, hollow.y) == place
    assert "Hollow mark (lag 0): illegible" in " ".join(texts(drawing))


def test_marks_of_what_was_measured_lie_on_top() -> None:
    drawing = lag_comparison_figure([as_published("attention")])
    last = [shape for shape in drawing.shapes if isinstance(shape, Mark | Line)][-15:]
    assert all(isinstance(shape, Mark) and shape.colour == STYLES[0].colour for shape in last)


@pytest.mark.parametrize("windows", [(1,), (15, 15), (3, 5, 15, 15, 20, 40, 60)])
@pytest.mark.parametrize("nearest_lag", [0, 1])
def test_everything_stays_on_the_paper_and_apart(windows: tuple[int, ...], nearest_lag: int) -> None:
    measured = [
        MeasuredLags(f"model-number-{i}", "a text", profile(window, nearest_lag, i), "attention")
        for i, window in enumerate(windows)
    ]
    drawing = lag_comparison_figure(measured)
    assert_on_paper(drawing)
    assert_texts_apart(drawing)


@pytest.mark.parametrize("suffix", [".svg", ".png", ".csv", ".json", ".md"])
def test_every_suffix_writes_its_format(tmp_path: Path, suffix: str) -> None:
    save_lag_comparison([SHORT, CURRENT], tmp_path / f"a{suffix}")
    assert (tmp_path / f"a{suffix}").stat().st_size > 200
    assert os.listdir(tmp_path) == [f"a{suffix}"]


def test_more_models_than_can_be_told_apart_are_refused_as_a_figure_only(tmp_path: Path) -> None:
    many = [MeasuredLags(str(i), "a text", profile(3), None) for i in range(8)]
    with pytest.raises(InputError, match=r"a figure of 8 models: must be at most 7; write \.csv"):
        save_lag_comparison(many, tmp_path / "a.svg")
    save_lag_comparison(many, tmp_path / "a.csv")
    with pytest.raises(InputError, match=r"cannot write \.html"):
        save_lag_comparison(many, tmp_path / "a.html")
