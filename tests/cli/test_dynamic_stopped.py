"""`spanlm evaluate --tune-dynamic` that is stopped goes on, and says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spanlm.evaluation import dynamic as dynamic_module
from spanlm.evaluation.dynamic import adapted_tally
from spanlm.evaluation.scoring import Tally
from tests.cli.conftest import Cli
from tests.cli.span_runs import flat

TUNED = ("--dynamic", "--tune-dynamic", "--dynamic-rate", "0.0005", "0.002", "--dynamic-decay", "0.01")


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_run, tmp_path / "run")


def stopping(monkeypatch: pytest.MonkeyPatch, reading: int) -> Callable[[], int]:
    """Stop in so-many-th reading; return how often one was begun."""
    tally: Callable[..., Tally] = adapted_tally
    begun = []

    def read(*arguments: Any, **how: Any) -> Tally:
        begun.append(1)
        if len(begun) == reading:
            raise KeyboardInterrupt
        return tally(*arguments, **how)

    monkeypatch.setattr(dynamic_module, "adapted_tally", read)
    return lambda: len(begun)


@pytest.mark.parametrize("reading", [2, 3])
def test_the_same_command_goes_on(cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch, reading: int) -> None:
    """Stopped in the search, or after it, while test is read."""
    expected = json.loads(cli("evaluate", run, *TUNED, "--json").done)
    assert expected["tuning"]["read_before"] == 0
    with monkeypatch.context() as patch:
        stopping(patch, reading)
        assert cli("evaluate", run, *TUNED).status == 130
    assert len(list(run.glob("dynamic-search-*"))) == 1
    with monkeypatch.context() as patch:
        begun = stopping(patch, 9)
        found = json.loads(cli("evaluate", run, *TUNED, "--json").done)
        assert begun() == 4 - reading
    assert found["tuning"].pop("read_before") == reading - 1
    del expected["tuning"]["read_before"]
    for name in ("nll", "tuning", "dynamic", "protocol"):
        assert found[name] == expected[name]
    assert not list(run.glob("dynamic-search-*")), "it is over"


def test_people_are_told(cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "resumed" not in cli("evaluate", run, *TUNED).done
    with monkeypatch.context() as patch:
        stopping(patch, 3)
        cli("evaluate", run, *TUNED).refused(
            "stopped; what was read to its end is kept in the run's folder. The same command goes on",
            status=130,
            out=None,
        )
    with monkeypatch.context() as patch:
        stopping(patch, 1)
        cli("evaluate", run, "--dynamic").refused("spanlm: stopped\n", status=130, out=None)
    assert "resumed 2 readings are those of a search that was stopped" in flat(cli("evaluate", run, *TUNED).done)


def full(*_: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_result_that_could_not_be_told_is_not_lost(cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = json.loads(cli("evaluate", run, *TUNED, "--json").done)
    with monkeypatch.context() as patch:
        patch.setattr("spanlm.cli.evaluate.table", full)
        cli("evaluate", run, *TUNED).refused("No space left on device", status=1, out=None)
    with monkeypatch.context() as patch:
        begun = stopping(patch, 9)
        assert json.loads(cli("evaluate", run, *TUNED, "--json").done)["nll"] == expected["nll"]
        assert begun() == 0


def test_a_reading_that_is_asked_for_alone_leaves_nothing(cli: Cli, run: Path) -> None:
    for _ in range(2):
        assert cli("evaluate", run, "--dynamic").done
    assert not list(run.glob("dynamic-search-*"))
