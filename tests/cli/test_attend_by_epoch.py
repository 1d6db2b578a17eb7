"""`spanlm attend --by-epoch`: what a run told of its span buffer, without its model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


def told(run: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [row["parts"]["valid"] for row in rows if row["event"] == "valid"]


@pytest.fixture
def in_training(span_run: Path, tmp_path: Path) -> Path:
    """A run that has not saved a model yet."""
    folder = tmp_path / "in-training"
    folder.mkdir()
    shutil.copy(span_run / "metrics.jsonl", folder)
    return folder


def test_every_epoch_has_its_line(cli: Cli, in_training: Path) -> None:
    head, names, *rows, explained = cli("attend", in_training, "--by-epoch").done.splitlines()
    assert "valid, in percent" in head and names.split() == ["epoch", "in-training", "oracle"]
    assert [row.split() for row in rows] == [
        [str(n), f"{100 * parts['utilisation']:.1f}", f"{100 * parts['oracle_utilisation']:.1f}"]
        for n, parts in enumerate(told(in_training), start=1)
    ]
    assert "λ ≥ ½" in explained


def test_runs_of_different_lengths_stand_side_by_side(cli: Cli, span_run: Path, in_training: Path) -> None:
    metrics = in_training / "metrics.jsonl"
    last = [line for line in metrics.read_text(encoding="utf-8").splitlines() if '"valid", "step"' in line][-1]
    metrics.write_text(metrics.read_text(encoding="utf-8") + last + "\n", encoding="utf-8")
    *_, row, _ = cli("attend", span_run, in_training, "--by-epoch").done.splitlines()
    assert len(row.split()) == 3, "the first run has no such epoch"


@pytest.mark.parametrize("suffix", ["svg", "csv", "json"])
def test_files_are_written(cli: Cli, in_training: Path, suffix: str) -> None:
    assert cli("attend", in_training, "--by-epoch", "--out", f"a.{suffix}").done.endswith(f"wrote a.{suffix}\n")
    assert "in-training" in Path(f"a.{suffix}").read_text(encoding="utf-8")


@pytest.mark.parametrize("line", ["{", "5", "\xff", "[" * 10_000], ids=lambda line: line[:3])
def test_a_damaged_line_is_refused(cli: Cli, in_training: Path, line: str) -> None:
    with (in_training / "metrics.jsonl").open("a", encoding="latin-1") as file:
        file.write(line + "\n")
    cli("attend", in_training, "--by-epoch").refused("metrics.jsonl: damaged: a line", "take that line out")


def test_a_line_that_is_being_written_is_not_read(cli: Cli, in_training: Path) -> None:
    before = cli("attend", in_training, "--by-epoch").done
    with (in_training / "metrics.jsonl").open("a") as file:
        file.write('{"event": "val')
    assert cli("attend", in_training, "--by-epoch").done == before


def test_what_cannot_be_told_is_refused(cli: Cli, tiny_run: Path, in_training: Path) -> None:
    cli("attend", tiny_run, "--by-epoch").refused("no span buffer to show")
    cli("attend", in_training, "--by-epoch", "--out", "a.html").refused("a.html: cannot write .html")
    cli("attend", in_training, "--by-epoch", "--by-lag").refused("--by-lag and --by-epoch do not go together")
    cli("attend", in_training, "--by-epoch", "--corpus", "ptb").refused("--corpus=ptb: --by-epoch reads no text")
    cli("attend", in_training, "--by-epoch", "--split", "test").refused("--split=test: --by-epoch reads no text")
    cli("attend", in_training, in_training, "--by-epoch").refused("is named twice")
