"""`spanlm bench PRESET|FILE`: how fast a configuration trains, and what takes the time."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from spanlm.benchmark.operations import operations
from spanlm.benchmark.recipe import TrainingReport, TrainingSpeed, over_and_over, timed_steps, training_report
from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.models.counting import count_configured
from tests.cli.conftest import Cli
from tests.cli.span_runs import flat
from tests.training.small import make_config, make_corpus

CPU = torch.device("cpu")
TEXT = "the old man saw the sea .\nthe sea was calm .\n" * 30


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file like that of `--print_config`, of a text beside it."""
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(TEXT if split == "train" else TEXT[: len(TEXT) // 3])
    asked = make_config(kind="streams", shuffle=False)
    path = tmp_path / "mine.yaml"
    path.write_text(replace(asked, data=replace(asked.data, corpus=str(tmp_path))).to_yaml())
    return path


def assert_consistent(speed: dict[str, Any], rounds: int) -> None:
    seconds = speed["milliseconds"] / 1e3
    assert speed["training_seconds"] == pytest.approx(speed["steps"] * seconds)
    assert 0 < speed["tokens_per_second"] < math.inf and speed["validation_seconds"] > 0
    assert speed["step_megabytes"] is None or speed["step_megabytes"] >= 0
    spent = [one["milliseconds"] for one in speed["operations"]]
    assert spent == sorted(spent, reverse=True) and min(spent) > 0
    assert sum(one["share"] for one in speed["operations"]) <= 1.01
    assert all(one["calls"] > 0 and one["name"] for one in speed["operations"])


def test_json_tells_of_each_and_of_both_precisions(cli: Cli, config: Path) -> None:
    result = cli("bench", config, "--device", "cpu", "--rounds", 3, "--operations", 4, "--json")
    assert result.status == 0
    content = json.loads(result.out)
    assert content.keys() == {"started", "rounds", "trainings"} and content["rounds"] == 3
    (speeds,) = content["trainings"].values()
    assert list(content["trainings"]) == [str(config)]
    assert [speed["precision"] for speed in speeds] == ["fp32", "bf16"]
    for speed in speeds:
        assert speed.keys() == {field for field in TrainingSpeed.__dataclass_fields__}
        assert len(speed["operations"]) == 4
        assert_consistent(speed, 3)
    assert result.err == f"measuring: {config}, fp32\nmeasuring: {config}, bf16\n"


def test_the_tables(cli: Cli, config: Path) -> None:
    said = flat(cli("bench", config, "--device", "cpu", "--rounds", 1, "--operations", 2).out)
    for part in ("ms a step", "an epoch", "its validation", "a step in bf16", "of the step", "all others, Python"):
        assert part in said
    without = cli("bench", config, "--device", "cpu", "--rounds", 1).out
    assert "of the step" not in without and "fp32" in without
    assert not list(config.parent.glob("*.jsonl"))  # nothing is written


def test_the_profiler_says_nothing_of_itself(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    operations(lambda segment: torch.ones(2) + 1, [None, None], CPU, 3)  # type: ignore[list-item]
    assert capfd.readouterr() == ("", "")


def test_a_preset_is_taken_by_its_name_with_its_own_corpus(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []

    def report(named: dict[str, tuple[RunConfig, Corpus]], *given: Any) -> Any:
        asked.append((named, *given[:3]))
        return TrainingReport({"device": "cpu"}, 7, {})

    monkeypatch.setattr("spanlm.cli.bench.training_report", report)
    monkeypatch.setattr("spanlm.cli.bench.load_corpus", lambda data: data)
    assert cli("bench", "yang2018/mos-wt2", "demo", "--data-dir", tmp_path, "--rounds", 7).done == "device cpu\n"
    ((named, *given),) = asked
    assert given == ["auto", 7, 0] and list(named) == ["yang2018/mos-wt2", "demo"]
    config, data = named["yang2018/mos-wt2"]
    assert data.corpus == "wikitext-2" and data.dir == str(tmp_path)
    assert count_configured(config.model, 33_278).total == 34_909_528


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--rounds", 0), ("--rounds=0", "at least 1")),
        (("demo", "--operations", -1), ("--operations=-1", "at least 0")),
        (("--operations", 3), ("--operations", "PRESET")),
        (("--data-dir", "."), ("--data-dir", "PRESET")),
        (("demo", "demo"), ("demo", "twice")),
        (("merity2018/awd-pbt",), ("merity2018/awd-pbt", "merity2018/awd-ptb")),
        (("no.yaml",), ("no.yaml",)),
        (("merity2018/awd-ptb",), ("data.corpus=ptb", "--data-dir")),
    ],
)
def test_refused(cli: Cli, arguments: tuple[object, ...], parts: tuple[str, ...]) -> None:
    cli("bench", *arguments).refused(*parts)


def test_steps_are_timed_one_by_one_and_counted_in_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by the length of what is read: the median step, the mean of the tokens."""
    now = 0.0

    class Reader:
        device = CPU

        def step(self, segment: Any) -> None:
            nonlocal now
            now += segment.seconds

    class Piece:
        def __init__(self, seconds: float, tokens: int) -> None:
            self.seconds, self.mask = seconds, torch.arange(10) < tokens

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    pieces = [Piece(1.0, 2), Piece(9.0, 4), Piece(2.0, 9)]
    steps = timed_steps(Reader(), iter(pieces))  # type: ignore[arg-type]
    assert (steps.seconds, steps.tokens) == (2.0, 5.0)


def test_more_steps_than_an_epoch_has() -> None:
    corpus, config = make_corpus(), make_config()
    (speed, _) = training_report({"a": (config, corpus)}, "cpu", rounds=40).trainings["a"]
    assert speed.steps < 40 and speed.operations == []

    class Two:
        def segments(self) -> list[int]:
            return [1, 2]

    endless = over_and_over(Two())  # type: ignore[arg-type]
    assert [next(endless) for _ in range(5)] == [1, 2, 1, 2, 1]


def multiplied(size: int, times: int) -> Callable[[Any], None]:
    a = torch.ones(size, size)

    def step(segment: Any) -> None:
        for _ in range(times):
            torch.mm(a, a)
        a.neg()

    return step


def test_operations_are_those_of_a_step_the_longest_first() -> None:
    step = multiplied(256, 3)
    step(None)
    found = operations(step, [None] * 4, CPU, 10)  # type: ignore[list-item]
    calls = {one.name: one.calls for one in found}
    assert calls["aten::mm"] == 3 and calls["aten::neg"] == 1
    assert found[0].name == "aten::mm" and 0 < sum(one.share for one in found) <= 1
    assert operations(step, [None], CPU, 1)[0].name == "aten::mm"  # type: ignore[list-item]


def test_a_step_that_fails_leaves_no_profiler_behind(capfd: pytest.CaptureFixture[str]) -> None:
    def fails(segment: Any) -> None:
        raise RuntimeError("here")

    with pytest.raises(RuntimeError, match="here"):
        operations(fails, [None], CPU, 1)  # type: ignore[list-item]
    assert operations(multiplied(8, 1), [None], CPU, 1)  # type: ignore[list-item]
    torch.ones(2)
    print("heard", flush=True)
    assert capfd.readouterr().out == "heard\n"


def test_precision_and_device_are_those_that_were_asked_for() -> None:
    config = make_config()
    strange = replace(config, training=replace(config.training, device="cuda", precision="bf16"))
    report = training_report({"a": (strange, make_corpus())}, "cpu", rounds=1, most=0)
    assert [speed.precision for speed in report.trainings["a"]] == ["fp32", "bf16"]
    assert report.started["device"] == "cpu"
