"""Running a plan and keeping a record of each task: what made it, and what it measured; the test part is read once."""

from __future__ import annotations

import json
import math
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import torch

from spanlm.analysis.attend import attention_by_lag
from spanlm.analysis.export import write_whole
from spanlm.analysis.utilisation import epoch_rows, utilisation_of
from spanlm.config import RunConfig, first_difference
from spanlm.data.cbt import Defect, is_cbt_like, word_class
from spanlm.data.config import SPLITS, Split
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, Interrupted, SpanlmError
from spanlm.evaluation.cloze import ClozeTally
from spanlm.evaluation.dynamic.evaluate import DivergedError
from spanlm.evaluation.dynamic.statistics import LENGTH, STREAMS
from spanlm.evaluation.perplexity import Evaluation
from spanlm.evaluation.scoring import Report, quiet
from spanlm.models.counting import count_parameters
from spanlm.models.language_model import LanguageModel
from spanlm.reproduction import Averaged, Cached, Dynamic
from spanlm.reproduction.plan import Job, Measurement, Plan, Task
from spanlm.runs.ensemble import TrainedEnsemble
from spanlm.runs.loading import load
from spanlm.runs.trained_model import TrainedModel
from spanlm.store.files import make_folder
from spanlm.store.plain import finite, json_object
from spanlm.store.process import stop_request
from spanlm.store.provenance import provenance, starts
from spanlm.store.run_folder import MODEL
from spanlm.training.progress import Watcher
from spanlm.training.run import train
from spanlm.training.trainer import Trainer

MEASURED: tuple[Split, ...] = SPLITS[1:]
"""The parts that every row is measured on."""

DIVERGED = "astray"
"""In the record of a measurement without perplexities: why it has none."""

_DEFECTS_SHOWN = 20
"""Defects of questions that are kept in words; all are counted."""

_PATIENCE = 0.2
"""Seconds between two looks at whether a signal came."""

_BATCHED, _WORK = 1 / 3, 1e9
"""What a token scored in batches costs of one in training; the most tokens of a timed step times parameters."""

_Results = tuple[dict[Split, Evaluation], dict[str, Any]]
"""By part, and how they came about."""

Reporting = Callable[[], AbstractContextManager[Report]]
"""Opened for a measurement; gives a function that receives the progress of dynamic evaluation."""

Name = TypeVar("Name", bound=Hashable)

# --- records ---


def finished(task: Task, corpus: Corpus) -> dict[str, Any] | None:
    """Return the record of a finished task, or None; if its weights diverged, the record has no results.

    Raises:
        InputError: the file is no record, or the record is of another configuration, text, or models.
    """
    if not task.record.exists():
        return None
    try:
        record = _read(task)
        config = RunConfig.from_tree(record["config"], str(task.record))
        sizes: dict[str, int] = {split: record[split]["tokens"] for split in MEASURED}
        text = {"name": record["corpus"], "vocabulary_size": record["vocabulary_size"], **sizes}
        was: dict[str, Any] = {"corpus": text}
        was |= {name: record[name] for name in ("how", "members") if isinstance(task, Measurement)}
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{task.record}: is not a record of a run. Move it away, or choose another --out.") from None
    sizes = {split: len(corpus.splits[split]) for split in MEASURED}
    now: dict[str, Any] = {"corpus": {"name": corpus.name, "vocabulary_size": len(corpus.vocabulary), **sizes}}
    if isinstance(task, Measurement):
        both = zip(task.jobs, record["members"], strict=False)
        members = [_member(_read(job)) if job.record.exists() else old for job, old in both]
        now |= {"how": _how(task), "members": members}
    # on which device, and where the text lies, makes no other run of one that is finished
    config = replace(config, training=replace(config.training, device=task.config.training.device))
    one, other = (replace(c, data=replace(c.data.compared, corpus=corpus.name)) for c in (config, task.config))
    if difference := first_difference(was | one.to_tree(), now | other.to_tree()):
        name, before, after = difference
        raise InputError(
            f"{task.record}: is the result of another run: {name} was {before}, not {after}. Move it away, or choose "
            "another --out (and --runs)."
        )
    return record


def _read(task: Task) -> dict[str, Any]:
    record = json_object(task.record.read_text(encoding="utf-8"))
    _ = record["row"], record["starts"]
    if not (isinstance(task.row.how, Dynamic) and isinstance(record.get(DIVERGED), str) and record[DIVERGED]):
        _ = [float(record[split]["perplexity"]) for split in MEASURED]
    return record


def _how(task: Measurement) -> dict[str, Any]:
    how = {"kind": type(task.row.how).__name__.lower(), **asdict(task.row.how)}
    # as JSON has it: lists
    return how | ({"search": json.loads(json.dumps(asdict(task.search)))} if task.search else {})


def _member(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what identifies a trained model."""
    return {name: record[name] for name in ("row", "seed")} | {split: record[split]["nll"] for split in MEASURED}


def _save(task: Task, record: dict[str, Any]) -> dict[str, Any]:
    """Write a record, and return it."""
    task.record.parent.mkdir(parents=True, exist_ok=True)
    write_whole(task.record, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())
    return record


def _about(task: Task, corpus: Corpus) -> dict[str, Any]:
    """Return what all records have; a corpus by its name, since where it lies is the machine's own."""
    config = task.jobs[0].config
    return {
        "preset": task.row.preset,
        "corpus": corpus.name,
        "notes": corpus.notes,
        "vocabulary_size": len(corpus.vocabulary),
        "config": replace(config, data=replace(config.data, corpus=corpus.name, dir=None)).to_tree(),
    }


def _record_training(job: Job, model: TrainedModel, corpus: Corpus) -> dict[str, Any]:
    """Evaluate a trained model on valid and, this once, on test."""
    assert isinstance(model.model, LanguageModel)  # as every training gives
    epochs = epoch_rows(model.folder)
    best = min(epochs, key=lambda row: row["loss"])
    tokens = len(corpus.splits["train"])
    seconds = sum(tokens / row["tokens_per_second"] for row in epochs)  # of all training steps, validation left out
    use = utilisation_of(epochs, "the run")  # Li et al. (2020), Figure 4
    by_epoch = use and {"utilisation_by_epoch": list(use.learned), "oracle_utilisation_by_epoch": list(use.oracle)}
    return {
        "paper": job.row.trained.paper,
        "row": job.row.name,
        "seed": job.seed,
        "model_parameters": job.parameters.model,
        "all_parameters": job.parameters.total,
        "units": job.config.model.encoder.output_size,
        "readout": model.model.memory.readout_size,
        "epochs": len(epochs),
        "best_epoch": best["epoch"],
        "train_perplexity_at_best": math.exp(min(best["train_loss"], 700)),
        "tokens_per_second": statistics.median(row["tokens_per_second"] for row in epochs),
        "training_seconds": round(seconds, 1),
        **{split: model.evaluate(corpus, split).to_json() for split in MEASURED},
        **(by_epoch or {}),
        "starts": starts(model.folder),
        **_about(job, corpus),
    }


def _cloze_accuracies(model: TrainedModel, questions: Sequence[Path]) -> dict[str, Any]:
    """Rank the candidates of every question with its whole context; return accuracies by word class."""
    tallies: dict[str, ClozeTally] = {}
    defects: list[str] = []
    for path in questions:
        tally = tallies.setdefault(word_class(path), ClozeTally())
        for found in model.cloze(path, contexts=("full",)):
            if isinstance(found, Defect):
                defects.append(f"{path.name}, line {found.line}: {found.reason}")
            else:
                tally.add(found)
    return {
        "context": "full",
        "files": [path.name for path in questions],
        "cbt_like": any(map(is_cbt_like, questions)),
        "classes": {name: tally.to_json() for name, tally in tallies.items()},
        "defects": len(defects),
        "first_defects": defects[:_DEFECTS_SHOWN],
    }


def _lag_shares(model: TrainedModel, corpus: Corpus) -> dict[str, Any]:
    """Return the mean attention by lag over the test part (Daniluk et al., 2017, Figure 3b)."""
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


def _record_measurement(task: Measurement, corpus: Corpus, report: Report) -> dict[str, Any]:
    """Measure trained models; a search that was stopped goes on.

    Where weights that adapted diverged, the record says so (`DIVERGED`) and has what was tried, so that this is not
    tried again. `details.read_before` counts the trials that were finished before; `seconds` has their time, too.
    """
    members = [_member(_read(job)) for job in task.jobs]
    models = [_model(job) for job in task.jobs]
    began, how = time.perf_counter(), task.row.how
    try:
        if isinstance(how, Averaged):
            results, details = _averaged(models, corpus)
        elif isinstance(how, Cached):
            tuning = models[0].tune_cache((how.window,), corpus)
            results = {split: models[0].evaluate(corpus, split, cache=tuning.best) for split in MEASURED}
            details = {"cache": tuning.best.to_json(), "tried": len(tuning.grid), "notes": tuning.notes}
        else:
            results, details = _adapted(task, models[0], corpus, report)
        found: dict[str, Any] = {split: result.to_json() for split, result in results.items()}
        found["details"] = finite(details)
    except DivergedError as error:
        sizes: dict[str, Any] = {split: {"tokens": len(corpus.splits[split])} for split in MEASURED}
        found = {DIVERGED: str(error), **sizes, "details": finite(error.details)}
    return {
        "row": task.row.name,
        "how": _how(task),
        "members": members,
        "all_parameters": sum(count_parameters(model.model).total for model in models),
        "seconds": round(time.perf_counter() - began + found["details"].get("seconds_before", 0.0), 1),
        **found,
        "starts": [provenance(models[0].model.device)],
        **_about(task, corpus),
    }


def _model(job: Job, why: str = "") -> TrainedModel:
    """Load what was trained; the error where it is not there says `why` it is needed."""
    if not (job.folder / MODEL).exists():
        raise InputError(
            f"{job.folder}: the run of {job.record} is not there{why}. Give its folder with --runs, or move the record "
            "away to train again."
        )
    return load(job.folder, job.config.training.device)


def _averaged(models: Sequence[TrainedModel], corpus: Corpus) -> _Results:
    """Measure the mixture, its members and the oracle bound."""
    ensemble = TrainedEnsemble(models)
    found = {split: ensemble.evaluate_members(corpus, split) for split in MEASURED}
    details: dict[str, Any] = {
        split: {"members": [member.perplexity for member in result.members], "oracle_bound": result.oracle_bound.bound}
        for split, result in found.items()
    }
    return {split: result.ensemble for split, result in found.items()}, details


def _adapted(task: Measurement, model: TrainedModel, corpus: Corpus, report: Report) -> _Results:
    """Measure a model with dynamic evaluation: settings are found on valid, then valid and, this once, test are read.

    Raises:
        DivergedError: the weights diverged, at every setting on valid or at the chosen one; has what was tried.
    """
    how, search = task.row.how, task.search
    assert isinstance(how, Dynamic) and search is not None  # a plan gives it to every such measurement
    if how.gate_temperature is not None:
        model = model.at_gate_temperature(how.gate_temperature)
    gathered = model.dynamic_statistics(segments=search.statistics, data_dir=model.config.data.dir, report=report)
    origin = {name: value for name, value in gathered.to_json().items() if name != "origin"}  # a machine's paths
    details: dict[str, Any] = {"statistics": origin}
    results: dict[Split, Evaluation] = {}
    try:
        tuning = model.tune_dynamic(
            corpus,
            "valid",
            rates=search.rates,
            decays=search.decays,
            also=search.own_point(task.row.trained.dynamic),
            first_tokens=search.first_tokens,
            finalists=search.finalists,
            statistics=gathered,
            report=report,
        )
        tuned = tuning.to_json()
        details |= {"dynamic": tuned["best"], "tried": len(tuning.grid), "grid": tuned["grid"], "notes": tuning.notes}
        if tuning.read_before:
            details |= {"read_before": tuning.read_before, "seconds_before": round(tuning.seconds_before, 1)}
        for split in MEASURED:
            results[split] = model.evaluate(corpus, split, dynamic=tuning.best, statistics=gathered, report=report)
    except DivergedError as error:
        details["measured"] = {split: result.to_json() for split, result in results.items()}
        raise DivergedError(str(error), error.details | details) from None
    return results, details


# --- running ---


class Outcome:
    """How a training or a measurement ended; weights that diverged have a record, but are no result.

    Attributes:
        task: that one.
        record: its result; None if it failed.
        error: why it failed.
        done_before: nothing had to be run.
        seconds: spent on it now.
    """

    def __init__(
        self, task: Task, record: dict[str, Any] | None, error: str = "", done_before: bool = False, seconds: float = 0
    ) -> None:
        """Tell a result from a record without one."""
        diverged = "" if record is None else record.get(DIVERGED, "")
        self.task, self.record, self.error = task, None if diverged else record, error or diverged
        self.done_before, self.seconds = done_before, seconds


class Run:
    """Does what is not done of a plan; a task that fails stops only those that need it.

    Args:
        plan: what to do.
        watcher: gets the progress of every training here.
        started: called with every task that is begun here, before it starts.
        reporting: opened for each measurement here.
        heard: called with a task that has a process of its own and a line that it printed.
    """

    def __init__(
        self,
        plan: Plan,
        watcher: Watcher | None = None,
        started: Callable[[Task], None] = lambda task: None,
        reporting: Reporting = lambda: nullcontext(quiet),
        heard: Callable[[Task, str], None] = lambda task, line: None,
    ) -> None:
        self._plan, self._watcher, self._started, self._reporting, self._heard = (
            plan,
            watcher,
            started,
            reporting,
            heard,
        )
        self._failed: set[Task] = set()

    def outcomes(self, jobs: int = 1) -> Iterator[Outcome]:
        """Do the tasks, several at a time if asked for; yield how each ended.

        With several jobs, each training has a process of its own, which is `spanlm train … --resume auto`, and then so
        has each measurement of one model. Each computes with the same share of the threads, also where fewer are left:
        with other threads numbers round otherwise, and what was stopped would go on as another computation. The last
        rows of a paper take longest, so they are begun first. What needs several models is done here, at the end.

        Args:
            jobs: processes at a time, at least 1; on a GPU they share it.

        Raises:
            InputError: a file is no record, or that of another run, or a folder cannot be made; nothing was run.
            Interrupted: Ctrl-C or SIGTERM; trainings and searches are saved and go on at the same request.
        """
        plan, ended = self._plan, set[Task]()
        for task in plan.tasks:
            finished(task, plan.text_of(task))
        for option, folder in (("--runs", plan.request.runs), ("--out", plan.out)):
            make_folder(folder, option)
        threads = max(1, torch.get_num_threads() // min(jobs, len(plan.tasks)))
        for kind, command in ((Job, self._training), (Measurement, self._measuring)) if jobs > 1 else ():
            alone = [task for task in plan.tasks if isinstance(task, kind) and len(task.jobs) == 1]
            left = [task for task in alone if not (done_before(task, plan) or self._blocked(task))]
            commands = {task: [sys.executable, "-m", "spanlm", *command(task, threads)] for task in reversed(left)}
            for task, error in run_all(commands, jobs, self._heard):
                ended.add(task)
                yield self._outcome(task, error, elsewhere=True)
        for task in plan.tasks:
            if task not in ended:
                self._started(task)
                yield self._outcome(task)

    def _training(self, job: Task, threads: int) -> list[str]:
        """Return the arguments that train a row; its configuration is written beside its folder."""
        assert isinstance(job, Job)
        make_folder(job.folder.parent, "--runs")
        config = job.folder.with_suffix(".yaml")
        write_whole(config, job.config.to_yaml().encode())
        return ["train", f"--config={config}", f"--out={job.folder}", "--resume=auto", f"--threads={threads}"]

    def _measuring(self, task: Task, threads: int) -> list[str]:
        """Return the arguments that measure a trained row."""
        asked = replace(self._plan.request, rows=(task.row.name,), seeds=(task.jobs[0].seed,))
        return [*asked.words, "--no-tables", f"--threads={threads}"]

    def _outcome(self, task: Task, error: str = "", elsewhere: bool = False) -> Outcome:
        """Do what is left of a task, which may have had a process of its own that ended with an error."""
        began = time.perf_counter()
        try:
            before = done_before(task, self._plan)
            record = before
            if before is None and not (error := error or self._blocked(task)):
                record = self._do(task)
        except (Interrupted, BrokenPipeError):
            raise
        except (SpanlmError, OSError, RuntimeError, MemoryError, ValueError, KeyError) as problem:
            # RuntimeError: how the tensor library reports a device that is out of memory
            before, record, error = None, None, " ".join(str(problem).split()) or type(problem).__name__
        seconds = time.perf_counter() - began
        outcome = Outcome(task, record, "" if record else error, before is not None and not elsewhere, seconds)
        self._failed |= {task} if outcome.error else set()
        return outcome

    def _do(self, task: Task) -> dict[str, Any]:
        """Train unless it is trained, measure what was not measured, and return the record, which is kept."""
        corpus = self._plan.text_of(task)
        if isinstance(task, Measurement):
            with self._reporting() as report:
                return _save(task, _record_measurement(task, corpus, report))
        record = finished(task, corpus)
        missing = _missing(task, record or {})
        if record is None:
            train(task.config, corpus, task.folder, self._watcher, resume=True)
        model = _model(task, f", and its {', '.join(missing)} was not measured yet" if record else "")
        record = record or _save(task, _record_training(task, model, corpus))
        for name in missing:
            cloze = name == "cloze"
            record[name] = _cloze_accuracies(model, self._plan.questions) if cloze else _lag_shares(model, corpus)
            _save(task, record)
        return record

    def _blocked(self, task: Task) -> str:
        """Say which training that failed a task needs."""
        needed = (job for job in task.jobs if job in self._failed)
        return next((f"needs {job.row.name}, {job.seeds}, which failed" for job in needed), "")


def done_before(task: Task, plan: Plan) -> dict[str, Any] | None:
    """Return the record of a task of which nothing is left to do, with all that is to be measured.

    Raises:
        InputError: the file is no record, or that of another run.
    """
    record = finished(task, plan.text_of(task))
    return None if record is None or (isinstance(task, Job) and _missing(task, record)) else record


def finished_before(plan: Plan) -> list[Outcome]:
    """Return what was done before and not asked for, to be shown beside what was."""
    found = []
    for task in plan.others:
        with suppress(SpanlmError):  # of another configuration: not of this table
            if record := done_before(task, plan):
                found.append(Outcome(task, record, done_before=True))
    return found


def _missing(job: Job, record: Mapping[str, Any]) -> list[str]:
    """Return what is to be measured beside perplexity, which every record has, and was not yet."""
    return [measure for measure in job.measures if measure != "perplexity" and measure not in record]


def run_all(
    commands: Mapping[Name, Sequence[str]], jobs: int, heard: Callable[[Name, str], None] = lambda name, line: None
) -> Iterator[tuple[Name, str]]:
    """Run commands that need nothing of each other, `jobs` at a time, in their order.

    Args:
        commands: program and arguments, by name.
        jobs: how many at a time.
        heard: called with the name of a command and a line that it printed, one at a time.

    Returns:
        The name of each command when it has ended, and its error: the last line that it printed, or the signal that
        ended it; empty if it succeeded.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; every command was sent SIGTERM, and has ended.
    """
    running, lock, ending = set[subprocess.Popen[str]](), Lock(), False

    def run(name: Name) -> tuple[Name, str]:
        line, pipe = "", subprocess.PIPE
        how: dict[str, Any] = {"text": True, "errors": "backslashreplace", "stdin": subprocess.DEVNULL}
        with lock:
            if ending:
                return name, "was not begun"
            # a group of its own: a terminal's Ctrl-C is for this process, which passes it on
            process = subprocess.Popen(commands[name], stdout=pipe, stderr=subprocess.STDOUT, process_group=0, **how)
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


# --- how long it will take ---


class Estimator:
    """Estimates tasks of a plan from one training step of each kind of model: its encoder, memory and head.

    Time is taken to grow with the parameters. A token that is scored in batches costs a third of one in training, a
    pass forward in place of one forward and one backward; in a single stream as much as in training; one in dynamic
    evaluation what it costs in training steps of one stream.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._speeds: dict[Hashable, float] = {}

    def __call__(self, task: Task) -> tuple[float, int, float]:
        """Return seconds, epochs and tokens a second of a task from its start; of a measurement, 0 and 0.

        Nothing is written. Epochs are the most, with those of finetuning; patience may end a training earlier.

        Raises:
            InputError: it cannot be trained as it is.
            RunError: the loss or its gradient is soon not finite.
        """
        corpus, job = self._plan.text_of(task), task.jobs[0]
        train, valid, test = (len(corpus.splits[split]) for split in SPLITS)
        token = self._token(job)
        if isinstance(task, Job):
            training = job.config.training
            epochs = training.epochs + training.finetune.stages * training.finetune.epochs
            return token * (epochs * (train + _BATCHED * valid) + valid + test), epochs, 1 / token
        if task.search is None:
            return token * len(task.jobs) * (valid + test), 0, 0
        # valid is read by the trained weights once for the search and, as test, once for its result; by weights that
        # adapt as often as there are finalists, of which one is its result
        search = task.search
        points, first = len(search.grid(job.row.trained.dynamic)), min(search.first_tokens, valid)
        adapted = points * first + (max(min(search.finalists, points), 1) * valid if first < valid else 0) + test
        gathered = min(train, (search.statistics or math.inf) * STREAMS * LENGTH)
        return adapted * self._token(job, adapting=True) + token * (gathered + 2 * valid + test), 0, 0

    def _token(self, job: Job, adapting: bool = False) -> float:
        """Return the seconds of a token in training, or in a single stream of weights that adapt."""
        config = job.config
        kind = (
            config.model.encoder.kind,
            config.model.memory.kind,
            config.model.head.kind,
            config.data.lines,
            adapting,
        )
        if kind not in self._speeds:
            # on a processor a step of a large model takes a minute, and its share of the streams its share of that
            most = int(_WORK / (job.parameters.total * config.training.batching.length))
            streams = max(1, min(config.training.batching.batch_size, most))
            batching = replace(config.training.batching, batch_size=streams, group_size=None)
            batching = replace(batching, batch_size=1, length=LENGTH) if adapting else batching
            config = replace(config, training=replace(config.training, batching=batching))
            trainer = Trainer(config, self._plan.text_of(job), job.folder / "estimate", Watcher())
            steps = max(1, min(5, int(1e7 / job.parameters.total))) if adapting else 1
            segments = list(islice(trainer.batcher.segments(start=trainer.batcher.count() // 2), steps + 1))
            trainer.step(segments[0])  # which does what is done only once, and waits for the device, as every step
            began, timed = time.perf_counter(), segments[1:] or segments
            for segment in timed:
                trainer.step(segment)
            seconds = (time.perf_counter() - began) / sum(int(segment.mask.sum()) for segment in timed)
            self._speeds[kind] = seconds / job.parameters.total
        return self._speeds[kind] * job.parameters.total
