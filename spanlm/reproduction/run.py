"""Running a plan: one row after another, or the same command for several at a time; and how long it will take."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from spanlm.data.corpora import Corpus
from spanlm.errors import Interrupted, SpanlmError
from spanlm.evaluation.dynamic.statistics import LENGTH, STREAMS
from spanlm.evaluation.scoring import Report, quiet
from spanlm.reproduction.plan import Job, Plan, Task
from spanlm.reproduction.record import (
    ASTRAY,
    cloze_accuracies,
    finished,
    lag_shares,
    record_measurement,
    record_training,
    require_run,
    save,
)
from spanlm.runs.loading import load
from spanlm.store.files import make_folder
from spanlm.store.process import stop_request
from spanlm.training.progress import Watcher
from spanlm.training.run import train
from spanlm.training.trainer import Trainer

Reporting = Callable[[], AbstractContextManager[Report]]
"""Opened for a measurement; what it gives gets the progress of dynamic evaluation."""

_PATIENCE = 0.2
"""Seconds between two looks at whether a signal came."""

_BATCHED, _WORK = 1 / 3, 2e9
"""What a token scored in batches costs of one in training; the most tokens of a timed step times parameters."""


@dataclass(frozen=True)
class Outcome:
    """How a training or a measurement ended."""

    job: Task
    record: dict[str, Any] | None = field(repr=False)  # its result; None if it failed
    error: str = ""  # why it failed
    done_before: bool = False  # nothing had to be run
    seconds: float = 0.0  # spent on it now


def run_plan(
    plan: Plan,
    watcher: Watcher | None = None,
    started: Callable[[Task], None] = lambda task: None,
    reporting: Reporting = lambda: nullcontext(quiet),
) -> Iterator[Outcome]:
    """Do what is not done, in order; a task that fails stops only those that need it.

    Args:
        plan: what to do.
        watcher: gets the progress of every training.
        started: called with every task before it starts.
        reporting: opened for each measurement.

    Raises:
        InputError: a record is none, or that of another run, or a folder cannot be made; nothing was run or written.
        Interrupted: Ctrl-C or SIGTERM; the run is saved and goes on at the same request.
    """
    _prepare(plan)
    yield from _in_turn(plan.tasks, plan, set(), watcher, started, reporting)


def _in_turn(
    tasks: Sequence[Task],
    plan: Plan,
    failed: set[Task],
    watcher: Watcher | None,
    started: Callable[[Task], None],
    reporting: Reporting,
) -> Iterator[Outcome]:
    for task in tasks:
        started(task)
        outcome = _attempt(task, plan, failed, watcher, reporting)
        failed |= {task} if outcome.error else set()
        yield outcome


def _prepare(plan: Plan) -> None:
    """Refuse what cannot end well before anything is run: records of other runs, folders that cannot be made."""
    for task in plan.tasks:
        finished(task, plan.text_of(task))
    for option, folder in (("--runs", plan.request.runs), ("--out", plan.out)):
        make_folder(folder, option)


def _attempt(
    task: Task, plan: Plan, failed: Collection[Task], watcher: Watcher | None, reporting: Reporting
) -> Outcome:
    began, text = time.perf_counter(), plan.text_of(task)
    if found := done_before(task, plan):
        return found
    if blocked := _blocked(task, failed):
        return Outcome(task, None, blocked)
    try:
        if isinstance(task, Job):
            record = run_job(task, text, plan.questions, watcher)
        else:
            with reporting() as report:
                record = record_measurement(task, text, report)
    except (Interrupted, BrokenPipeError):
        raise
    except (SpanlmError, OSError, RuntimeError, MemoryError, ValueError, KeyError) as error:
        # RuntimeError: how the tensor library reports a device that is out of memory
        said = " ".join(str(error).split()) or type(error).__name__
        return Outcome(task, None, said, seconds=time.perf_counter() - began)
    return replace(_ended(task, record), seconds=time.perf_counter() - began)


def _ended(task: Task, record: dict[str, Any]) -> Outcome:
    """Return how a task ended that has a record; one of weights that diverged is no result."""
    return Outcome(task, record) if "perplexity" in record["test"] else Outcome(task, None, record[ASTRAY])


def _blocked(task: Task, failed: Collection[Task]) -> str:
    """Say which training that failed a task needs."""
    return next((f"needs {job.row}, {job.seeds}, which failed" for job in task.jobs if job in failed), "")


def done_before(task: Task, plan: Plan) -> Outcome | None:
    """Return the outcome of a task of which nothing is left to do: a record, with all that is to be measured.

    Raises:
        InputError: the file is no record, or that of another run.
    """
    record = finished(task, plan.text_of(task))
    if record is None or (isinstance(task, Job) and _missing(task, record)):
        return None
    return replace(_ended(task, record), done_before=True)


def _missing(job: Job, record: Mapping[str, Any]) -> list[str]:
    """Return what is to be measured beside perplexity, which every record has, and was not yet."""
    return [measure for measure in job.measures if measure != "perplexity" and measure not in record]


def finished_before(plan: Plan) -> list[Outcome]:
    """Return what was done before and not asked for, to be shown beside what was."""
    found = []
    for task in plan.others:
        try:
            found.append(done_before(task, plan))
        except SpanlmError:
            continue  # of another configuration: not of this table
    return [outcome for outcome in found if outcome is not None]


def run_job(
    job: Job, corpus: Corpus, questions: tuple[Path, ...] = (), watcher: Watcher | None = None
) -> dict[str, Any]:
    """Train a row unless it is trained, measure what was not measured, and return the record, which is kept.

    Raises:
        InputError: the record's or the run's configuration is another one.
        RunError: training failed, or the disk refused.
        Interrupted: training was stopped; it goes on at the next call.
    """
    record = finished(job, corpus)
    missing = _missing(job, record or {})
    if record is None:
        train(job.config, corpus, job.folder, watcher, resume=True)
    elif missing:
        require_run(job, f", and its {', '.join(missing)} was not measured yet")
    model = load(job.folder, job.config.training.device)
    if record is None:
        record = record_training(job, model, corpus)
    for name in missing:
        record[name] = cloze_accuracies(model, questions) if name == "cloze" else lag_shares(model, corpus)
        save(job.record, record)
    return record


# --- several at a time ---

Heard = Callable[[str, str], None]
"""Called with the name of a command and a line that it printed."""


def run_all(
    commands: Mapping[str, Sequence[str]], jobs: int, heard: Heard = lambda name, line: None
) -> Iterator[tuple[str, str]]:
    """Run commands that need nothing of each other, `jobs` at a time, in their order.

    Args:
        commands: program and arguments, by name.
        jobs: how many at a time.
        heard: called with one line at a time.

    Returns:
        The name of each command when it has ended, and its error: the last line that it printed, or the signal that
        ended it; empty if it did what it should.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; every command was sent SIGTERM, and has ended.
    """
    running, lock, ending = set[subprocess.Popen[str]](), Lock(), False

    def run(name: str) -> tuple[str, str]:
        line, pipe = "", subprocess.PIPE
        how: dict[str, Any] = {"text": True, "errors": "backslashreplace", "process_group": 0}
        with lock:
            if ending:
                return name, "was not begun"
            # a group of its own: a terminal's Ctrl-C is for this process, which hands it on
            process = subprocess.Popen(
                commands[name], stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, **how
            )
            running.add(process)
        with process:
            for line in process.stdout or ():
                with lock:
                    heard(name, line.rstrip("\n"))
            status = process.wait()
        with lock:
            running.remove(process)
        return name, _error(status, line)

    with stop_request() as stop, ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(run, name) for name in commands}
        try:
            while waiting:
                ended, waiting = wait(waiting, _PATIENCE, FIRST_COMPLETED)
                if stop.signal_number is not None:
                    name = signal.Signals(stop.signal_number).name
                    raise Interrupted(f"stopped by {name}; trainings and searches are saved", stop.signal_number)
                yield from (one.result() for one in ended)
        finally:
            with lock:
                ending = True
                for process in running:
                    process.terminate()


def _error(status: int, last_line: str) -> str:
    if status < 0:
        name = signal.Signals(-status).name
        return f"its process was ended by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
    return "" if status == 0 else last_line.strip().removeprefix("spanlm: ") or f"its process ended with {status}"


def run_side_by_side(
    plan: Plan,
    jobs: int,
    started: Callable[[Task], None] = lambda task: None,
    reporting: Reporting = lambda: nullcontext(quiet),
    heard: Heard = lambda name, line: None,
) -> Iterator[Outcome]:
    """Do what needs one model in processes of their own, `jobs` at a time, and then the rest as `run_plan` does.

    A process trains a model and measures what needs it alone. Numbers differ in rounding from those of a run with all
    threads. Papers go from the plainest system to the most involved, which takes longest: begun last, it would run
    alone, so it is begun first.

    Args:
        plan: what to do.
        jobs: how many processes at a time, at least 1. On a GPU they share it.
        started: called with every task that is done before, or here.
        reporting: opened for each measurement here.
        heard: see `run_all`.

    Raises:
        InputError: as `run_plan`; nothing was run or written.
        Interrupted: Ctrl-C or SIGTERM; trainings are saved and go on at the same request.
    """
    _prepare(plan)
    alone: dict[Job, list[Task]] = {}
    for task in plan.tasks:
        if len(task.jobs) == 1 and done_before(task, plan) is None:
            alone.setdefault(task.jobs[0], []).append(task)
    begun = {label(plan, group[0]): group for group in reversed(alone.values())}
    # the same share whatever is done already: with other threads numbers round otherwise, so what was stopped would go
    # on as another computation, and a search would not know its own trials
    threads = max(1, torch.get_num_threads() // min(jobs, len(plan.tasks)))
    commands = {}
    for name, group in begun.items():
        asked = replace(plan.request, rows=tuple(task.row for task in group), seeds=(group[0].jobs[0].seed,))
        commands[name] = [sys.executable, "-m", "spanlm", *asked.words, "--no-tables", f"--threads={threads}"]
    failed = set[Task]()
    for name, error in run_all(commands, jobs, heard):
        for task in begun[name]:
            outcome = _collected(task, plan, failed, error)
            failed |= {task} if outcome.error else set()
            yield outcome
    there = {task for group in begun.values() for task in group}
    rest = [task for task in plan.tasks if task not in there]
    yield from _in_turn(rest, plan, failed, None, started, reporting)


def _collected(task: Task, plan: Plan, failed: Collection[Task], error: str) -> Outcome:
    """Return what a process left of one of its tasks."""
    try:
        if outcome := done_before(task, plan):
            return replace(outcome, done_before=False)
    except SpanlmError as refused:
        return Outcome(task, None, str(refused))
    error = error.partition(f"{task.row}: ")[2] or error or "its process left no record"
    return Outcome(task, None, _blocked(task, failed) or error)


def label(plan: Plan, task: Task) -> str:
    """Name a task shortly: by its row, and where there are several seeds by these."""
    return task.row if len(plan.request.seeds) == 1 else f"{task.row}, {task.seeds}"


# --- how long it will take ---


@dataclass(frozen=True)
class Estimate:
    """How long a task will take from its start."""

    seconds: float
    epochs: int = 0  # of a training, at most, those of finetuning included; patience may end it before
    tokens_per_second: float = 0.0  # of a training


class Estimator:
    """Estimates tasks of a plan from one training step of each kind of model: its encoder, memory and head.

    Time is taken to grow with the parameters. A token that is scored in batches costs a third of one in training, a
    pass forward in place of one forward and one backward; in a single stream as much as in training; one in dynamic
    evaluation what it costs in training steps of one stream.

    Args:
        plan: whose tasks.
        measuring: called with the row whose model is about to be measured.
    """

    def __init__(self, plan: Plan, measuring: Callable[[str], None] = lambda row: None) -> None:
        self._plan, self._measuring = plan, measuring
        self._speeds: dict[tuple[object, ...], float] = {}

    def __call__(self, task: Task) -> Estimate:
        """Return how long a task will take; nothing is written.

        Raises:
            InputError: it cannot be trained as it is.
            RunError: the loss or its gradient is soon not finite.
        """
        corpus, job = self._plan.text_of(task), task.jobs[0]
        train, valid, test = (len(corpus.splits[split]) for split in ("train", "valid", "test"))
        token = self._token(job)
        if isinstance(task, Job):
            training = job.config.training
            epochs = training.epochs + training.finetune.stages * training.finetune.epochs
            return Estimate(token * (epochs * (train + _BATCHED * valid) + valid + test), epochs, 1 / token)
        if task.search is None:
            return Estimate(token * len(task.jobs) * (valid + test))
        # valid is read by the trained weights once for the search and, as test, once for its result; by weights that
        # adapt as often as there are finalists, of which one is its result
        search = task.search
        points, first = len(search.grid(job.preset.dynamic)), min(search.first_tokens, valid)
        adapted = points * first + (max(min(search.finalists, points), 1) * valid if first < valid else 0) + test
        gathered = min(train, (search.statistics or math.inf) * STREAMS * LENGTH)
        return Estimate(adapted * self._token(job, adapting=True) + token * (gathered + 2 * valid + test))

    def _token(self, job: Job, adapting: bool = False) -> float:
        """Return the seconds of a token."""
        model = job.config.model
        kind = (model.encoder.kind, model.memory.kind, model.head.kind, job.config.data.lines, adapting)
        if kind not in self._speeds:
            self._measuring(job.row)
            self._speeds[kind] = _measured_token(job, self._plan.text_of(job), adapting) / job.parameters.total
        return self._speeds[kind] * job.parameters.total


def _measured_token(job: Job, corpus: Corpus, adapting: bool) -> float:
    """Time a step of training, or of one stream, a few where they are short."""
    batching, steps = job.config.training.batching, 1
    # on a processor a step of a large model takes a minute, and its share of the streams as large a share of that
    streams = max(1, min(batching.batch_size, int(_WORK / (job.parameters.total * batching.length))))
    batching = replace(batching, batch_size=streams, group_size=None)
    if adapting:
        batching = replace(batching, batch_size=1, length=LENGTH)
        steps = max(1, min(5, int(1e7 / job.parameters.total)))
    training = replace(job.config.training, batching=batching)
    trainer = Trainer(replace(job.config, training=training), corpus, job.folder / "estimate", Watcher())
    segments = list(islice(trainer.batcher.segments(start=trainer.batcher.count() // 2), steps + 1))
    trainer.step(segments[0])  # which does what is done only once, and waits for the device, as every step
    timed = segments[1:] or segments
    began = time.perf_counter()
    for segment in timed:
        trainer.step(segment)
    return (time.perf_counter() - began) / sum(int(segment.mask.sum()) for segment in timed)
