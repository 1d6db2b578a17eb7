"""Several tasks of a plan at a time: the records of one after another, and none outlives a stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spanlm.errors import InputError
from spanlm.evaluation.lessons import Report, quiet
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


def test_records_are_those_of_one_after_another(tiny_corpus: Path) -> None:
    one, many = plan(tiny_corpus), plan(tiny_corpus, runs=Path("other-runs"), out=Path("other-results"))
    begun: list[str] = []
    found = list(run_side_by_side(many, 2, lambda task: begun.append(label(many, task))))
    assert begun == [task.row for task in many.tasks] == ["medium", "medium", "medium-x2"]
    assert numbers(found) == pytest.approx(numbers(list(run_plan(one))), rel=1e-6)
    assert all(outcome.job.record.exists() and not outcome.done_before for outcome in found)
    assert all(outcome.done_before for outcome in run_plan(many))


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
def killed(name: str) -> Iterator[tuple[Watcher, Report]]:
    """End the process of one of the tasks in its first step, as the system does when memory is short."""

    class Kill(Watcher):
        def step(self, event: StepEvent) -> None:
            os.kill(os.getpid(), signal.SIGKILL if name == "medium, seed 1" else 0)

    yield Kill(), quiet


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


def test_nothing_is_started_after_the_reader_is_gone(tiny_corpus: Path) -> None:
    begun: list[Task] = []
    outcomes = run_side_by_side(plan(tiny_corpus), 1, begun.append)
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    assert len(begun) == 1


def started() -> tuple[subprocess.Popen[str], list[int]]:
    """Start two long runs; give them when both are training, and their processes."""
    command = [sys.executable, "-m", "spanlm", "reproduce", "daniluk2017", "--table", "2b", "--corpus", "demo"]
    command += ["--scale", "small", "--rows", "2-gram", "3-gram", "--jobs", "2", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    session: dict[str, Any] = {"start_new_session": True}  # a terminal's Ctrl-C is for every process of it
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **session
    )
    assert process.stdout is not None
    waiting = {"2-gram  epoch ", "3-gram  epoch "}
    for line in process.stdout:
        waiting = {name for name in waiting if not line.startswith(name)}
        if not waiting:
            break
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return process, [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to find processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_a_stop_and_their_state_is_saved(number: signal.Signals) -> None:
    process, children = started()
    assert len(children) == 2 and all(map(alive, children))
    if number == signal.SIGKILL:
        process.kill()
    else:
        os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=60)
    if number == signal.SIGKILL:
        end = time.monotonic() + 60
        while any(map(alive, children)) and time.monotonic() < end:
            time.sleep(0.1)
    else:
        assert process.returncode == 128 + number
        said = f"spanlm: stopped by {number.name}; every run is saved as far as it came. The same command goes on\n"
        assert errors == said
    assert not any(map(alive, children))
    for row in ("2-gram", "3-gram"):
        assert list(Path(f"runs/daniluk2017/demo-small/{row}/seed-1/checkpoints").iterdir())
