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
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from spanlm.data.corpora import Corpus
from spanlm.errors import Interrupted, RunError, SpanlmError, require
from spanlm.evaluation.dynamic import adapted_tally
from spanlm.evaluation.dynamic_config import DynamicConfig
from spanlm.evaluation.dynamic_statistics import STREAMS, gather_statistics
from spanlm.evaluation.lessons import Report, quiet
from spanlm.evaluation.perplexity import evaluation_batcher
from spanlm.reproduction.plan import Job, Measurement, Plan, Request, Task
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
from spanlm.store.process import pick_device, stop_request
from spanlm.training.journal import Watcher
from spanlm.training.run import train
from spanlm.training.setup import build_model
from spanlm.training.trainer import Trainer

Reporting = Callable[[], AbstractContextManager[Report]]
"""Opened for a measurement; what it gives gets the progress of dynamic evaluation."""

_PATIENCE = 0.2
"""Seconds between two looks at whether a signal came."""

_BATCHED, _SINGLE = 1 / 3, 1.0
"""What a token costs that is scored, in batches and in a single stream, of what it costs in training."""

_SEGMENTS, _WORK = 5, 2e9
"""What is timed: segments of dynamic evaluation, and the most tokens of a training step times parameters."""


@dataclass(frozen=True)
class Outcome:
    """How a training or a measurement ended.

    Attributes:
        job: which.
        record: its result; None if it failed.
        error: why it failed; empty if it did not.
        done_before: nothing had to be run.
        seconds: spent on it now.
    """

    job: Task
    record: dict[str, Any] | None = field(repr=False)
    error: str = ""
    done_before: bool = False
    seconds: float = 0.0


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
    failed: set[Task] = set()
    for task in plan.tasks:
        started(task)
        outcome = _attempt(task, plan, failed, watcher, reporting)
        if outcome.error:
            failed.add(task)
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
    began = time.perf_counter()
    try:
        outcome = done_before(task, plan.text_of(task))
        if outcome is not None:
            return outcome
        record = _do(task, plan, failed, watcher, reporting)
    except (Interrupted, BrokenPipeError):
        raise
    except (SpanlmError, OSError, RuntimeError, MemoryError, ValueError, KeyError) as error:
        # RuntimeError: how the tensor library reports a device that is out of memory
        text = " ".join(str(error).split()) or type(error).__name__
        return Outcome(task, None, text, seconds=time.perf_counter() - began)
    return _outcome(task, record, before=False, seconds=time.perf_counter() - began)


def _outcome(task: Task, record: dict[str, Any], before: bool, seconds: float = 0.0) -> Outcome:
    """Return how a task ended that has a record; one of weights that went astray is no result."""
    if "perplexity" in record["test"]:
        return Outcome(task, record, done_before=before, seconds=seconds)
    return Outcome(task, None, record[ASTRAY], before, seconds)


def _do(
    task: Task, plan: Plan, failed: Collection[Task], watcher: Watcher | None, reporting: Reporting
) -> dict[str, Any]:
    if isinstance(task, Job):
        return run_job(task, plan.text_of(task), plan.questions, watcher)
    _refuse_failed(task, failed)
    with reporting() as report:
        return record_measurement(task, plan.text_of(task), report)


def _refuse_failed(task: Task, failed: Collection[Task]) -> None:
    """Refuse what needs a training that failed."""
    for job in task.jobs if isinstance(task, Measurement) else ():
        if job in failed:
            raise RunError(f"needs {job.row}, {job.seeds}, which failed")


def done_before(task: Task, corpus: Corpus) -> Outcome | None:
    """Return the outcome of a task of which nothing is left to do: a record, with all that is to be measured.

    Raises:
        InputError: the file is no record, or that of another run.
    """
    record = finished(task, corpus)
    if record is None or (isinstance(task, Job) and _missing(task, record)):
        return None
    return _outcome(task, record, before=True)


def _missing(job: Job, record: Mapping[str, Any]) -> list[str]:
    """Return what is to be measured beside perplexity, which every record has, and was not yet."""
    return [measure for measure in job.measures if measure != "perplexity" and measure not in record]


def finished_before(plan: Plan) -> list[Outcome]:
    """Return what was done before and not asked for, to be shown beside what was."""
    found = []
    for task in plan.others:
        try:
            found.append(done_before(task, plan.text_of(task)))
        except SpanlmError:
            continue  # of another configuration: not of this table
    return [outcome for outcome in found if outcome is not None]


def run_job(
    job: Job, corpus: Corpus, questions: tuple[Path, ...] = (), watcher: Watcher | None = None
) -> dict[str, Any]:
    """Train a row unless it is trained, measure what was not measured, and return the record, which is kept.

    Args:
        job: which.
        corpus: what it trains on.
        questions: for jobs that measure cloze accuracy.
        watcher: gets the progress.

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


@dataclass(frozen=True)
class Command:
    """A command that can be given again at any time: what it finished it does not do again.

    Attributes:
        label: names it shortly.
        words: program and arguments.
    """

    label: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        command: which.
        error: the last line that it printed, or the signal that ended it; empty if it did what it should.
        seconds: that it took.
    """

    command: Command
    error: str
    seconds: float


def run_all(
    commands: Sequence[Command], jobs: int, heard: Callable[[Command, str], None] = lambda command, line: None
) -> Iterator[Ended]:
    """Run commands, `jobs` at a time, in their order; give each when it has ended.

    Args:
        commands: that need nothing of each other.
        jobs: how many at a time.
        heard: called with every line that a command prints, one at a time.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; every command was sent SIGTERM, and has ended.
    """
    running, lock, ending = set[subprocess.Popen[str]](), Lock(), False

    def run(command: Command) -> Ended:
        began, line = time.perf_counter(), ""
        with lock:
            if ending:
                return Ended(command, "was not begun", 0.0)
            # a group of its own: a terminal's Ctrl-C is for this process, which hands it on
            process = subprocess.Popen(
                command.words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="backslashreplace",
                process_group=0,
            )
            running.add(process)
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                with lock:
                    heard(command, line.rstrip("\n"))
            status = process.wait()
        with lock:
            running.remove(process)
        return Ended(command, _error(status, line), time.perf_counter() - began)

    with stop_request() as stop, ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(run, command) for command in commands}
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


def command_words(request: Request, rows: Sequence[str], seeds: Sequence[int], threads: int) -> tuple[str, ...]:
    """Return the command that makes rows of a request, without their tables."""
    words = [sys.executable, "-m", "spanlm", "reproduce", request.paper, "--no-tables", "--scale", request.scale]
    options = {
        "table": request.table,
        "corpus": request.corpus,
        "precision": request.precision,
        "data-dir": request.data_dir,
        "runs": request.runs,
        "out": request.out,
        "device": request.device,
        "threads": threads,
    }
    words += [f"--{name}={value}" for name, value in options.items() if value is not None]
    words += ["--rows", *rows, "--seeds", *map(str, seeds)]
    return (*words, *(["--questions", *map(str, request.questions)] if request.questions else []))


def run_side_by_side(
    plan: Plan,
    jobs: int,
    started: Callable[[Task], None] = lambda task: None,
    heard: Callable[[Command, str], None] = lambda command, line: None,
) -> Iterator[Outcome]:
    """Do what is not done in processes of their own, `jobs` at a time; give each outcome when it is there.

    A process trains a model and measures what needs it alone; ensembles come last. As in `run_plan`, a task that fails
    stops only those that need it. Numbers differ in rounding from those of a run with all threads.

    Args:
        plan: what to do.
        jobs: how many processes at a time. On a GPU they share it.
        started: called with every task that is done, or whose process is among those to be started.
        heard: see `run_all`.

    Raises:
        InputError: jobs below 1, or as `run_plan`; nothing was run or written.
        Interrupted: Ctrl-C or SIGTERM; trainings are saved and go on at the same request.
    """
    require(jobs >= 1, "--jobs", jobs, "at least 1")
    _prepare(plan)
    failed, coming = set[Task](), list[Task]()
    for task in plan.tasks:
        outcome = done_before(task, plan.text_of(task))
        if outcome is None:
            coming.append(task)
        else:
            started(task)
            yield outcome
    # the same share whatever is done already: with other threads numbers round otherwise, so what was stopped would go
    # on as another computation, and a search would not know its own trials
    threads = max(1, torch.get_num_threads() // min(jobs, len(plan.tasks)))
    for groups in _waves(coming):
        commands = dict[Command, list[Task]]()
        for group in groups:
            if failed.isdisjoint(_needed(group[0])):
                commands[_command(plan, group, threads)] = group
                list(map(started, group))
            else:
                yield from (_attempt(task, plan, failed, None, lambda: nullcontext(quiet)) for task in group)
        for ended in run_all(list(commands), jobs, heard):
            for task in commands[ended.command]:
                outcome = _collected(task, plan, failed, ended)
                if outcome.error:
                    failed.add(task)
                yield outcome


def _waves(tasks: Sequence[Task]) -> Iterator[list[list[Task]]]:
    """Group what has one model, and then what has several.

    Papers go from the plainest system to the most involved, which takes longest: begun last, it would run alone.
    """
    alone: dict[Job, list[Task]] = {}
    for task in tasks:
        jobs = (task,) if isinstance(task, Job) else task.jobs
        if len(jobs) == 1:
            alone.setdefault(jobs[0], []).append(task)
    yield list(alone.values())[::-1]
    yield [[task] for task in tasks if len(_needed(task)) > 1]


def _needed(task: Task) -> tuple[Job, ...]:
    """Return the trainings that must have ended before a task can begin."""
    return () if isinstance(task, Job) else task.jobs


def _command(plan: Plan, group: Sequence[Task], threads: int) -> Command:
    first = group[0]
    jobs = first.jobs if isinstance(first, Measurement) else (first,)
    # an ensemble says itself which seeds it needs; as many as were asked for let it be as large
    seeds = plan.request.seeds if len(jobs) > 1 else (jobs[0].seed,)
    return Command(label(plan, first), command_words(plan.request, [task.row for task in group], seeds, threads))


def _collected(task: Task, plan: Plan, failed: Collection[Task], ended: Ended) -> Outcome:
    """Return what a process left of one of its tasks."""
    try:
        outcome = done_before(task, plan.text_of(task))
        if outcome is not None:
            return Outcome(task, outcome.record, outcome.error, seconds=ended.seconds)
        _refuse_failed(task, failed)
    except SpanlmError as error:
        return Outcome(task, None, str(error))
    error_text = ended.error.partition(f"{task.row}: ")[2] or ended.error or "its process left no record"
    return Outcome(task, None, error_text, seconds=ended.seconds)


def label(plan: Plan, task: Task) -> str:
    """Name a task shortly: by its row, and where there are several seeds by these."""
    return task.row if len(plan.request.seeds) == 1 else f"{task.row}, {task.seeds}"


@dataclass(frozen=True)
class Estimate:
    """How long a task will take from its start.

    Attributes:
        seconds: for all of it.
        epochs: of a training, at most, those of finetuning included; patience may end it before.
        tokens_per_second: of a training.
    """

    seconds: float
    epochs: int = 0
    tokens_per_second: float = 0.0


class Estimator:
    """Estimates tasks of a plan from one training step of each kind of model: its encoder, memory and head.

    Time is taken to grow with the parameters. A token that is scored in batches costs a third of one in training, a
    pass forward in place of one forward and one backward; in a single stream as much as in training.

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
        corpus = self._plan.text_of(task)
        train, valid, test = (len(corpus.splits[split]) for split in ("train", "valid", "test"))
        job = task if isinstance(task, Job) else task.jobs[0]
        dynamic = isinstance(task, Measurement) and task.search is not None
        if isinstance(task, Measurement) and not dynamic:
            return Estimate(len(task.jobs) * (valid + test) * _SINGLE * self._token(job))
        token = self._token(job)
        if isinstance(task, Measurement):
            return Estimate(self._dynamic_seconds(task, token, train, valid, test))
        finetune = job.config.training.finetune
        epochs = job.config.training.epochs + finetune.stages * finetune.epochs
        read = epochs * (train + _BATCHED * valid) + _SINGLE * (valid + test)
        return Estimate(read * token, epochs, 1 / token)

    def _dynamic_seconds(self, task: Measurement, token: float, train: int, valid: int, test: int) -> float:
        """Estimate a search and its result.

        Valid is read once for the search and, as test, once for its result with the trained weights throughout, and as
        often with weights that adapt as there are finalists, of which one is its result; a search that must read on
        after them takes longer.
        """
        job, search = task.jobs[0], task.search
        assert search is not None
        points, first = len(search.grid(job.preset.dynamic)), min(search.first_tokens, valid)
        adapted = points * first + (max(min(search.finalists, points), 1) * valid if first < valid else 0) + test
        segment = STREAMS * DynamicConfig().length
        segments = min(math.ceil(train / segment), search.statistics or math.inf)
        return adapted * self._token(job, dynamic=True) + token * (segments * segment + 2 * valid + test)

    def _token(self, job: Job, dynamic: bool = False) -> float:
        """Return the seconds of a token."""
        model = job.config.model
        kind = (model.encoder.kind, model.memory.kind, model.head.kind, job.config.data.lines, dynamic)
        if kind not in self._speeds:
            self._measuring(job.row)
            corpus = self._plan.text_of(job)
            measure = _dynamic_token if dynamic else _training_token
            self._speeds[kind] = measure(job, corpus) / job.parameters.total
        return self._speeds[kind] * job.parameters.total


def _training_token(job: Job, corpus: Corpus) -> float:
    batching = job.config.training.batching
    # on a processor a step of a large model takes a minute, and its share of the streams as large a share of that
    streams = max(1, min(batching.batch_size, int(_WORK / (job.parameters.total * batching.length))))
    training = replace(job.config.training, batching=replace(batching, batch_size=streams, group_size=None))
    trainer = Trainer(replace(job.config, training=training), corpus, job.folder / "estimate", Watcher())
    count = trainer.batcher.count()
    first, second = (next(trainer.batcher.segments(start=number * count // 2)) for number in range(2))
    trainer.step(first)  # which does what is done only once
    return _timed(lambda: trainer.step(second), trainer.device) / int(second.mask.sum())


def _dynamic_token(job: Job, corpus: Corpus) -> float:
    device = pick_device(job.config.training.device, "training.device")
    model = build_model(job.config, len(corpus.vocabulary)).to(device)
    statistics = gather_statistics(model, corpus, kind="streams", segments=1, length=1)
    still = DynamicConfig(rate=0.0)
    batcher = evaluation_batcher(corpus, "valid", "streams", length=still.length)
    most = _SEGMENTS * still.length
    return _timed(lambda: adapted_tally(model, batcher, statistics, still, 0, most=most), device) / most


def _timed(call: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of a call, the device's work included."""
    on_gpu = device.type == "cuda"
    torch.cuda.synchronize(device) if on_gpu else None
    began = time.perf_counter()
    call()
    torch.cuda.synchronize(device) if on_gpu else None
    return time.perf_counter() - began
