"""Use of a span buffer by epoch: what a run told, in files and as lines."""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from spanlm.analysis.axes import MARK
from spanlm.analysis.drawing import Drawing, Line
from spanlm.analysis.palette import MUTED, STYLES
from spanlm.analysis.utilisation import Utilisation, read_utilisation, spread_epochs
from spanlm.analysis.utilisation_export import save_utilisation
from spanlm.analysis.utilisation_figure import utilisation_figure
from spanlm.errors import InputError

from .drawings import assert_on_paper, assert_texts_apart, marks, texts

ONE = Utilisation("one", (0.5, 0.02, 0.1), (0.3, 0.1, 0.08))
LONG = Utilisation("long", tuple(0.5 / n for n in range(1, 501)), (0.07,) * 500)


def run_folder(folder: Path, *rows: dict[str, Any], end: str = "\n") -> Path:
    folder.mkdir()
    folder.joinpath("metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + end, encoding="utf-8")
    return folder


def valid(learned: float, oracle: float) -> dict[str, Any]:
    found = {"utilisation": learned, "oracle_utilisation": oracle}
    return {"event": "valid", "parts": {"train": {"utilisation": 0.9, "oracle_utilisation": 0.9}, "valid": found}}


def test_a_run_is_read_epoch_by_epoch_on_valid(tmp_path: Path) -> None:
    train = {"event": "train", "loss": 5.0}
    run = run_folder(tmp_path / "r", train, valid(0.5, 0.3), train, valid(0.1, 0.2))
    assert read_utilisation(run, "r") == Utilisation("r", (0.5, 0.1), (0.3, 0.2))


def test_a_line_that_is_being_written_is_not_read_yet(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "r", valid(0.5, 0.3), end='\n{"event": "valid", "par')
    assert read_utilisation(run, "r") == Utilisation("r", (0.5,), (0.3,))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"event": "train"}], "has finished no epoch yet"),
        ([{"event": "valid", "loss": 5.0}], r"no span buffer .* model\.memory\.kind=span_buffer"),
    ],
)
def test_what_has_nothing_to_tell_is_refused(tmp_path: Path, rows: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_utilisation(run_folder(tmp_path / "r", *rows), "r")
    with pytest.raises(InputError, match=r"x: has no metrics\.jsonl"):
        read_utilisation(tmp_path / "x", "x")


def test_lines_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match="epochs of a"):
        Utilisation("a", (), ())
    with pytest.raises(InputError, match="oracle of a=1: must be 2"):
        Utilisation("a", (0.1, 0.2), (0.1,))


@pytest.mark.parametrize("count", [1, 2, 11, 12, 13, 500])
def test_epochs_are_spread_from_the_first_to_the_last(count: int) -> None:
    found = spread_epochs(count, 12)
    assert len(found) == min(count, 12) and (found[0], found[-1]) == (0, count - 1)
    steps = {b - a for a, b in pairwise(found)}
    assert not steps or max(steps) - min(steps) <= 1


def test_every_epoch_has_a_mark_of_either_kind_at_its_height() -> None:
    drawing = utilisation_figure("t", [ONE])
    found = {mark.tip: mark for mark in marks(drawing) if mark.tip}
    learned = [found[f"one, epoch {n + 1}: PoU {100 * x:.1f} %"] for n, x in enumerate(ONE.learned)]
    oracle = [found[f"one, epoch {n + 1}: oracle PoU {100 * x:.1f} %"] for n, x in enumerate(ONE.oracle)]
    assert not any(mark.hollow for mark in learned) and all(mark.hollow for mark in oracle)
    assert [mark.x for mark in learned] == [mark.x for mark in oracle] == sorted(mark.x for mark in learned)
    (slope,) = {
        round((a.y - b.y) / (y - x), 6)
        for a, b, x, y in (
            (learned[0], learned[1], 0.5, 0.02),
            (learned[1], learned[2], 0.02, 0.1),
            (oracle[0], learned[1], 0.3, 0.02),
        )
    }
    assert slope > 0, "more is higher"


def test_a_long_line_has_all_its_points_and_few_marks() -> None:
    drawing = utilisation_figure("t", [LONG])
    lines = [s for s in drawing.shapes if isinstance(s, Line) and s.stroke == STYLES[0].colour and len(s.points) > 2]
    assert [len(line.points) for line in lines] == [500, 500]
    assert len([mark for mark in marks(drawing) if mark.tip]) == 24


@pytest.mark.parametrize(
    "runs",
    [[ONE], [LONG], [ONE, LONG], [Utilisation("one epoch", (0.976,), (0.46,))], [Utilisation("none", (0,), (0,))]],
    ids=["short", "long", "both", "one epoch", "never used"],
)
def test_everything_stays_on_the_paper_and_no_text_is_on_another(runs: list[Utilisation]) -> None:
    drawing = utilisation_figure("a title", runs, "a caption.")
    assert_on_paper(drawing)
    assert_texts_apart(drawing)
    assert {one.name for one in runs} <= set(texts(drawing))
    assert drawing.description.startswith("a caption. PoU")


def test_the_papers_two_ends_are_ruled_and_named() -> None:
    drawing = utilisation_figure("t", [ONE])
    ruled = {s.points[0][1] for s in drawing.shapes if isinstance(s, Line) and s.dash and s.stroke == MUTED}
    assert len(ruled) == 2
    assert {"paper: about 10 %", "paper: oracle 7 %"} <= set(texts(drawing))
    assert max(ruled) - min(ruled) == pytest.approx(3 / 100 * height_of_one(drawing))


def height_of_one(drawing: Drawing) -> float:
    """Pixels of a share of 1."""
    found = {mark.tip: mark for mark in marks(drawing) if mark.tip and mark.radius == MARK}
    return (found["one, epoch 2: PoU 2.0 %"].y - found["one, epoch 1: PoU 50.0 %"].y) / 0.48


def test_more_runs_than_can_be_told_apart_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"of 8 runs: must be at most 7; write \.csv or \.json"):
        save_utilisation([ONE] * 8, tmp_path / "a.svg")
    save_utilisation([ONE] * 8, tmp_path / "a.csv")


def test_data_has_every_epoch_of_every_run(tmp_path: Path) -> None:
    save_utilisation([ONE, LONG], tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], int(row["epoch"])) for row in rows] == [
        (one.name, epoch + 1) for one in (ONE, LONG) for epoch in range(len(one))
    ]
    assert [float(row["utilisation"]) for row in rows] == [*ONE.learned, *LONG.learned]
    save_utilisation([ONE], tmp_path / "a.json")
    (run,) = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["runs"]
    assert (run["run"], tuple(run["oracle_utilisation"])) == ("one", ONE.oracle)


def test_figures_are_written(tmp_path: Path) -> None:
    save_utilisation([ONE], tmp_path / "a.svg")
    assert "oracle PoU 30.0 %" in (tmp_path / "a.svg").read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"cannot write \.html"):
        save_utilisation([ONE], tmp_path / "a.html")
