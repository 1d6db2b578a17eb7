"""Running a plan: skip what is finished, go on with what is not, survive what fails; alone and several at a time."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.errors import InputError, Interrupted
from spanlm.jobs import Engine
from spanlm.papers.page import Page
from spanlm.papers.plan import Plan
from spanlm.papers.run import Estimator, Outcome, Run, finished_before
from spanlm.training.progress import EpochEvent, Watcher
from tests.papers.records import plan, salton


def outcomes(made: Plan) -> list[Outcome]:
    return list(Run(made).outcomes())


def test_a_record_says_what_ran_and_has_what_an_evaluation_by_hand_gives(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, "2-gram")
    (outcome,) = outcomes(made)
    (job,), record = made.jobs, outcome.record
    assert record is not None and json.loads(job.record.read_text()) == record
    assert record["config"] == replace(job.config, data=replace(job.config.data, corpus="tiny")).to_tree()
    assert record["epochs"] == record["best_epoch"] == 1 and record["units"] == 2 * record["readout"]
    assert str(tiny_corpus) not in job.record.read_text()
    model = spanlm.load(job.folder, "cpu")
    for split in ("valid", "test"):
        assert record[split]["nll"] == pytest.approx(model.evaluate(split=split).nll, rel=1e-12)


def test_what_is_finished_needs_neither_its_run_nor_the_same_place(tiny_corpus: Path, tmp_path: Path) -> None:
    made = plan(tiny_corpus, "2-gram", "3-gram")
    first = outcomes(made)
    shutil.rmtree("runs")
    other = tmp_path / "elsewhere" / "tiny"
    shutil.copytree(tiny_corpus, other)
    for again in (made, plan(other, "2-gram", "3-gram", device="auto", data_dir="x")):
        second = outcomes(again)
        assert all(outcome.done_before for outcome in second)
        assert [outcome.record for outcome in second] == [outcome.record for outcome in first]
    others = plan(tiny_corpus, "2-gram", seeds=(2,))
    found = [f"{one.task.row.name}, {one.task.seeds}" for one in finished_before(others)]
    assert found == ["2-gram, seed 1", "3-gram, seed 1"]


def test_a_record_of_another_text_is_refused(tiny_corpus: Path, tmp_path: Path) -> None:
    """Also where its parts are as long and have as many words."""
    corpus = shutil.copytree(tiny_corpus, tmp_path / "changing" / "tiny")
    outcomes(plan(corpus, "2-gram"))
    lines = (corpus / "train.txt").read_text().splitlines(keepends=True)
    (corpus / "train.txt").write_text("".join(lines[::-1]))
    with pytest.raises(InputError, match=r"is the result of another run: text\.train was"):
        outcomes(plan(corpus, "2-gram", "3-gram"))


def test_an_epoch_that_is_missing_in_the_log_is_no_record(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, "2-gram")
    outcomes(made)
    made.jobs[0].record.unlink()
    (made.jobs[0].folder / "metrics.jsonl").write_text("")
    (again,) = outcomes(made)
    assert "has 0 of 1 epochs" in again.error and not made.jobs[0].record.exists()


def test_a_stopped_run_goes_on_where_it_was(tiny_corpus: Path) -> None:
    class Stop(Watcher):
        def epoch(self, event: EpochEvent) -> None:
            raise Interrupted("stopped", 2)

    made = plan(tiny_corpus, "2-gram", "3-gram")
    with pytest.raises(Interrupted):
        list(Run(made, Stop()).outcomes())
    weights = made.jobs[0].folder / "model.safetensors"
    before = weights.stat().st_mtime_ns
    assert not made.jobs[0].record.exists() and all(outcome.record for outcome in outcomes(made))
    assert weights.stat().st_mtime_ns == before, "the finished epoch was trained again"


def test_what_cannot_end_well_is_refused_before_anything_runs(tiny_corpus: Path, tmp_path: Path) -> None:
    text = tmp_path / "tiny"
    shutil.copytree(tiny_corpus, text)
    outcomes(plan(text, "2-gram"))
    with pytest.raises(InputError, match=r"2-gram-seed-1\.json.*training\.precision was fp32, not bf16"):
        outcomes(plan(text, precision="bf16"))
    with (text / "test.txt").open("a") as file:
        file.write("the cat sat\n")
    with pytest.raises(InputError, match=r"test\.tokens was"):
        outcomes(plan(text))
    Path("taken").write_text("")
    for option in ("runs", "out"):
        with pytest.raises(InputError, match=f"^{option}=taken"):
            outcomes(plan(tiny_corpus, "3-gram", **{"runs": Path("r"), "out": Path("o"), option: Path("taken")}))
    assert not Path("runs/daniluk2017/tiny-smoke/3-gram").exists()


def test_a_file_that_is_no_record_is_left_alone(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, "2-gram")
    outcomes(made)
    path = made.jobs[0].record
    whole = json.loads(path.read_text())
    damaged = [json.dumps({k: v for k, v in whole.items() if k != lost}) for lost in ("test", "starts", "config")]
    for content in (*damaged, "", "{", "[]", "{}", '{"config": 3}', "[" * 10_000):
        path.write_text(content)
        with pytest.raises(InputError, match=r"2-gram-seed-1\.json: is not a record of a run"):
            outcomes(made)
        assert path.read_text() == content


def test_a_measure_that_is_missing_is_added_without_training_or_testing_again(tiny_corpus: Path) -> None:
    (first,) = outcomes(plan(tiny_corpus, "kvp-w15", table="2a"))
    made = plan(tiny_corpus, "kvp-w15", table="3")
    runs = made.jobs[0].folder
    shutil.move(runs, "away")
    (refused,) = outcomes(made)
    assert "away to train again" in refused.error and "attention" in refused.error
    assert refused.record == first.record, "what was measured stays in the other tables"
    page = Page(made, made.tables[0], [refused])
    assert not page.filled.lines and "**failed**" in page.markdown()
    shutil.move("away", runs)
    (second,) = outcomes(made)
    assert first.record is not None and second.record is not None, second
    assert sum(second.record["attention"]["percent"]) == pytest.approx(100)
    assert {**second.record, "attention": None} == {**first.record, "attention": None}


@pytest.mark.slow
def test_side_by_side_a_task_that_fails_stops_only_what_needs_it(tiny_corpus: Path) -> None:
    made = salton(tiny_corpus, "medium-x2", "lstm-ptb", seeds=(1, 2))
    blocked = made.jobs[0].folder
    blocked.parent.mkdir(parents=True)
    blocked.write_text("in the way")
    found = {outcome.task: outcome for outcome in Run(made).outcomes(Engine(jobs=2))}
    errors = {f"{task.row.name}, {task.seeds}": found[task].error for task in made.tasks}
    assert "seed-1" in errors.pop("medium, seed 1") and "runs failed" not in found[made.tasks[0]].error
    assert errors.pop("medium-x2, seeds 1 to 2") == "needs medium, seed 1, which failed"
    assert set(errors.values()) == {""}
    first = next(Run(made).outcomes(Engine(jobs=2)))
    assert first.done_before and first.record, "the first page of a run that goes on has what was finished"


@pytest.fixture
def long_runs() -> Iterator[subprocess.Popen[str]]:
    """Two long runs side by side, of which both are training."""
    asked = "--table 2b --corpus demo --scale small --rows 2-gram 3-gram --jobs 2 --device cpu"
    command = [sys.executable, "-m", "spanlm", "reproduce", "daniluk2017", *asked.split()]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as process:
        late = threading.Timer(400, os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        try:
            assert process.stdout is not None
            waiting = {"2-gram  epoch ", "3-gram  epoch "}
            for line in process.stdout:
                waiting = {name for name in waiting if not line.startswith(name)}
                if not waiting:
                    break
            yield process
        finally:
            late.cancel()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to find processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_a_stop_and_their_state_is_saved(
    number: signal.Signals, long_runs: subprocess.Popen[str]
) -> None:
    tasks = Path(f"/proc/{long_runs.pid}/task").iterdir()
    children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    assert len(children) == 2 and all(map(alive, children))
    long_runs.send_signal(number)
    _, errors = long_runs.communicate(timeout=240)
    end = time.monotonic() + 240
    while any(map(alive, children)) and time.monotonic() < end:  # what lost its reader ends with its next line
        time.sleep(0.1)
    assert not any(map(alive, children))
    if number != signal.SIGKILL:
        assert long_runs.returncode == 128 + number
        said = f"stopped by {number.name}; trainings and searches are saved. The same command goes on"
        assert errors == f"spanlm: {said}\n"
    for row in ("2-gram", "3-gram"):
        assert list(Path(f"runs/daniluk2017/demo-small/{row}/seed-1/checkpoints").iterdir())


def test_an_estimate_measures_each_kind_of_model_once_and_writes_nothing(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, paper="li2020", table="1")
    estimator = Estimator(made)
    found = {task: estimator(task) for task in made.tasks}
    assert all(seconds > 0 for seconds, _, _ in found.values())
    speeds = {task.row.name: found[task][2] * task.parameters.total for task in made.jobs}
    assert len({round(speed, 3) for speed in speeds.values()}) == 4, "one speed for each kind of model"
    training = made.jobs[0].config.training
    assert found[made.jobs[0]][1] == training.epochs + training.finetune.stages * training.finetune.epochs
    assert not list(Path().iterdir())
    one = made.jobs[0]
    twice = replace(one, parameters=replace(one.parameters, total=2 * one.parameters.total))
    assert estimator(twice)[0] == pytest.approx(2 * estimator(one)[0]), "a model twice as large"
    assert estimator(one) == found[one]
