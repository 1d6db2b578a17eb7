"""Use of a span buffer by epoch: what a run logged, and in files."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from spanlm.analysis.export import save_utilisation
from spanlm.analysis.utilisation import Utilisation, read_utilisation
from spanlm.errors import InputError

ONE = Utilisation("one", (0.5, 0.02, 0.1), (0.3, 0.1, 0.08))
LONG = Utilisation("long", tuple(0.5 / n for n in range(1, 501)), (0.07,) * 500)


def run_folder(folder: Path, *rows: dict[str, Any], end: str = "\n") -> Path:
    folder.mkdir()
    folder.joinpath("metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + end, encoding="utf-8")
    return folder


def valid(learned: float, oracle: float) -> dict[str, Any]:
    found = {"utilisation": learned, "oracle_utilisation": oracle}
    return {"event": "valid", "parts": {"train": {"utilisation": 0.9, "oracle_utilisation": 0.9}, "valid": found}}


def test_a_run_is_read_epoch_by_epoch_on_valid_up_to_a_line_that_is_being_written(tmp_path: Path) -> None:
    train = {"event": "train", "loss": 5.0}
    run = run_folder(tmp_path / "r", train, valid(0.5, 0.3), train, valid(0.1, 0.2), end='\n{"event": "valid", "par')
    assert read_utilisation(run, "r") == Utilisation("r", (0.5, 0.1), (0.3, 0.2))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"event": "train"}], "has finished no epoch yet"),
        ([{"event": "valid", "loss": 5.0}], r"no span buffer .* model\.memory\.kind=span_buffer"),
    ],
)
def test_a_run_without_any_use_is_refused(tmp_path: Path, rows: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_utilisation(run_folder(tmp_path / "r", *rows), "r")
    with pytest.raises(InputError, match=r"x: there is no such folder"):
        read_utilisation(tmp_path / "x", "x")


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
    with pytest.raises(InputError, match=r"cannot write \.html"):
        save_utilisation([ONE], tmp_path / "a.html")
