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

from spanlm.benchmark.operations import Operation, WatchedStep, watched_step
from spanlm.benchmark.recipe import StepSpeed, TrainingReport, TrainingSpeed, spread, step_speed, training_report
from spanlm.cli.bench_tables import _operations_table
from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.models.counting import count_configured
from spanlm.models.encoders import LSTMConfig
from spanlm.models.memories import NoMemoryConfig, PointerSentinelConfig, SpanBufferConfig
from tests.cli.conftest import Cli
from tests.cli.span_runs import flat
from tests.training.small import make_config, make_corpus, with_batching, with_training

CPU = torch.device("cpu")
SEGMENT: Any = None
"""The steps of these tests read nothing."""
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


def assert_consistent(speed: dict[str, Any], tokens: int) -> None:
    assert speed["epoch_seconds"] == pytest.approx(tokens / speed["tokens_per_second"])
    assert speed["milliseconds"] > 0 and 0 < speed["tokens_per_second"] < math.inf and speed["validation_seconds"] > 0
    assert speed["step_megabytes"] is None or speed["step_megabytes"] >= 0
    watched = speed["watched"]
    spent = [one["milliseconds"] for one in watched["operations"]]
    assert spent == sorted(spent, reverse=True) and min(spent) > 0
    assert all(one["calls"] > 0 and one["name"] for one in watched["operations"])
    assert watched["other_operations"] > 10 and watched["other_milliseconds"] > 0
    assert sum(spent) + watched["other_milliseconds"] <= 1.01 * watched["milliseconds"]


def test_json_tells_of_each_and_of_both_precisions(cli: Cli, config: Path) -> None:
    result = cli("bench", config, "--device", "cpu", "--rounds", 3, "--operations", 4, "--json")
    assert result.status == 0
    content = json.loads(result.out)
    assert content.keys() == {"started", "rounds", "trainings"} and content["rounds"] == 3
    ((name, training),) = content["trainings"].items()
    asked = RunConfig.load(config)
    assert (name, training["config"]) == (str(config), asked.to_tree())
    assert training["corpus"] == asked.data.corpus.rpartition("/")[2] or training["corpus"] == asked.data.corpus
    assert training["vocabulary_size"] == 10 and training["parameters"] == count_configured(asked.model, 10).total
    assert training["epoch_tokens"] == len(TEXT.split()) + TEXT.count("\n")
    assert [speed["precision"] for speed in training["speeds"]] == ["fp32", "bf16"]
    for speed in training["speeds"]:
        assert speed.keys() == set(TrainingSpeed.__dataclass_fields__)
        assert len(speed["watched"]["operations"]) == 4
        assert_consistent(speed, training["epoch_tokens"])
    assert result.err == f"measuring: {config}, fp32\nmeasuring: {config}, bf16\n"


def test_the_tables(cli: Cli, config: Path) -> None:
    said = flat(cli("bench", config, "--device", "cpu", "--rounds", 1, "--operations", 2).out)
    for part in (
        "V 10, ",
        "ms a step",
        "its validation",
        "a step in bf16, watched: ",
        "other operations",
        "Python, waiting",
    ):
        assert part in said
    without = cli("bench", config, "--device", "cpu", "--rounds", 1).out
    assert "of the step" not in without and "fp32" in without
    assert not list(config.parent.glob("*.jsonl"))  # nothing is written


def test_the_rows_of_a_step_add_up() -> None:
    step = WatchedStep(10.0, [Operation("a", 4.0, 2.0), Operation("b", 2.0, 1.0)], 7, 1.0)
    columns = _operations_table("fp32", step).columns
    said = [list(column.cells) for column in columns]
    assert said[0] == ["a", "b", "7 other operations", "Python, waiting"]
    assert said[2:] == [["4.0", "2.0", "1.0", "3.0"], ["40%", "20%", "10%", "30%"]]
    few = _operations_table("fp32", replace(step, other_operations=0, other_milliseconds=0.0))
    assert list(few.columns[0].cells) == ["a", "b", "Python, waiting"]


def test_the_profiler_says_nothing_of_itself(capfd: pytest.CaptureFixture[str]) -> None:
    watched_step(multiplied(8, 1), [SEGMENT] * 2, CPU, 3)
    assert capfd.readouterr() == ("", "")


def test_nobody_has_to_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(number: int) -> int:
        raise OSError("bad file descriptor")

    monkeypatch.setattr("spanlm.benchmark.operations.os.dup", closed)
    assert watched_step(multiplied(8, 1), [SEGMENT], CPU, 3).operations


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
        (("--corpus", "ptb"), ("--corpus", "PRESET")),
        (("demo", "demo"), ("demo", "twice")),
        (("merity2018/awd-pbt",), ("merity2018/awd-pbt", "merity2018/awd-ptb")),
        (("no.yaml",), ("no.yaml",)),
        (("merity2018/awd-ptb",), ("data.corpus=ptb", "--data-dir")),
    ],
)
def test_refused(cli: Cli, arguments: tuple[object, ...], parts: tuple[str, ...]) -> None:
    cli("bench", *arguments).refused(*parts)


def test_speed_is_the_median_of_steps_and_of_what_each_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by the length of what is read."""
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
    pieces = [Piece(1.0, 2), Piece(9.0, 9), Piece(2.0, 10)]
    assert step_speed(Reader(), pieces) == StepSpeed(2000.0, 2.0)  # type: ignore[arg-type]


def test_segments_are_from_all_over_an_epoch() -> None:
    """Sentences come the short ones first: an epoch is no multiple of its first steps."""

    class Ten:
        def count(self) -> int:
            return 10

        def segments(self, start: int = 0) -> Any:
            return iter(range(start, 10))

    assert spread(Ten(), 5) == [0, 2, 4, 6, 8]  # type: ignore[arg-type]
    assert spread(Ten(), 20) == sorted([*range(10), *range(10)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "config",
    [
        make_config(kind="sentences", shuffle=False),
        make_config(SpanBufferConfig(buffer_size=6, span_length=3), dropout=0.0, kind="streams", shuffle=False),
        make_config(PointerSentinelConfig(window=4)),
        with_batching(make_config(kind="streams", shuffle=False, batch_size=4), group_size=2),
    ],
    ids=["sentences", "spans", "pointer", "groups"],
)
def test_whatever_can_be_trained_can_be_timed(config: RunConfig) -> None:
    training = training_report({"a": (config, make_corpus())}, "cpu", rounds=25).trainings["a"]
    assert all(speed.watched is None and speed.tokens_per_second > 0 for speed in training.speeds)


def test_memory_is_not_that_of_what_came_first() -> None:
    """The same in the same precision, whenever it is measured."""
    config = make_config(NoMemoryConfig(), dropout=0.0)
    large = replace(config, model=replace(config.model, embedding_size=400, encoder=LSTMConfig(hidden_size=400)))
    report = training_report({"a": (large, make_corpus()), "b": (large, make_corpus())}, "cpu", rounds=1)
    first, second = (report.trainings[name].speeds[0].step_megabytes for name in "ab")
    if first is None or second is None:
        pytest.skip("this system does not say how much memory a process had")
    assert abs(first - second) < 8


def test_one_that_goes_astray_is_named(cli: Cli, config: Path) -> None:
    asked = RunConfig.load(config)
    wild = with_training(asked, optimizer=replace(asked.training.optimizer, lr=1e30))
    config.write_text(wild.to_yaml())
    result = cli("bench", config, "--device", "cpu", "--rounds", 9)
    *_, last = result.err.splitlines()
    assert result.status == 1 and last.startswith(f"spanlm: {config}, fp32: cannot be timed")
    assert "training.optimizer.lr" in last and "checkpoint" not in last


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
    found = watched_step(step, [SEGMENT] * 4, CPU, 10)
    calls = {one.name: one.calls for one in found.operations}
    assert calls["aten::mm"] == 3 and calls["aten::neg"] == 1
    assert found.operations[0].name == "aten::mm"
    one = watched_step(step, [SEGMENT], CPU, 1)
    assert [operation.name for operation in one.operations] == ["aten::mm"] and one.other_operations >= 1
    assert one.operations[0].milliseconds + one.other_milliseconds <= one.milliseconds


def test_a_step_that_fails_leaves_no_profiler_behind(capfd: pytest.CaptureFixture[str]) -> None:
    def fails(segment: Any) -> None:
        raise RuntimeError("here")

    with pytest.raises(RuntimeError, match="here"):
        watched_step(fails, [SEGMENT], CPU, 1)
    assert watched_step(multiplied(8, 1), [SEGMENT], CPU, 1).operations
    print("heard", flush=True)
    assert capfd.readouterr().out == "heard\n"


def test_precision_and_device_are_those_that_were_asked_for() -> None:
    config = make_config()
    strange = replace(config, training=replace(config.training, device="cuda", precision="bf16"))
    report = training_report({"a": (strange, make_corpus())}, "cpu", rounds=1, most=0)
    assert [speed.precision for speed in report.trainings["a"].speeds] == ["fp32", "bf16"]
    assert report.started["device"] == "cpu"


def test_another_corpus_and_any_file_that_there_is(cli: Cli, config: Path) -> None:
    plain = config.rename(config.with_name("mine"))
    (config.parent / "text.txt").write_text(TEXT * 2)
    result = cli("bench", plain, "--corpus", config.parent / "text.txt", "--device", "cpu", "--rounds", 1, "--json")
    (training,) = json.loads(result.out)["trainings"].values()
    assert training["config"]["data"]["corpus"] == str(config.parent / "text.txt") and training["vocabulary_size"] == 10
