"""`spanlm evaluate --dynamic`: what is printed is what the library says, with and without side by side."""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import spanlm
from spanlm.scoring.dynamic.statistics import DYNAMIC
from spanlm.scoring.dynamic.tuning import TRIALS
from tests.cli.conftest import CONFIG, GIVEN, Cli, flat


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_run, tmp_path / "run")


@pytest.fixture
def short(tiny_corpus: Path, tmp_path: Path) -> str:
    """The beginnings of the tiny texts, named as they are named here."""
    (tmp_path / "short").mkdir()
    for split in ("valid", "test"):
        lines = (tiny_corpus / f"{split}.txt").read_text(encoding="utf-8").splitlines()
        (tmp_path / "short" / f"{split}.txt").write_text("\n".join(lines[:8]) + "\n", encoding="utf-8")
    return "short"


def evaluated(cli: Cli, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("evaluate", *arguments, "--json").done)
    return found


def test_the_table_has_both_and_says_where_the_statistics_are_from(cli: Cli, run: Path) -> None:
    flat = " ".join(cli("evaluate", run, *GIVEN).done.split())
    model = spanlm.load(run)
    result, statistics = model.evaluate(dynamic=CONFIG), model.dynamic_statistics()
    assert result.without_dynamic is not None
    assert f"perplexity {result.perplexity:.2f} " in flat
    assert f"without dynamic {result.without_dynamic.perplexity:.2f} " in flat
    assert CONFIG.description in flat
    assert f"statistics {statistics.description}; gathered now, saved in {run / DYNAMIC}" in flat
    again = " ".join(cli("evaluate", run, *GIVEN).done.split())
    assert f"{statistics.description}; read from {run / DYNAMIC}" in again


def test_a_part_of_the_training_text_is_enough_and_the_rest_of_a_folder_is_not_touched(cli: Cli, run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    found = evaluated(cli, run, "--dynamic", "--dynamic-statistics", "1")["dynamic_statistics"]
    assert (found["whole"], found["read"]) == (False, 1)
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert after.keys() - before.keys() == {run / DYNAMIC}
    assert all(after[path] == content for path, content in before.items())


def test_what_cannot_be_evaluated_is_refused_before_statistics_are_gathered(
    cli: Cli, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "one.txt").write_text("the cat\n" * 20)
    how = ("evaluate", run, "--corpus", "one.txt", "--dynamic")
    cli(*how, "--state", "document").refused("one document")
    cli(*how, "--tune-dynamic").refused("no valid part", "--dynamic-rate")
    cli(*how, "--dynamic-loss", "training").refused("--dynamic-loss=training: must be likelihood without a span buffer")
    assert not (run / DYNAMIC).exists()


@pytest.mark.parametrize("rate", ["1e38", "100"])
def test_weights_that_diverge_end_in_one_line(cli: Cli, run: Path, rate: str) -> None:
    """With the lower one all sums are finite, and the perplexity is not."""
    cli("evaluate", run, "--dynamic", "--dynamic-rate", rate).refused(
        f"--dynamic-rate={float(rate):g}: the weights diverged", "Take a lower rate", status=1
    )


def test_a_best_value_on_the_edge_comes_with_options_to_try(cli: Cli, run: Path, short: str) -> None:
    given = ("--dynamic-rate", "1e-7", "1e-9", "--dynamic-decay", "0.5", "0.01", "--dynamic-epsilon", "0.02")
    how = ("--corpus", short, "--dynamic", "--tune-dynamic", *given)
    best = evaluated(cli, run, *how)["tuning"]["best"]
    text = flat(cli("evaluate", run, *how).done)
    assert "dynamic." not in text.replace("dynamic.safetensors", "") and "optimistic" not in text
    assert "optimistic" in cli("evaluate", run, *how, "--split", "valid").done
    (option,) = re.findall(r"Try --dynamic-rate ([\d.e-]+)", text)
    assert float(option) == best["rate"], "a grid that goes on from the edge"


TUNED = ("--dynamic", "--tune-dynamic", "--dynamic-rate", "0.0005", "0.002", "--dynamic-decay", "0.01")


@pytest.mark.slow
def test_the_same_command_goes_on_with_a_search_that_was_stopped(cli: Cli, run: Path) -> None:
    """Ctrl-C once a trial is kept, whatever else the machine does: the main thread looks, by its process's own time."""

    def stop_when_kept(number: int, frame: FrameType | None) -> None:
        if (run / TRIALS).exists() and (run / TRIALS).read_bytes().endswith(b"\n"):
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGVTALRM, stop_when_kept)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.002, 0.002)
    try:
        # more points than are read before the signal is heard
        cli("evaluate", run, *TUNED, *(f"0.0{n}" for n in range(2, 10)), *(f"0.1{n}" for n in range(10))).refused(
            f"kept in {run / TRIALS}, and the same command", status=130, out=None
        )
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    kept = len((run / TRIALS).read_text().splitlines())
    found = evaluated(cli, run, *TUNED)
    assert 1 <= found["tuning"].pop("read_before") <= kept
    assert "resumed 2 trials were read" in " ".join(cli("evaluate", run, *TUNED).done.split())
    (run / TRIALS).unlink()
    expected = evaluated(cli, run, *TUNED)
    assert expected["tuning"].pop("read_before") == 0
    for name in ("nll", "tuning", "dynamic", "protocol"):
        assert found[name] == expected[name]
