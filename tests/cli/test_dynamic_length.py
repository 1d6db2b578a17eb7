"""`--dynamic-length N`: after how many words the weights learn."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.evaluation.dynamic.update import DynamicConfig
from tests.cli.conftest import Cli


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    """A copy of the run, in whose folder can be written."""
    return shutil.copytree(tiny_run, tmp_path / "run")


def said(cli: Cli, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("evaluate", *arguments, "--dynamic", "--json").done)
    return found


def test_segments_are_so_long_and_the_usual_settings_in_proportion(cli: Cli, run: Path) -> None:
    found = said(cli, run, "--dynamic-length", 20)
    config = DynamicConfig(rate=2e-4, decay=0.008, length=20)
    assert found["dynamic"].items() >= config.to_json().items()
    assert found["dynamic_statistics"]["length"] == 20
    assert found["perplexity"] == pytest.approx(spanlm.load(run).evaluate(dynamic=config).perplexity, rel=1e-9)
    assert "after every 20 tokens" in found["protocol"]
    # those of 5 words are others
    assert said(cli, run)["dynamic_statistics"]["length"] == 5


def test_given_settings_stay_and_a_grid_is_of_that_length(cli: Cli, run: Path) -> None:
    grid = ("--dynamic-rate", 0.001, 0.003, "--dynamic-decay", 0.01)
    found = said(cli, run, "--dynamic-length", 7, "--tune-dynamic", *grid)
    assert [(point["rate"], point["decay"]) for point in found["tuning"]["grid"]] == [(0.001, 0.01), (0.003, 0.01)]
    assert found["dynamic"]["length"] == 7


def test_given_decays_are_not_measured_by_the_usual_ones(cli: Cli, run: Path) -> None:
    """Which in proportion to so long a segment would be beyond 1."""
    given = ("--dynamic-rate", 0.01, "--dynamic-decay", 0.5, "--dynamic-epsilon", 0.01)
    for convention in ("mean", "sum"):
        found = said(cli, run, "--dynamic-length", 2000, "--dynamic-convention", convention, *given)
        assert found["dynamic"]["length"] == 2000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--dynamic", "--dynamic-length", 0), "--dynamic-length=0: must be at least 1"),
        (("--dynamic", "--dynamic-length", 2000), "--dynamic-decay=1.2: must be in [0, 1]"),
        (("--dynamic-length", 7), "--dynamic-length: is for dynamic evaluation; add --dynamic"),
    ],
)
def test_bad_lengths_are_one_line(cli: Cli, run: Path, options: tuple[Any, ...], message: str) -> None:
    cli("evaluate", run, *options).refused(f"spanlm: {message}")
