"""Running a plan with several tasks at a time, each in a process of its own with its share of the threads.

A small model does not keep many threads busy: two trainings side by side on one core each are done sooner than one
after the other on two. Numbers differ in rounding from those of a run with all threads, as they do wherever the number
of threads does.

A process gets the request and the number of its task, and makes the plan anew. It stops as a run in the foreground
does, saving its state, when the process that started it says so or is no longer there.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import torch

from spanlm.errors import Interrupted, require
from spanlm.evaluation.lessons import Report, quiet
from spanlm.reproduction.plan import Plan, make_plan
from spanlm.reproduction.request import Request
from spanlm.reproduction.run import Outcome, attempt, needed, prepare
from spanlm.reproduction.tasks import Task
from spanlm.training.events import Watcher
from spanlm.training.signals import stop_request

Showing = Callable[[str], AbstractContextManager[tuple[Watcher, Report]]]
"""Given a task's label, what shows its progress; called in the task's process, so it must be importable by name."""

_PATIENCE = 0.2
"""Seconds between two looks at whether a signal came."""


@contextmanager
def quietly(label: str) -> Iterator[tuple[Watcher, Report]]:
    """Show nothing."""
    yield Watcher(), quiet


@dataclass(frozen=True)
class _Running:
    task: Task
    process: SpawnProcess


def run_side_by_side(
    plan: Plan, jobs: int, started: Callable[[Task], None] = lambda task: None, showing: Showing = quietly
) -> Iterator[Outcome]:
    """Do what is not done, `jobs` tasks at a time; give each outcome when it is there, which is not the plan's order.

    As in `run_plan`, a task that fails stops only those that need it. A script that calls this must not do so on being
    imported (`if __name__ == "__main__":`), for its processes import it.

    Args:
        plan: what to do.
        jobs: how many tasks at a time.
        started: told of every task before it starts.
        showing: opened in every task's process.

    Raises:
        InputError: jobs below 1, or as `run_plan`; nothing was run or written.
        Interrupted: Ctrl-C or SIGTERM; runs are saved and go on at the same request.
    """
    require(jobs >= 1, "--jobs", jobs, "at least 1")
    prepare(plan)
    threads = max(1, torch.get_num_threads() // jobs)
    coming, ended, failed = list(plan.tasks), set[Task](), set[Task]()
    running: dict[Connection, _Running] = {}
    with stop_request() as stop, _ending(running):
        while coming or running:
            for task in [task for task in coming if ended.issuperset(needed(task))][: jobs - len(running)]:
                coming.remove(task)
                if failed.isdisjoint(needed(task)):
                    started(task)
                    ours, process = _start(plan, task, threads, showing)
                    running[ours] = _Running(task, process)
                else:
                    ended.add(task)
                    failed.add(task)
                    yield attempt(task, plan, failed)  # says what it lacks
            for connection in wait(list(running), _PATIENCE):
                assert isinstance(connection, Connection)
                outcome = _outcome(connection, running.pop(connection))
                ended.add(outcome.job)
                if outcome.error:
                    failed.add(outcome.job)
                if stop.signal_number is None:
                    yield outcome
            if stop.signal_number is not None:
                name = signal.Signals(stop.signal_number).name
                raise Interrupted(f"stopped by {name}; every run is saved as far as it came", stop.signal_number)


def _start(plan: Plan, task: Task, threads: int, showing: Showing) -> tuple[Connection, SpawnProcess]:
    """Start a task; its process hears of Ctrl-C from this one alone, however early."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    arguments = (theirs, plan.request, plan.tasks.index(task), threads, showing)
    process = context.Process(target=_work, args=arguments, daemon=True)
    before = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    try:
        if in_main:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the process inherits
        process.start()
    finally:
        if in_main:
            signal.signal(signal.SIGINT, before)
    theirs.close()  # so that its end is seen here
    return ours, process


@contextmanager
def _ending(running: dict[Connection, _Running]) -> Iterator[None]:
    """Let no process outlive the work: those that still run are told to stop, and save what they have."""
    try:
        yield
    finally:
        for one in running.values():
            one.process.terminate()
        for connection, one in running.items():
            one.process.join()
            connection.close()


def _outcome(connection: Connection, one: _Running) -> Outcome:
    """Return what a process found, or say how it ended."""
    with connection:
        try:
            record, error, before, seconds = connection.recv()
        except EOFError:
            one.process.join()
            return Outcome(one.task, None, _died(one.process.exitcode))
    one.process.join()
    return Outcome(one.task, record, error, before, seconds)


def _died(code: int | None) -> str:
    if code is None or code >= 0:
        return f"its process ended with status {code}"
    name = signal.Signals(-code).name
    return f"its process was ended by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"


def _work(connection: Connection, request: Request, number: int, threads: int, showing: Showing) -> None:
    """Do one task, in its own process."""
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    torch.set_num_threads(threads)
    plan = make_plan(request)
    task = plan.tasks[number]
    with showing(label(plan, task)) as (watcher, report):
        try:
            outcome = attempt(task, plan, (), watcher, lambda: nullcontext(report))
        except Interrupted as stop:
            outcome = Outcome(task, None, str(stop))
    connection.send((outcome.record, outcome.error, outcome.done_before, outcome.seconds))


def label(plan: Plan, task: Task) -> str:
    """Name a task shortly: by its row, and where there are several seeds by these."""
    return task.row if len(plan.request.seeds) == 1 else f"{task.row}, {task.seeds}"


def _end_with(parent: Connection) -> None:
    """Stop, as at SIGTERM, when the process at the other end is gone."""
    try:
        parent.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
