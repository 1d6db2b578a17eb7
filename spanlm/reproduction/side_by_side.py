"""Running a plan with several tasks at a time, each in a process of its own with its share of the threads.

A small model does not keep many threads busy: two trainings side by side on one core each are done sooner than one
after the other on two. Numbers differ in rounding from those of a run with all threads, as they do wherever the number
of threads does.

A process gets the request and the number of its task, and makes the plan anew. It stops as a run in the foreground
does at SIGTERM, a training saving its state, when the process that started it says so or has ended.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import torch

from spanlm.errors import Interrupted, SpanlmError, require
from spanlm.evaluation.scoring import Report, quiet
from spanlm.reproduction.plan import Plan, make_plan
from spanlm.reproduction.request import Request
from spanlm.reproduction.run import Outcome, attempt, done_before, needed, prepare
from spanlm.reproduction.tasks import Task
from spanlm.store.processes import SPAWN, follow_parent, starting
from spanlm.training.events import Watcher
from spanlm.training.signals import StopRequest, stop_request

Showing = Callable[[str], AbstractContextManager[tuple[Watcher, Report]]]
"""Given a task's label, what shows its progress; called in the task's process, so it must be importable by name."""

_Running = tuple[Task, SpawnProcess]

_PATIENCE = 0.2
"""Seconds between two looks at whether a signal came."""


@contextmanager
def quietly(label: str) -> Iterator[tuple[Watcher, Report]]:
    """Show nothing."""
    yield Watcher(), quiet


def run_side_by_side(
    plan: Plan, jobs: int, started: Callable[[Task], None] = lambda task: None, showing: Showing = quietly
) -> Iterator[Outcome]:
    """Do what is not done, `jobs` tasks at a time, the plan's last first; give each outcome when it is there.

    As in `run_plan`, a task that fails stops only those that need it. A script that calls this must not do so on being
    imported (`if __name__ == "__main__":`), for its processes import it.

    Args:
        plan: what to do.
        jobs: how many tasks at a time. On a GPU they share it.
        started: told of every task before it starts.
        showing: opened in every task's process.

    Raises:
        InputError: jobs below 1, or as `run_plan`; nothing was run or written.
        Interrupted: Ctrl-C or SIGTERM; trainings are saved and go on at the same request.
    """
    require(jobs >= 1, "--jobs", jobs, "at least 1")
    prepare(plan)
    coming: list[Task] = []
    for task in plan.tasks:
        outcome = done_before(task, plan.text_of(task))
        if outcome is None:
            coming.append(task)
        else:
            started(task)
            yield outcome
    # Each has the same share whatever is done already: with other threads numbers round otherwise, so what was stopped
    # would go on as another computation, and a search would not know its own readings.
    threads = max(1, torch.get_num_threads() // min(jobs, len(plan.tasks)))
    # Papers go from the plainest system to the most involved, which takes longest: begun last, it would run alone.
    yield from _run(plan, coming[::-1], jobs, threads, started, showing)


def _run(
    plan: Plan, coming: list[Task], jobs: int, threads: int, started: Callable[[Task], None], showing: Showing
) -> Iterator[Outcome]:
    """Do tasks of a plan; those that they need are among them or done."""
    failed, running = set[Task](), dict[Connection, _Running]()
    with stop_request() as stop, _ending(running):
        while coming or running:
            waited_for = {*coming, *(task for task, _ in running.values())}
            for task in [task for task in coming if waited_for.isdisjoint(needed(task))][: jobs - len(running)]:
                coming.remove(task)
                if failed.isdisjoint(needed(task)):
                    started(task)
                    _start(plan, task, threads, showing, running)
                else:
                    failed.add(task)
                    yield attempt(task, plan, failed)  # which says what it lacks
            _stop_if_asked(stop)
            for connection in wait(list(running), _PATIENCE):
                assert isinstance(connection, Connection)
                outcome = _outcome(connection, *running.pop(connection))
                if outcome.error:
                    failed.add(outcome.job)
                _stop_if_asked(stop)
                yield outcome


def _stop_if_asked(stop: StopRequest) -> None:
    if stop.signal_number is not None:
        name = signal.Signals(stop.signal_number).name
        said = "trainings are saved as far as they came, searches up to their last reading"
        raise Interrupted(f"stopped by {name}; {said}", stop.signal_number)


def _start(plan: Plan, task: Task, threads: int, showing: Showing, running: dict[Connection, _Running]) -> None:
    """Start a task, and note it under the connection on which its result will come."""
    ours, theirs = SPAWN.Pipe(duplex=False)
    arguments = (theirs, plan.request, plan.tasks.index(task), threads, showing)
    process = SPAWN.Process(target=_work, args=arguments, daemon=True)
    with starting():
        process.start()
        running[ours] = task, process
    theirs.close()  # so that its end is seen here


@contextmanager
def _ending(running: dict[Connection, _Running]) -> Iterator[None]:
    """Let no process outlive the work: those that still run are told to stop, and a training saves what it has."""
    try:
        yield
    finally:
        for connection, (_, process) in running.items():
            connection.close()  # or it might wait for its result to be read
            process.terminate()
        for _, process in running.values():
            process.join()


def _outcome(connection: Connection, task: Task, process: SpawnProcess) -> Outcome:
    """Return what a process found, or say how it ended."""
    with connection:
        try:
            record, error, before, seconds = connection.recv()
        except (EOFError, OSError):  # nothing, or half of it
            process.join()
            return Outcome(task, None, _died(process.exitcode))
        process.join()
    return Outcome(task, record, error, before, seconds)


def _died(code: int | None) -> str:
    if code is None or code >= 0:
        return f"its process ended with status {code}"
    names = {number.value: number.name for number in signal.Signals}
    name = names.get(-code, f"signal {-code}")
    return f"its process was ended by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"


def _work(connection: Connection, request: Request, number: int, threads: int, showing: Showing) -> None:
    """Do one task, in its own process."""
    follow_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    torch.set_num_threads(threads)
    with suppress(BrokenPipeError):  # told to stop: nobody waits for it
        connection.send(_result(request, number, showing))


def _result(request: Request, number: int, showing: Showing) -> tuple[dict[str, object] | None, str, bool, float]:
    """Return what `Outcome` has beside the task."""
    try:
        plan = make_plan(request)
        task = plan.tasks[number]
        with showing(label(plan, task)) as (watcher, report):
            outcome = attempt(task, plan, (), watcher, lambda: nullcontext(report))
    except SpanlmError as error:  # the text has changed since; or this process alone was stopped
        return None, str(error), False, 0.0
    return outcome.record, outcome.error, outcome.done_before, outcome.seconds


def label(plan: Plan, task: Task) -> str:
    """Name a task shortly: by its row, and where there are several seeds by these."""
    return task.row if len(plan.request.seeds) == 1 else f"{task.row}, {task.seeds}"
