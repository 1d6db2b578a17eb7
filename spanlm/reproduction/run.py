"""Running a plan: one row after another, whatever happens to one of them.

`run_job` needs nothing but its arguments, `measure` what the jobs left, so `spanlm.reproduction.side_by_side` runs
several at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanlm.analysis.attend import attention_by_lag
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, Interrupted, RunError, SpanlmError
from spanlm.evaluation.scoring import Report, quiet
from spanlm.reproduction.measurement import finished_measurement, measure
from spanlm.reproduction.plan import Plan
from spanlm.reproduction.questions import cloze_accuracies
from spanlm.reproduction.record import ASTRAY, finished_record, make_record, save_record
from spanlm.reproduction.tasks import Job, Task
from spanlm.runs.loading import load
from spanlm.runs.trained_model import TrainedModel
from spanlm.store.files import make_folder
from spanlm.store.run_folder import MODEL
from spanlm.training.events import Watcher
from spanlm.training.run import train


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
    reporting: Callable[[], AbstractContextManager[Report]] = lambda: nullcontext(quiet),
) -> Iterator[Outcome]:
    """Do what is not done, in order; a task that fails stops only those that need it.

    Args:
        plan: what to do.
        watcher: told of the progress of every training.
        started: told of every task before it starts.
        reporting: opened for each measurement; what it gives is told of the progress of dynamic evaluation.

    Raises:
        InputError: a record is none, or that of another run, or a folder cannot be made; nothing was run or written.
        Interrupted: Ctrl-C or SIGTERM; the run is saved and goes on at the same request.
    """
    prepare(plan)
    failed: set[Task] = set()
    for task in plan.tasks:
        started(task)
        outcome = attempt(task, plan, failed, watcher, reporting)
        if outcome.error:
            failed.add(task)
        yield outcome


def prepare(plan: Plan) -> None:
    """Refuse what cannot end well before anything is run: records of other runs, folders that cannot be made.

    Raises:
        InputError: so.
    """
    for task in plan.tasks:
        finished(task, plan.text_of(task))
    for option, folder in (("--runs", plan.request.runs), ("--out", plan.out)):
        make_folder(folder, option)


def attempt(
    task: Task,
    plan: Plan,
    failed: Collection[Task] = (),
    watcher: Watcher | None = None,
    reporting: Callable[[], AbstractContextManager[Report]] = lambda: nullcontext(quiet),
) -> Outcome:
    """Do one task of a plan; what it needs has ended.

    Args:
        task: which.
        plan: that it is of.
        failed: what ended in vain before.
        watcher: told of the progress of a training.
        reporting: opened for a measurement; what it gives is told of the progress of dynamic evaluation.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; the run is saved and goes on at the same request.
    """
    began = time.perf_counter()
    try:
        record, before = _do(task, plan, failed, watcher, reporting)
    except Interrupted:
        raise
    except (SpanlmError, OSError, RuntimeError, MemoryError, ValueError, KeyError) as error:
        # RuntimeError: how the tensor library reports a device that is out of memory
        text = " ".join(str(error).split()) or type(error).__name__
        return Outcome(task, None, text, seconds=time.perf_counter() - began)
    return _outcome(task, record, before, time.perf_counter() - began)


def _outcome(task: Task, record: dict[str, Any], before: bool, seconds: float = 0.0) -> Outcome:
    """Return how a task ended that has a record; one of weights that went astray is no result."""
    if "perplexity" in record["test"]:
        return Outcome(task, record, done_before=before, seconds=seconds)
    return Outcome(task, None, record[ASTRAY], before, seconds)


def _do(
    task: Task,
    plan: Plan,
    failed: Collection[Task],
    watcher: Watcher | None,
    reporting: Callable[[], AbstractContextManager[Report]],
) -> tuple[dict[str, Any], bool]:
    if isinstance(task, Job):
        return run_job(task, plan.text_of(task), plan.questions, watcher)
    for job in needed(task):
        if job in failed:
            raise RunError(f"needs {job.row}, {job.seeds}, which failed")
    with reporting() as report:
        return measure(task, plan.text_of(task), report)


def needed(task: Task) -> tuple[Job, ...]:
    """Return the trainings that must have ended before a task can begin."""
    return () if isinstance(task, Job) else task.jobs


def finished(task: Task, corpus: Corpus) -> dict[str, Any] | None:
    """Return the record of a task that is done, or None.

    Raises:
        InputError: the file is no record, or that of another run.
    """
    return finished_record(task, corpus) if isinstance(task, Job) else finished_measurement(task, corpus)


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
) -> tuple[dict[str, Any], bool]:
    """Train a row unless it is trained, measure what was not measured, and keep the record.

    Args:
        job: which.
        corpus: what it trains on.
        questions: for jobs that measure cloze accuracy.
        watcher: told of progress.

    Returns:
        The record, and whether everything was there before.

    Raises:
        InputError: the record's or the run's configuration is another one.
        RunError: training failed, or the disk refused.
        Interrupted: training was stopped; it goes on at the next call.
    """
    record = finished_record(job, corpus)
    missing = _missing(job, record or {})
    if record is not None and not missing:
        return record, True
    if record is not None and not (job.folder / MODEL).exists():
        raise InputError(
            f"{job.folder}: the run of {job.record} is not there, and its {', '.join(missing)} was not measured yet. "
            "Give its folder with --runs, or move the record away to train again."
        )
    if record is None:
        train(job.config, corpus, job.folder, watcher, resume=True)
    model = load(job.folder, job.config.training.device)
    if record is None:
        record = make_record(job, model, corpus)
        save_record(job.record, record)
    for name in missing:
        record[name] = cloze_accuracies(model, questions) if name == "cloze" else _attention(model, corpus)
        save_record(job.record, record)
    return record, False


def _attention(model: TrainedModel, corpus: Corpus) -> dict[str, Any]:
    """Mean attention by lag over the test part (Daniluk et al., 2017, Figure 3b)."""
    protocol = model.texts.protocol(corpus, "test", batch_size=1)
    profile = attention_by_lag(model.model, protocol.batcher(corpus, "test"))
    return {
        "split": "test",
        "lags": list(profile.lags),
        "nearest_lag": profile.nearest_lag,
        "percent": list(profile.percent),
        "positions": profile.positions,
        "left_out": profile.left_out,
    }
