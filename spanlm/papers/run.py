"""Running a plan: what is finished is skipped, what is not goes on, and what fails stops only what needs it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from spanlm.config import RunConfig
from spanlm.data.config import SPLITS
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, Interrupted, SpanlmError
from spanlm.jobs import ONE_BY_ONE, Engine, of_spanlm
from spanlm.papers.paper import Cached, Nearest
from spanlm.papers.plan import Plan, Task
from spanlm.papers.record import (
    DIVERGED,
    finished,
    load_run,
    measured,
    missing,
    record_measurement,
    record_run,
    save,
)
from spanlm.runs.ngram import load_config, train_ngram
from spanlm.scoring.dynamic.statistics import STREAMS
from spanlm.scoring.ngram.config import FALLBACK, NgramRunConfig
from spanlm.scoring.ngram.kneser_ney import KneserNey
from spanlm.scoring.options import LENGTH, DynamicGrid
from spanlm.scoring.stream import Report, quiet
from spanlm.store.files import make_folder
from spanlm.store.run_folder import CONFIG
from spanlm.training.bench import idle_trainer, timed
from spanlm.training.progress import Watcher
from spanlm.training.run import train, words_of

_COUNTED = 100_000  # tokens of a timed count
_BATCHED = 1 / 3  # cost of a token scored in batches, relative to one in training
_WORK = 1e9  # a timed step has at most this many tokens times parameters


@dataclass
class Outcome:
    """How a task ended."""

    task: Task
    record: dict[str, Any] | None  # None: there is none, or one without results, which is kept on disk alone
    error: str = ""  # why it failed; with a record: a measure of it could not be taken
    done_before: bool = False  # nothing was left to do
    seconds: float = 0  # spent on it now

    def __post_init__(self) -> None:
        if reason := (self.record or {}).get(DIVERGED):
            self.record, self.error = None, self.error or reason


@dataclass
class Run:
    """Does what is not done of a plan; a task that fails stops only those that need it."""

    plan: Plan
    watcher: Watcher | None = None  # of every training in this process
    started: Callable[[Task], None] = lambda task: None  # called before every task in this process
    # of each measurement in this process
    reporting: Callable[[], AbstractContextManager[Report]] = lambda: nullcontext(quiet)
    heard: Callable[[Task, str], None] = lambda task, line: None  # called with each line of a task's own process
    failed: set[Task] = field(default_factory=set, init=False)

    def outcomes(self, engine: Engine = ONE_BY_ONE) -> Iterator[Outcome]:
        """Do the tasks as the engine does; yield how each ended.

        With several jobs, or on Ray, each training has a process of its own, `spanlm train … --resume auto`, and then
        so has each measurement of one model; what needs several models is done here, at the end. The last rows of a
        paper take longest, so they begin first.

        Raises:
            InputError: a file is not a record of this plan, or a folder cannot be made; nothing was run.
            Interrupted: Ctrl-C or SIGTERM; trainings and searches are saved and go on at the same request.
        """
        plan, ended = self.plan, set[Task]()
        for task in plan.tasks:
            finished(task, plan.text_of(task))
        make_folder(plan.request.runs, "runs")
        make_folder(plan.out, "out")
        threads = engine.threads(len(plan.tasks))
        for task in () if engine.here else plan.tasks:
            if done_before(task, plan):  # the first page has them, too
                ended.add(task)
                yield self._outcome(task)
        for measuring in () if engine.here else (False, True):
            alone = [task for task in plan.tasks if bool(task.models) == measuring and len(task.jobs) == 1]
            left = [task for task in reversed(alone) if task not in ended and not self._blocked(task)]
            commands = {task: self._command(task, threads) for task in left}
            for task, error in engine.run(commands, threads, self.heard, below=plan.request.runs) if commands else ():
                ended.add(task)
                yield self._outcome(task, error, elsewhere=True)
        for task in plan.tasks:
            if task not in ended:
                self.started(task)
                yield self._outcome(task)

    def _command(self, task: Task, threads: int) -> list[str]:
        """Return the command that trains or measures a row; a training's configuration is written beside its folder."""
        if isinstance(task.config, RunConfig) and not task.models:
            words = words_of(task.config, task.folder, task.folder.with_suffix(".yaml"))
        else:
            request = replace(self.plan.request, rows=(task.row.name,), seeds=(task.seed,))
            words = [*request.words, "--no-tables"]
        return of_spanlm(words, threads)

    def _outcome(self, task: Task, error: str = "", elsewhere: bool = False) -> Outcome:
        began = time.perf_counter()
        try:
            record = before = done_before(task, self.plan)
            if before is None and not (error := error or self._blocked(task)):
                record = self._do(task)
            error = "" if record else error
        except (Interrupted, BrokenPipeError):
            raise
        except (SpanlmError, OSError, RuntimeError, MemoryError, ValueError, KeyError) as problem:
            # RuntimeError: how the tensor library reports a device that is out of memory
            before, record, error = None, None, " ".join(str(problem).split()) or type(problem).__name__
        if error and not task.models:
            with suppress(SpanlmError):
                record = _shown(task, self.plan)
        seconds = time.perf_counter() - began
        if elsewhere and record:  # the time of its own process
            seconds += next((record[name] for name in ("training_seconds", "seconds") if name in record), 0.0)
        outcome = Outcome(task, record, error, before is not None and not elsewhere, seconds)
        self.failed |= {task} if outcome.error else set()
        return outcome

    def _do(self, task: Task) -> dict[str, Any]:
        corpus = self.plan.text_of(task)
        if task.models:
            with self.reporting() as report:
                return save(task, record_measurement(task, corpus, report))
        record, began = finished(task, corpus), time.perf_counter()
        measures = missing(task, record or {}, self.plan.questions)
        if record is None and isinstance(task.config, RunConfig):
            train(task.config, corpus, task.folder, self.watcher, resume=True)
        elif record is None and isinstance(task.config, NgramRunConfig):
            _count(task, task.config, corpus)
        seconds = time.perf_counter() - began
        model = load_run(task, f", and the record lacks its {', '.join(measures)}" if record else "")
        if record is None:
            record = save(task, record_run(task, model, corpus, seconds))
        for measure in measures:
            texts = self.plan.paper.texts(measure)
            record[measure] = measured(measure, model, corpus, self.plan.questions, texts)
            save(task, record)
        return record

    def _blocked(self, task: Task) -> str:
        needed = (job for job in task.jobs if job in self.failed)
        return next((f"needs {job.row.name}, {job.seeds}, which failed" for job in needed), "")


def _count(task: Task, config: NgramRunConfig, corpus: Corpus) -> None:
    """Count an n-gram model, unless its folder holds it; InputError: it holds another."""
    if not (task.folder / CONFIG).exists():
        train_ngram(config, corpus, task.folder)
        return
    held = load_config(task.folder / CONFIG)
    same_share = replace(held.ngram, cache_share=config.ngram.cache_share)
    if (same_share, held.data.compared) != (config.ngram, config.data.compared):
        raise InputError(f"{task.folder}: holds another n-gram model. Move it away, or choose another --runs.")


def done_before(task: Task, plan: Plan) -> dict[str, Any] | None:
    """Return the record of a task with nothing left to do, or None; errors as of `finished`."""
    record = finished(task, plan.text_of(task))
    return None if record is None or (not task.models and missing(task, record, plan.questions)) else record


def _shown(task: Task, plan: Plan) -> dict[str, Any] | None:
    """Return what a task's record has, without the answers to other questions than the plan's."""
    record = finished(task, plan.text_of(task))
    gone = missing(task, record or {}, plan.questions)
    return record and {name: value for name, value in record.items() if name not in gone}


def finished_before(plan: Plan) -> list[Outcome]:
    """Return the plan's other tasks that are done; they are shown beside those that were asked for."""
    outcomes = []
    for task in plan.others:
        with suppress(SpanlmError):  # a record of another configuration is not of this table
            if record := _shown(task, plan):
                outcomes.append(Outcome(task, record, done_before=True))
    return outcomes


@dataclass
class Estimator:
    """Estimates the time of tasks from one training step of each kind of model: its encoder, memory and head.

    Time is taken to grow with the parameters. A token scored in a single stream costs as much as one in training, in
    batches a third of it, and in dynamic evaluation as much as one in training steps of a single stream.
    """

    plan: Plan
    _speeds: dict[Hashable, float] = field(default_factory=dict, init=False)

    def __call__(self, task: Task) -> tuple[float, int, float]:
        """Return seconds, epochs (at most, finetuning included) and tokens a second; of a measurement, 0 and 0."""
        corpus, job, search = self.plan.text_of(task), task.jobs[0], task.search
        if isinstance(job.config, NgramRunConfig):
            return _counting_seconds(job.config, corpus), 0, 0
        train, valid, test = (len(corpus.splits[split]) for split in SPLITS)
        token = self._token(job)
        if not task.models:
            training = job.network.training
            epochs = training.epochs + training.finetune.stages * training.finetune.epochs
            return token * (epochs * (train + _BATCHED * valid) + valid + test), epochs, 1 / token
        if search is None:
            before = {Cached: valid, Nearest: train + valid}.get(type(task.row.evaluation), 0)
            return token * len(task.jobs) * (before + valid + test), 0, 0
        # the trained weights read valid for the search and, as test, for the result; adapting weights read valid once
        # for each finalist, and both for the result
        tried = DynamicGrid(rates=search.rates, decays=search.decays).points
        grid = [*tried, *search.own_point(job.row.dynamic)]
        points, first = len(grid), min(search.first_tokens, valid)
        adapted = points * first + (min(search.finalists, points) * valid if first < valid else 0) + valid + test
        gathered = min(train, (search.statistics or math.inf) * STREAMS * LENGTH)
        return adapted * self._token(job, adapting=True) + token * (gathered + 2 * valid + test), 0, 0

    def _token(self, job: Task, adapting: bool = False) -> float:
        config, parameters = job.network, job.parameters.total
        model = config.model
        kind = (model.encoder.kind, model.memory.kind, model.head.kind, config.data.lines, adapting)
        if kind not in self._speeds:
            streams, length = config.training.batching.batch_size, config.training.batching.length
            # on a processor a step of a large model takes a minute, and a share of its streams that share of a minute
            streams = min(streams, max(1, int(_WORK / (parameters * length))))
            streams, length = (1, LENGTH) if adapting else (streams, length)
            batching = replace(config.training.batching, batch_size=streams, length=length, group_size=None)
            config = replace(config, training=replace(config.training, batching=batching))
            trainer = idle_trainer(config, self.plan.text_of(job))
            steps = max(1, min(5, int(1e7 / parameters))) if adapting else 1
            first, *segments = islice(trainer.batcher.segments(start=trainer.batcher.count() // 2), steps + 1)
            trainer.step(first)  # does what is done only once
            segments = segments or [first]
            seconds = sum(timed(partial(trainer.step, segment), trainer.device)[0] for segment in segments)
            seconds /= sum(int(segment.mask.sum()) for segment in segments)
            self._speeds[kind] = seconds / parameters
        return self._speeds[kind] * parameters


def _counting_seconds(config: NgramRunConfig, corpus: Corpus) -> float:
    """Return the time to count an n-gram model, from that of the first tokens."""
    ids = corpus.splits["train"].ids
    ends = np.flatnonzero(np.asarray(ids[:_COUNTED]) == corpus.vocabulary.eos_id)
    few, options = np.asarray(ids[: ends[-1] + 1], np.int64), config.ngram  # whole lines
    # few n-grams may be too few for discounts of their own, which take no time
    counting = KneserNey(options.order, options.fallback or FALLBACK)
    began = time.perf_counter()
    counting.estimate([few], corpus.vocabulary)
    return (time.perf_counter() - began) * len(ids) / len(few)
