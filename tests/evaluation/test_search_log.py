"""A search for η and λ that is stopped loses one reading; nothing is taken for what it is not."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from spanlm.evaluation.astray import astray
from spanlm.evaluation.search_log import SearchLog, digest_of, segments_digest
from spanlm.runs.gate import TemperedModel

import spanlm
from spanlm.evaluation import dynamic as dynamic_module
from spanlm.evaluation import search_log as log_module
from spanlm.evaluation.dynamic import logged_reading
from spanlm.evaluation.dynamic.evaluate import DivergedError, adapted_tally, evaluate_dynamic
from spanlm.evaluation.dynamic.statistics import DynamicStatistics, gather_statistics
from spanlm.evaluation.dynamic.tuning import tune_dynamic
from spanlm.evaluation.dynamic.update import DynamicConfig
from spanlm.evaluation.perplexity import evaluation_batcher
from spanlm.evaluation.scoring import Tally
from spanlm.models.memories.span_buffer import RewardConfig
from spanlm.runs import trained_model as tuning_module
from spanlm.runs.trained_model import TrainedModel

GRID: dict[str, Any] = {"rates": [0.0005, 0.002], "decays": [0.0, 0.02], "epsilon": 0.001}
BEST = DynamicConfig(rate=0.002, decay=0.02, epsilon=0.001)


@pytest.fixture(params=["tiny_run", "span_run"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> TrainedModel:
    return spanlm.load(shutil.copytree(request.getfixturevalue(request.param), tmp_path / "run"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float, int | None]]:
    """η, λ and how much, of everything that is really read."""
    calls: list[tuple[float, float, int | None]] = []
    tally: Callable[..., Tally] = adapted_tally

    def counted(*arguments: Any, **how: Any) -> Tally:
        calls.append((arguments[3].rate, arguments[3].decay, how["most"]))
        return tally(*arguments, **how)

    monkeypatch.setattr(dynamic_module, "adapted_tally", counted)
    return calls


def logs(model: TrainedModel) -> list[Path]:
    return sorted(model.folder.glob("dynamic-search/*"))


def stop_in(point: int) -> Callable[[str, int, int], None]:
    def report(what: str, done: int, total: int) -> None:
        if what.startswith(f"point {point} ") and done > 10:
            raise KeyboardInterrupt

    return report


def stopped(model: TrainedModel, point: int, **changes: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        model.tune_dynamic(**GRID | changes, report=stop_in(point))


def test_a_search_goes_on_where_it_was_stopped(model: TrainedModel, reads: list[Any]) -> None:
    expected = model.tune_dynamic(**GRID)
    assert len(reads) == 4 and not logs(model)
    reads.clear()
    stopped(model, 3)
    assert len(reads) == 3 and len(logs(model)) == 2
    reads.clear()
    again = spanlm.load(model.folder).tune_dynamic(**GRID)
    assert again == expected
    assert [(rate, decay) for rate, decay, _ in reads] == [(0.002, 0.0), (0.002, 0.02)]
    assert not (model.folder / "dynamic-search").exists(), "the search is over"


def test_what_a_search_has_read_is_not_read_again_to_be_reported(model: TrainedModel, reads: list[Any]) -> None:
    log = model.search_log()
    tuning = model.tune_dynamic(**GRID, log=log)
    reads.clear()
    found = model.evaluate(split="valid", dynamic=tuning.best, log=log)
    assert not reads and found.perplexity == tuning.perplexity
    expected = model.evaluate(split="valid", dynamic=tuning.best)
    assert len(reads) == 1
    assert found.tokens_per_second > 0
    assert replace(found, tokens_per_second=0.0, without_dynamic=None) == replace(
        expected, tokens_per_second=0.0, without_dynamic=None
    )
    assert model.evaluate(split="test", dynamic=tuning.best, log=log).split == "test" and len(reads) == 2
    log.remove()
    assert not logs(model)


def test_after_a_stop_what_is_reported_is_the_same(model: TrainedModel) -> None:
    """Sums of both parts, those of <unk> and of first words with it."""
    expected = model.evaluate(split="valid", dynamic=BEST)
    first = model.search_log()
    model.evaluate(split="valid", dynamic=BEST, log=first)
    second = spanlm.load(model.folder).search_log()
    found = model.evaluate(split="valid", dynamic=BEST, log=second)
    assert (first.before, second.before) == (0, 1) and second.seconds_before > 0
    assert replace(found, tokens_per_second=0.0, without_dynamic=None) == replace(
        expected, tokens_per_second=0.0, without_dynamic=None
    )


def other_weights(model: TrainedModel) -> None:
    with torch.no_grad():
        next(iter(model.model.parameters())).add_(1e-3)


def fewer_learn(model: TrainedModel) -> None:
    next(iter(model.model.parameters())).requires_grad_(False)


def fewer_statistics(model: TrainedModel) -> dict[str, Any]:
    return {"statistics": gather_statistics(model.model, model.corpus(), kind="documents", segments=1)}


CHANGES: dict[str, Callable[[TrainedModel, pytest.MonkeyPatch], dict[str, Any] | None]] = {
    "weights": lambda model, _: other_weights(model),
    "statistics": lambda model, _: fewer_statistics(model),
    "ε": lambda model, _: {"epsilon": 0.002},
    "length": lambda model, _: {"length": 4},
    "precision": lambda model, _: {"precision": "bf16"},
    "text": lambda model, _: {"split": "test"},
    "where the state begins anew": lambda model, _: {"state": "line"},
    "code": lambda model, patch: patch.setattr(tuning_module, "LOADED", "another"),
    "machine": lambda model, patch: patch.setattr(tuning_module, "machine", lambda device: {"threads": 99}),
    "arithmetic": lambda model, patch: patch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16"),
    "what learns": lambda model, _: fewer_learn(model),
}


@pytest.mark.parametrize("what", CHANGES)
def test_nothing_is_taken_for_what_it_is_not(
    tiny_run: Path, tmp_path: Path, reads: list[Any], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    model = spanlm.load(shutil.copytree(tiny_run, tmp_path / "run"))
    stopped(model, 4)
    before = {path: path.read_bytes() for path in logs(model)}
    assert len(before) == 3
    reads.clear()
    changes = CHANGES[what](model, monkeypatch) or {}
    model.tune_dynamic(**GRID | changes)
    assert len(reads) == 4
    assert {path: path.read_bytes() for path in logs(model)} == before, "they are another search's"


def test_a_log_knows_the_weights_of_now(model: TrainedModel, reads: list[Any]) -> None:
    log, statistics = model.search_log(), model.dynamic_statistics()
    first = model.evaluate(split="valid", dynamic=BEST, statistics=statistics, log=log)
    other_weights(model)
    found = model.evaluate(split="valid", dynamic=BEST, statistics=statistics, log=log)
    assert len(reads) == 2 and found.nll != first.nll


def test_another_configuration_is_another_model(span_run: Path) -> None:
    model = spanlm.load(span_run)
    memory = replace(model.config.model.memory, reward=RewardConfig(weight=0.7))  # type: ignore[call-arg]
    config = replace(model.config, model=replace(model.config.model, memory=memory))
    other = TrainedModel(model.model, model.vocabulary, config, model.folder)
    logs = [each.search_log() for each in (model, other)]
    for log in logs:
        log.reading("the same", {}, lambda: Tally(1, 1.0))
    assert [log.before for log in logs] == [0, 0]
    assert logs[0].kept == logs[1].kept == 1
    for log in logs:
        log.remove()


def test_code_that_changed_while_it_ran_is_kept_in_nobodys_name(
    model: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanlm.store.code.LOADED", "what this process loaded")
    log = model.search_log()
    log.reading("a", {}, lambda: Tally(1, 1.0))
    assert log.folder is None and not logs(model)
    assert log.unkept == "the package's code on the disk is no longer what this process runs"


def a_reading(model: TrainedModel, log: SearchLog, statistics: DynamicStatistics, **how: Any) -> None:
    batcher = evaluation_batcher(model.corpus(), "valid", "streams", 1, None, 5)
    unk_id = how.pop("unk_id", 0)
    logged_reading(log, model.model, batcher, statistics, DynamicConfig(), unk_id, **how)


def test_what_else_is_part_of_a_reading(span_run: Path, tmp_path: Path, reads: list[Any]) -> None:
    model = spanlm.load(shutil.copytree(span_run, tmp_path / "run"))
    tempered, statistics, log = TemperedModel(model, 3.0), model.dynamic_statistics(), SearchLog()
    for _ in range(2):
        a_reading(model, log, statistics)
        a_reading(model, log, statistics, unk_id=1)
        a_reading(model, log, statistics, most=10)
        a_reading(model, log, statistics, most=11)
        a_reading(tempered, log, replace(statistics, gate_temperature=3.0))
    assert len(reads) == 5
    fewer_learn(model)
    a_reading(model, log, statistics)
    assert len(reads) == 6


@pytest.mark.parametrize("first_tokens", [20, 37])
def test_the_first_tokens_are_no_text_even_where_the_last_line_begins_in_them(
    tiny_run: Path, tiny_corpus: Path, tmp_path: Path, first_tokens: int
) -> None:
    """A line is one segment, cut only where it is read."""
    model, path = spanlm.load(shutil.copytree(tiny_run, tmp_path / "run")), tmp_path / "text.txt"
    words = (tiny_corpus / "valid.txt").read_text(encoding="utf-8").split()
    path.write_text(" ".join(words[:9]) + "\n" + " ".join(words[9:49]) + "\n", encoding="utf-8")
    (text, part), statistics = model.part(str(path), "test"), model.dynamic_statistics()
    log = SearchLog()
    grid = [BEST, replace(BEST, rate=0.01)]
    given: tuple[Any, ...] = (model.model, text, part, statistics)
    how: dict[str, Any] = {"kind": "sentences", "predict_first": model.opened}
    tuning = tune_dynamic(*given, grid, first_tokens=first_tokens, finalists=2, log=log, **how)
    expected = evaluate_dynamic(*given, tuning.best, **how)
    found = evaluate_dynamic(*given, tuning.best, log=log, **how)
    assert (found.nll, found.tokens) == (expected.nll, expected.tokens) and tuning.perplexity == expected.perplexity
    assert expected.tokens > tuning.first_tokens


def test_another_searchs_readings_stay(model: TrainedModel, reads: list[Any]) -> None:
    stopped(model, 4)
    model.tune_dynamic(rates=[0.0005], decays=[0.1], epsilon=0.5)
    assert len(logs(model)) == 3
    reads.clear()
    model.tune_dynamic(**GRID)
    assert len(reads) == 1 and not logs(model)


def test_the_loss_is_part_of_it(span_run: Path, tmp_path: Path, reads: list[Any]) -> None:
    model = spanlm.load(shutil.copytree(span_run, tmp_path / "run"))
    stopped(model, 4)
    reads.clear()
    model.tune_dynamic(**GRID, loss="training")
    assert len(reads) == 4


def test_a_wider_grid_goes_on_with_what_it_shares(model: TrainedModel, reads: list[Any]) -> None:
    stopped(model, 4)
    reads.clear()
    model.tune_dynamic(**GRID | {"rates": [0.0005, 0.001, 0.002]})
    assert sorted((rate, decay) for rate, decay, _ in reads) == [(0.001, 0.0), (0.001, 0.02), (0.002, 0.02)]


def test_a_search_that_goes_astray_is_over(model: TrainedModel, reads: list[Any]) -> None:
    ruinous = GRID | {"rates": [1e4, 1e30]}
    stopped(model, 4, **ruinous)
    found = [json.loads(path.read_text(encoding="utf-8")) for path in logs(model)]
    assert {(line["rate"], line["decay"]) for line in found} == {(1e4, 0), (1e4, 0.02), (1e30, 0)}
    assert all(line["command"] and line["time"] for line in found), "who read"
    reads.clear()
    with pytest.raises(DivergedError):
        model.tune_dynamic(**ruinous)
    assert len(reads) == 1 and not logs(model)


def test_what_a_search_chose_outlives_a_text_that_goes_astray_at_it(model: TrainedModel) -> None:
    log = model.search_log()
    with pytest.raises(DivergedError) as raised, log.until_over():
        log.reading("a", {}, lambda: Tally(1, 1.0))
        raise astray(BEST, Tally(7, math.inf))
    assert not raised.value.details and len(logs(model)) == 1
    with pytest.raises(DivergedError), log.until_over():
        raise DivergedError("at every point", {"grid": []})
    assert not logs(model)


def test_a_command_that_is_no_utf_8_is_kept(model: TrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Linux hands over bytes that are none."""
    monkeypatch.setattr(sys, "argv", ["spanlm", os.fsdecode(b"t\xe9ny")])
    log = model.search_log()
    log.reading("a", {}, lambda: Tally(1, 1.0))
    assert (log.kept, log.refused) == (1, None)
    again = model.search_log()
    assert again.reading("a", {}, lambda: pytest.fail("it is known")).total == Tally(1, 1.0)


def test_what_a_kill_left_half_written_goes_with_the_search(model: TrainedModel) -> None:
    log = model.search_log()
    log.reading("a", {}, lambda: Tally(1, 1.0))
    (path,) = logs(model)
    path.with_name(f"{path.name}.0123456789abcdef.unfinished").write_text("half")
    log.remove()
    assert not (model.folder / "dynamic-search").exists()


def sealed(values: dict[str, Any]) -> str:
    del values["sha256"]
    return json.dumps({**values, "sha256": digest_of(values)})


def with_sums(text: str, **changes: Any) -> str:
    values = json.loads(text)
    return sealed({**values, "sums": values["sums"] | changes})


DAMAGE: dict[str, Callable[[str], str]] = {
    "half": lambda text: text[: len(text) // 2],
    "nothing": lambda text: "",
    "a digit": lambda text: text.replace('"nll": "', '"nll": "1'),
    "another η": lambda text: text.replace('"rate": ', '"rate": 1'),
    "no seal": lambda text: text.replace("sha256", "sha255"),
    "a list": lambda text: "[]",
    "a number": lambda text: "5",
    "depth": lambda text: "[" * 100_000,
    "zero bytes": lambda text: "\x00" * 50,
    "no metrics": lambda text: with_sums(text, metrics=5),
    "metrics of a list": lambda text: with_sums(text, metrics=[]),
    "no tokens": lambda text: with_sums(text, tokens="0"),
    "no number": lambda text: with_sums(text, nll=[]),
    "no time": lambda text: sealed({**json.loads(text), "seconds": 0.0}),
    "less than no time": lambda text: sealed({**json.loads(text), "seconds": -1.0}),
    "too much time": lambda text: sealed({**json.loads(text), "seconds": 10**400}),
    "another key": lambda text: sealed({**json.loads(text), "key": "another"}),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_not_as_it_was_written_is_read_anew(tmp_path: Path, damage: str) -> None:
    folder, total = tmp_path / "log", Tally(7, 3.5)
    SearchLog(folder).reading("a", {"rate": 1.0}, lambda: total)
    (path,) = folder.iterdir()
    whole = path.read_text(encoding="utf-8")
    damaged = DAMAGE[damage](whole)
    assert damaged != whole
    path.write_text(damaged, encoding="utf-8")
    log = SearchLog(folder)
    assert log.reading("a", {"rate": 1.0}, lambda: total).total == total and (log.before, log.kept) == (0, 1)
    again = SearchLog(folder)
    assert again.reading("a", {}, lambda: pytest.fail("it is known")).total == total and again.before == 1


def test_a_folder_that_cannot_be_written_hinders_nothing(model: TrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = model.tune_dynamic(**GRID)

    def refused(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    log = model.search_log()
    with monkeypatch.context() as patch:
        patch.setattr(log_module, "replace_file", refused)
        assert model.tune_dynamic(**GRID, log=log) == expected
    assert not logs(model) and log.kept == 0 and log.refused is not None
    log.remove()


KILLED = """
import os, signal, sys
import spanlm
from spanlm.evaluation import dynamic
tally, begun = dynamic.adapted_tally, []
def read(*arguments, **how):
    begun.append(1)
    if len(begun) == 3:
        how["report"] = lambda tokens: os.kill(os.getpid(), signal.SIGKILL)
    return tally(*arguments, **how)
dynamic.adapted_tally = read
spanlm.load(sys.argv[1]).tune_dynamic(rates=[0.0005, 0.002], decays=[0.0, 0.02], epsilon=0.001)
"""


def test_a_process_that_is_killed_has_kept_what_it_read(tiny_run: Path, tmp_path: Path, reads: list[Any]) -> None:
    model = spanlm.load(shutil.copytree(tiny_run, tmp_path / "run"))
    expected = model.tune_dynamic(**GRID)
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run([sys.executable, "-c", KILLED, str(model.folder)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(logs(model)) == 2
    reads.clear()
    assert model.tune_dynamic(**GRID) == expected
    assert len(reads) == 2


def test_a_text_that_differs_in_its_last_word_is_another(
    tiny_run: Path, tiny_corpus: Path, tmp_path: Path, reads: list[Any]
) -> None:
    model = spanlm.load(shutil.copytree(tiny_run, tmp_path / "run"))
    words = (tiny_corpus / "valid.txt").read_text(encoding="utf-8").split(" ")
    path = tmp_path / "text.txt"
    for last in ("the", "cat"):
        path.write_text(" ".join([*words[:40], last]) + "\n", encoding="utf-8")
        with pytest.raises(KeyboardInterrupt):
            model.tune_dynamic(str(path), **GRID, report=stop_in(4))
        assert len(reads) == 4
        reads.clear()
    with pytest.raises(KeyboardInterrupt):
        model.tune_dynamic(str(path), **GRID, report=stop_in(4))
    assert len(reads) == 1


@pytest.mark.parametrize("nll", [0.1 + 0.2, math.inf, math.nan, 1e308, 5e-324])
@pytest.mark.parametrize("metrics", [{}, {"steps": 3.0, "buffer_nll": math.inf, "reward": -1 / 3, "gate": 1e-9}])
def test_every_bit_of_a_reading_is_kept(tmp_path: Path, nll: float, metrics: dict[str, float]) -> None:
    total = Tally(7, nll, 2, 1 / 3, 1, 2 / 3, metrics)
    log = SearchLog(tmp_path / "log")
    log.reading("a", {"rate": 1.0}, lambda: total)
    again = SearchLog(tmp_path / "log")
    found = again.reading("a", {}, lambda: pytest.fail("it is known"))
    assert repr(found.total) == repr(total)
    assert (again.before, again.kept, log.before, log.kept) == (1, 1, 0, 1)
    (path,) = (tmp_path / "log").iterdir()
    json.loads(path.read_bytes(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_the_digest_of_a_text_is_that_of_its_segments(model: TrainedModel) -> None:
    """The same words that begin elsewhere are another text."""
    corpus = model.corpus()

    def found(split: str, kind: str, length: int) -> str:
        return segments_digest(evaluation_batcher(corpus, split, kind, 1, None, length))  # type: ignore[arg-type]

    which = [(split, "streams", length) for split in ("valid", "test") for length in (4, 5)]
    which += [(split, "sentences", 5) for split in ("valid", "test")]
    assert len({found(*one) for one in which}) == len(which)
    assert found("valid", "streams", 5) == found("valid", "streams", 5)


def test_where_the_state_begins_anew_is_part_of_a_text(model: TrainedModel) -> None:
    batcher = evaluation_batcher(model.corpus(), "valid", "streams", 1, None, 5)
    segments = list(batcher.segments())
    changes: dict[str, Any] = {"reset": ~segments[3].reset, "mask": ~segments[3].mask, "inputs": segments[3].inputs + 1}
    for name, value in changes.items():
        changed = [*segments[:3], replace(segments[3], **{name: value}), *segments[4:]]
        other = SimpleNamespace(segments=lambda changed=changed: iter(changed))
        assert segments_digest(other) != segments_digest(batcher), name  # type: ignore[arg-type]
