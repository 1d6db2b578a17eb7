"""Several tasks of a plan at a time: the records of one after another, and none outlives a stop."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from spanlm.errors import InputError
from spanlm.evaluation.scoring import Report, quiet
from spanlm.reproduction import side_by_side as module
from spanlm.reproduction.plan import Plan, make_plan
from spanlm.reproduction.request import Request
from spanlm.reproduction.run import Outcome, run_plan
from spanlm.reproduction.side_by_side import label, run_side_by_side
from spanlm.reproduction.tasks import Task
from spanlm.training.events import StepEvent, Watcher

ENSEMBLE = ("medium-x2",)
"""Two trainings, and a measurement that needs both."""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def plan(corpus: Path, rows: tuple[str, ...] = ENSEMBLE, **changes: Any) -> Plan:
    request = {"paper": "salton2017", "table": "1", "corpus": str(corpus), "scale": "smoke", "device": "cpu"}
    return make_plan(Request(**{**request, "rows": rows, **changes}))


def numbers(outcomes: list[Outcome]) -> dict[str, float]:
    """Summed NLL of test by task."""
    assert not any(outcome.error for outcome in outcomes), outcomes
    return {f"{one.job.row}, {one.job.seeds}": (one.record or {})["test"]["nll"] for one in outcomes}


@pytest.mark.slow
def test_records_are_those_of_one_after_another(tiny_corpus: Path) -> None:
    one, many = plan(tiny_corpus), plan(tiny_corpus, runs=Path("other-runs"), out=Path("other-results"))
    begun: list[str] = []
    found = list(run_side_by_side(many, 2, lambda task: begun.append(label(many, task))))
    assert begun == [task.row for task in many.tasks] == ["medium", "medium", "medium-x2"]
    assert numbers(found) == pytest.approx(numbers(list(run_plan(one))), rel=1e-6)
    assert all(outcome.job.record.exists() and not outcome.done_before for outcome in found)
    assert all(outcome.done_before for outcome in run_plan(many))


@pytest.mark.slow
def test_the_last_training_of_a_plan_begins_first_and_what_needs_it_as_soon_as_it_can(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus)
    first, second, both = made.tasks
    begun: list[Task] = []
    assert [outcome.job for outcome in run_side_by_side(made, 1, begun.append)] == begun == [second, first, both]


@pytest.mark.slow
def test_what_is_done_needs_no_process_and_the_others_have_the_share_that_it_had(
    tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list(run_plan(plan(tiny_corpus, ("medium",))))
    made, shares = plan(tiny_corpus, ("medium",), seeds=(1, 2, 3)), []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 12)
    start = module._start
    monkeypatch.setattr(module, "_start", lambda *given: (shares.append(given[2]), start(*given))[1])
    found = list(run_side_by_side(made, 8))
    assert shares == [4, 4] and found[0] == replace(done[0], done_before=True, seconds=found[0].seconds)
    assert [(one.record or {})["starts"][0]["threads"] for one in found[1:]] == [4, 4]


@contextmanager
def stopped_in_search(name: str) -> Iterator[tuple[Watcher, Report]]:
    """Stop the process of a search in its second reading."""

    def stop(what: str, done: int, total: int) -> None:
        if what.startswith("point 2 "):
            os.kill(os.getpid(), signal.SIGTERM)

    yield Watcher(), stop


@pytest.mark.slow
def test_a_search_that_was_stopped_goes_on_though_fewer_tasks_are_left(
    tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its readings are those of a computation with as many threads."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    made = plan(tiny_corpus, ("awd-ptb", "awd-ptb-dynamic"), paper="li2020")
    trained, stopped = run_side_by_side(made, 2, showing=stopped_in_search)
    assert trained.record is not None and stopped.record is None
    trained, found = run_side_by_side(made, 2)
    assert trained.done_before
    assert (found.record or {})["details"]["read_before"] == 1


@pytest.mark.slow
def test_a_task_that_fails_stops_only_what_needs_it(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus)
    folder = made.jobs[0].folder
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    found = {outcome.job: outcome for outcome in run_side_by_side(made, 2)}
    first, second, both = (found[task] for task in made.tasks)
    assert "seed-1" in first.error and second.record is not None
    assert both.error == "needs medium, seed 1, which failed"


@contextmanager
def deaf(name: str) -> Iterator[tuple[Watcher, Report]]:
    """Send oneself a Ctrl-C, as a terminal sends it to all processes."""

    class CtrlC(Watcher):
        def step(self, event: StepEvent) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    os.kill(os.getpid(), signal.SIGINT)
    yield CtrlC(), quiet


def test_ctrl_c_is_for_the_parent_alone(tiny_corpus: Path) -> None:
    (outcome,) = run_side_by_side(plan(tiny_corpus, ("medium",)), 2, showing=deaf)
    assert outcome.record is not None, outcome.error


@contextmanager
def killed(name: str) -> Iterator[tuple[Watcher, Report]]:
    """End the process of one of the tasks in its first step, as the system does when memory is short."""

    class Kill(Watcher):
        def step(self, event: StepEvent) -> None:
            os.kill(os.getpid(), signal.SIGKILL if name == "medium, seed 1" else 0)

    yield Kill(), quiet


@pytest.mark.slow
def test_a_process_that_dies_is_a_failed_row(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, ("medium",), seeds=(1, 2))
    found = {outcome.job: outcome for outcome in run_side_by_side(made, 2, showing=killed)}
    dead, fine = (found[task] for task in made.tasks)
    assert dead.error == "its process was ended by SIGKILL (out of memory?)"
    assert fine.record is not None


def test_less_than_one_at_a_time_is_refused(tiny_corpus: Path) -> None:
    with pytest.raises(InputError, match="--jobs=0: must be at least 1"):
        next(run_side_by_side(plan(tiny_corpus), 0))


def test_tasks_are_named_by_their_seed_where_there_are_several(tiny_corpus: Path) -> None:
    def names(made: Plan) -> list[str]:
        return [label(made, task) for task in made.tasks]

    assert names(plan(tiny_corpus, ("medium",))) == ["medium"]
    assert names(plan(tiny_corpus, ("medium",), seeds=(1, 2))) == ["medium, seed 1", "medium, seed 2"]


@pytest.mark.slow
def test_nothing_goes_on_when_the_reader_is_gone(tiny_corpus: Path) -> None:
    outcomes = run_side_by_side(plan(tiny_corpus, ("medium",), seeds=(1, 2)), 2, showing=slowly)
    next(outcomes)
    assert len(multiprocessing.active_children()) == 1
    outcomes.close()  # type: ignore[attr-defined]
    assert multiprocessing.active_children() == []


@contextmanager
def slowly(name: str) -> Iterator[tuple[Watcher, Report]]:
    """Let one of two tasks take long."""

    class Wait(Watcher):
        def step(self, event: StepEvent) -> None:
            time.sleep(3 if name == "medium, seed 2" else 0)

    yield Wait(), quiet


@contextmanager
def changed(name: str) -> Iterator[tuple[Watcher, Report]]:
    raise InputError("the text has changed")
    yield


def test_what_is_refused_in_the_process_is_told(tiny_corpus: Path) -> None:
    (outcome,) = run_side_by_side(plan(tiny_corpus, ("medium",)), 1, showing=changed)
    assert (outcome.record, outcome.error) == (None, "the text has changed")


@pytest.fixture
def long_runs() -> Iterator[subprocess.Popen[str]]:
    """Two long runs side by side, of which both are training."""
    command = [sys.executable, "-m", "spanlm", "reproduce", "daniluk2017", "--table", "2b", "--corpus", "demo"]
    command += ["--scale", "small", "--rows", "2-gram", "3-gram", "--jobs", "2", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    session: dict[str, Any] = {"start_new_session": True}  # a terminal's Ctrl-C is for every process of it
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, **session) as process:
        late = threading.Timer(120, os.killpg, (process.pid, signal.SIGKILL))
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


def trainings(pid: int) -> list[int]:
    """The processes that one has started, but for the library's own."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


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
    children = trainings(long_runs.pid)
    assert len(children) == 2 and all(map(alive, children))
    if number == signal.SIGINT:
        os.killpg(long_runs.pid, number)
    else:
        long_runs.send_signal(number)
    if number == signal.SIGKILL:
        long_runs.wait()
        end = time.monotonic() + 60
        while any(map(alive, children)) and time.monotonic() < end:
            time.sleep(0.1)
    else:
        _, errors = long_runs.communicate(timeout=60)
        assert long_runs.returncode == 128 + number
        saved = "trainings are saved as far as they came, searches up to their last reading"
        assert errors == f"spanlm: stopped by {number.name}; {saved}. The same command goes on\n"
    assert not any(map(alive, children))
    for row in ("2-gram", "3-gram"):
        assert list(Path(f"runs/daniluk2017/demo-small/{row}/seed-1/checkpoints").iterdir())
