"""`spanlm evaluate --tune-dynamic` that is stopped goes on, and says so."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from spanlm.evaluation.search_log import SearchLog

from spanlm.cli.dynamic import searching
from spanlm.evaluation import dynamic as dynamic_module
from spanlm.evaluation import search_log
from spanlm.evaluation.dynamic.evaluate import adapted_tally
from spanlm.evaluation.scoring import Tally, shown
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
    assert len(list(run.glob("dynamic-search/*"))) == reading - 1
    with monkeypatch.context() as patch:
        begun = stopping(patch, 9)
        found = json.loads(cli("evaluate", run, *TUNED, "--json").done)
        assert begun() == 4 - reading
    assert found["tuning"].pop("read_before") == reading - 1
    del expected["tuning"]["read_before"]
    for name in ("nll", "tuning", "dynamic", "protocol"):
        assert found[name] == expected[name]
    assert not list(run.glob("dynamic-search*")), "it is over"


@pytest.mark.parametrize(("reading", "readings"), [(2, "1 reading is"), (3, "2 readings are")])
def test_people_are_told(cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch, reading: int, readings: str) -> None:
    with monkeypatch.context() as patch:
        stopping(patch, reading)
        told = f"stopped; {readings} kept in {run / 'dynamic-search'}, and the same command goes on with what is there"
        cli("evaluate", run, *TUNED).refused(told, status=130, out=None)
    were = readings.replace("is", "is that").replace("are", "are those")
    assert f"resumed {were} of a search that was stopped" in flat(cli("evaluate", run, *TUNED).done)
    assert "resumed" not in cli("evaluate", run, *TUNED).done


@pytest.mark.parametrize("options", [TUNED, ("--dynamic",)], ids=["a search", "no search"])
def test_where_nothing_was_read_nothing_is_promised(
    cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    with monkeypatch.context() as patch:
        stopping(patch, 1)
        cli("evaluate", run, *options).refused("spanlm: stopped\n", status=130, out=None)


def test_what_could_not_be_kept_is_not_promised(cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopping(monkeypatch, 3)
    monkeypatch.setattr(search_log, "replace_file", full)
    told = f"stopped; what was read could not all be kept: {run / 'dynamic-search'}: No space left on device; 0 of it"
    cli("evaluate", run, *TUNED).refused(told, status=130, out=None)


def test_what_goes_astray_leaves_nothing(cli: Cli, run: Path) -> None:
    ruinous = ("--dynamic", "--tune-dynamic", "--dynamic-rate", "1e4", "--dynamic-decay", "0")
    cli("evaluate", run, *ruinous).refused("the weights went astray", status=1, out=None)
    assert not list(run.glob("dynamic-search*"))


def ruined(monkeypatch: pytest.MonkeyPatch, reading: int) -> None:
    """Let the weights go astray in so-many-th reading."""
    tally: Callable[..., Tally] = adapted_tally
    begun = []

    def read(*arguments: Any, **how: Any) -> Tally:
        begun.append(1)
        return Tally(7, math.nan) if len(begun) == reading else tally(*arguments, **how)

    monkeypatch.setattr(dynamic_module, "adapted_tally", read)


def test_a_search_is_told_and_kept_though_test_goes_astray(
    cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = json.loads(cli("evaluate", run, *TUNED, "--json").done)
    with monkeypatch.context() as patch:
        ruined(patch, 3)
        told = cli("evaluate", run, *TUNED)
    told.refused("the weights went astray: after 7 tokens", status=1, out=None)
    best, tuning = found["dynamic"], found["tuning"]
    chosen = f"On tiny valid η {best['rate']:g} and λ {best['decay']:g} were the best, with a perplexity of "
    assert f"{chosen}{shown(tuning['perplexity'])}; what was read is kept in {run / 'dynamic-search'}" in told.err
    assert len(list(run.glob("dynamic-search/*"))) == 3, "the one that went astray, too"


def test_one_setting_that_goes_astray_was_no_search(cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ruined(monkeypatch, 1)
    told = cli("evaluate", run, "--dynamic")
    told.refused("the weights went astray", status=1, out=None)
    assert "the best" not in told.err


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


def test_a_result_that_is_still_on_its_way_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe whose reader has gone says so when it is flushed."""
    log = SearchLog(tmp_path / "log")
    log.reading("a", {}, lambda: Tally(1, 1.0))
    monkeypatch.setattr("sys.stdout", SimpleNamespace(flush=full))
    with pytest.raises(OSError, match="No space"), searching(log):
        pass
    assert len(list((tmp_path / "log").iterdir())) == 1


def test_a_reading_that_is_asked_for_alone_leaves_nothing(cli: Cli, run: Path) -> None:
    for _ in range(2):
        assert cli("evaluate", run, "--dynamic").done
    assert not list(run.glob("dynamic-search*"))
