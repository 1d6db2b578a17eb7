"""Running a plan; the record of each task says what made it and what it measured. All choices are made on valid."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from spanlm.analysis.attend import attention_by_lag
from spanlm.analysis.compare import text_blocks
from spanlm.analysis.export import write_whole
from spanlm.analysis.utilisation import utilisation_of
from spanlm.config import RunConfig, first_difference
from spanlm.data.cbt import Defect, is_cbt_like, word_class
from spanlm.data.config import SPLITS, Split
from spanlm.data.corpora import Corpus
from spanlm.data.synthetic import PREFIX
from spanlm.errors import InputError, Interrupted, RunError, SpanlmError
from spanlm.jobs import ONE_BY_ONE, Engine, of_spanlm
from spanlm.models.counting import count_parameters
from spanlm.papers.paper import Averaged, Cached, Dynamic
from spanlm.papers.plan import Plan, Task
from spanlm.runs.ensemble import TrainedEnsemble
from spanlm.runs.loading import load
from spanlm.runs.model import TrainedModel, require_weights
from spanlm.scoring.cloze import ClozeTally
from spanlm.scoring.dynamic.evaluate import DivergedError
from spanlm.scoring.dynamic.statistics import LENGTH, STREAMS
from spanlm.scoring.dynamic.tuning import dynamic_grid
from spanlm.scoring.excess import law_bits
from spanlm.scoring.perplexity import Evaluation
from spanlm.scoring.resampling import blocks_of
from spanlm.scoring.stream import Report, quiet
from spanlm.store.files import make_folder
from spanlm.store.plain import finite, json_object
from spanlm.store.provenance import provenance, starts
from spanlm.store.run_folder import METRICS, MODEL, epoch_rows
from spanlm.training.bench import idle_trainer, timed
from spanlm.training.progress import Watcher, training_seconds
from spanlm.training.run import last_position, train, words_of

MEASURED: tuple[Split, ...] = SPLITS[1:]  # every row is evaluated on these parts
DIVERGED = "astray"  # in the record of a measurement that diverged, which has no perplexities: the reason
_DEFECTS_SHOWN = 20  # records keep the first defects of questions in words, and count all
_BATCHED = 1 / 3  # cost of a token scored in batches, relative to one in training
_WORK = 1e9  # a timed step has at most this many tokens times parameters


def finished(task: Task, corpus: Corpus) -> dict[str, Any] | None:
    """Return the record of a finished task, or None. Where dynamic evaluation diverged, it has no results.

    Raises:
        InputError: the file is not a record, or it records another configuration, text or set of models.
    """
    if not task.record.exists():
        return None
    config = task.config
    now: dict[str, Any] = {"corpus": corpus.name, "vocabulary_size": len(corpus.vocabulary)}
    now |= {split: {"tokens": len(corpus.splits[split])} for split in MEASURED}
    try:
        record = _read(task)
        recorded = RunConfig.from_tree(record["config"], str(task.record))
        was = {name: record[name] for name in now} | {s: {"tokens": record[s]["tokens"]} for s in MEASURED}
        texts: dict[str, str] = next((start["texts"] for start in reversed(record["starts"]) if start.get("texts")), {})
        was["text"], now["text"] = (
            {split: one[split] for split in texts.keys() & corpus.texts.keys()} for one in (texts, corpus.texts)
        )
        if task.models:
            now["how"], was["how"], was["members"] = _how(task), record["how"], record["members"]
            both = zip(task.jobs, was["members"], strict=False)
            now["members"] = [_member(_read(job)) if job.record.exists() else old for job, old in both]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{task.record}: is not a record of a run. Move it away, or choose another --out.") from None
    # the device and the place of the text do not distinguish finished runs
    recorded = replace(recorded, training=replace(recorded.training, device=config.training.device))
    one, other = (replace(c, data=replace(c.data.compared, corpus=corpus.name)) for c in (recorded, config))
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
    if not (isinstance(task.row.evaluation, Dynamic) and isinstance(record.get(DIVERGED), str) and record[DIVERGED]):
        _ = [float(record[split]["perplexity"]) for split in MEASURED]
    return record


def _how(task: Task) -> dict[str, Any]:
    how = {"kind": type(task.row.evaluation).__name__.lower(), **asdict(task.row.evaluation)}
    # with lists for tuples, as JSON has them
    return how | ({"search": json.loads(json.dumps(asdict(task.search)))} if task.search else {})


def _member(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("row", "seed")} | {split: record[split]["nll"] for split in MEASURED}


def _save(task: Task, record: dict[str, Any]) -> dict[str, Any]:
    task.record.parent.mkdir(parents=True, exist_ok=True)
    content = (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode(errors="backslashreplace")
    write_whole(task.record, content)
    return record


def _about(task: Task, corpus: Corpus) -> dict[str, Any]:
    """Return what all records have; a corpus by its name, since where it lies is the machine's own."""
    config = task.jobs[0].config
    return {
        "preset": task.row.preset.name,
        "corpus": corpus.name,
        "notes": corpus.notes,
        "vocabulary_size": len(corpus.vocabulary),
        "config": replace(config, data=replace(config.data, corpus=corpus.name, dir=None)).to_tree(),
    }


def _record_training(job: Task, model: TrainedModel, corpus: Corpus) -> dict[str, Any]:
    """Evaluate a trained model on valid, and on test, on which no choice depends."""
    epochs, position = epoch_rows(model.folder), last_position(model.folder)
    if position is not None and len(epochs) != position.epoch:
        raise RunError(
            f"{model.folder / METRICS}: has {len(epochs)} of {position.epoch} epochs, and the record is made of them. "
            "Put it back, or remove the folder to train the row again."
        )
    best = min(epochs, key=lambda row: row["loss"])
    use = utilisation_of(epochs, "the run")  # Li et al. (2020), Figure 4
    by_epoch = use and {"utilisation_by_epoch": list(use.learned), "oracle_utilisation_by_epoch": list(use.oracle)}
    return {
        "paper": job.row.preset.paper,
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
        "training_seconds": round(training_seconds(epochs, len(corpus.splits["train"])), 1),
        **{split: model.evaluate(corpus, split).to_json() for split in MEASURED},
        **(by_epoch or {}),
        **_law(corpus),
        "blocks": _blocks(model, corpus),
        "starts": starts(model.folder),
        **_about(job, corpus),
    }


def _blocks(model: TrainedModel, corpus: Corpus) -> dict[str, Any]:
    """Return the bits of each block of the test text, from which tables say how sure their order is."""
    tokens = corpus.splits["test"]
    try:
        blocks = blocks_of(len(tokens), np.asarray(tokens.documents, np.int64))
    except InputError:  # too short a text for two
        return {}
    protocol = model.texts.protocol(corpus, "test")
    log_p = [block.numpy().astype(np.float64) for block in text_blocks(model.model, corpus, "test", protocol)]
    together = np.zeros(len(tokens), np.int64)
    bits = blocks.sums(together, 1, -np.concatenate(log_p) / math.log(2))
    counts = blocks.sums(together, 1)
    return {
        "are": blocks.description,
        "tokens": [int(count) for (count,) in counts],
        "bits": [round(bit, 3) for (bit,) in bits.tolist()],
    }


def _law(corpus: Corpus) -> dict[str, Any]:
    known = corpus.name.startswith(PREFIX)
    return {"law": {split: law_bits(corpus, split) for split in MEASURED}} if known else {}


def _cloze_accuracies(model: TrainedModel, questions: Sequence[Path]) -> dict[str, Any]:
    tallies, defects = defaultdict[str, ClozeTally](ClozeTally), list[str]()
    for path in questions:
        tally = tallies[word_class(path)]
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
    found = attention_by_lag(model.model, protocol.batcher(corpus, "test"))
    shares = {"lags": list(found.lags), "nearest_lag": found.nearest_lag, "percent": list(found.percent)}
    return {"split": "test", **shares, "positions": found.positions, "left_out": found.left_out}


def _record_measurement(task: Task, corpus: Corpus, report: Report) -> dict[str, Any]:
    """Measure trained models; a search that was stopped goes on, and `seconds` has the time before, too.

    If dynamic evaluation diverges, the record has the reason (`DIVERGED`) and the settings that were tried; it is not
    tried again.
    """
    members = [_member(_read(job)) for job in task.jobs]
    models = [_model(job) for job in task.jobs]
    details: dict[str, Any] = {}
    results: dict[str, Any] = {}
    began = time.perf_counter()
    try:
        for split, result in _evaluated(task, models, corpus, details, report):
            results[split] = result.to_json()
    except DivergedError as error:
        details = error.details | details | {"measured": results}
        results = {DIVERGED: str(error)} | {split: {"tokens": len(corpus.splits[split])} for split in MEASURED}
    return {
        "row": task.row.name,
        "how": _how(task),
        "members": members,
        "all_parameters": sum(count_parameters(model.model).total for model in models),
        "seconds": round(time.perf_counter() - began + details.get("seconds_before", 0.0), 1),
        **results,
        **_law(corpus),
        "details": finite(details),
        "starts": [provenance(models[0].model.device)],
        **_about(task, corpus),
    }


def _evaluated(
    task: Task, models: Sequence[TrainedModel], corpus: Corpus, details: dict[str, Any], report: Report
) -> Iterator[tuple[Split, Evaluation]]:
    """Yield the evaluation of each part as the row says, and put into `details` how it came about."""
    how, model = task.row.evaluation, models[0]
    options: dict[str, Any] = {}
    if isinstance(how, Averaged):
        ensemble = TrainedEnsemble(models)
        for split in MEASURED:
            found = ensemble.evaluate_members(corpus, split)
            alone = [member.perplexity for member in found.members]
            details[split] = {"members": alone, "oracle_bound": found.oracle_bound.bound}
            yield split, found.ensemble
        return
    if isinstance(how, Cached):
        cache = model.tune_cache((how.window,), corpus)
        details |= {"cache": cache.best.to_json(), "tried": len(cache.grid), "notes": cache.notes}
        options = {"cache": cache.best}
    elif isinstance(how, Dynamic) and (search := task.search):
        if how.gate_temperature is not None:
            model = model.at_gate_temperature(how.gate_temperature)
        gathered = model.dynamic_statistics(segments=search.statistics, data_dir=model.config.data.dir, report=report)
        # `origin` names the machine's paths
        details["statistics"] = {name: value for name, value in gathered.to_json().items() if name != "origin"}
        options = asdict(search) | {"statistics": gathered, "report": report}
        tuning = model.tune_dynamic(corpus, "valid", also=search.own_point(task.row.preset.dynamic), **options)
        tuned = tuning.to_json()
        details |= {"dynamic": tuned["best"], "tried": len(tuning.grid), "grid": tuned["grid"], "notes": tuning.notes}
        if tuning.read_before:
            details |= {"read_before": tuning.read_before, "seconds_before": round(tuning.seconds_before, 1)}
        options = {"dynamic": tuning.best, "statistics": gathered, "report": report}
    for split in MEASURED:
        yield split, model.evaluate(corpus, split, **options)


def _model(job: Task, why: str = "") -> TrainedModel:
    """Load a trained model; the error where it is missing says `why` it is needed."""
    if not (job.folder / MODEL).exists():
        raise InputError(
            f"{job.folder}: the run of {job.record} is not there{why}. Give its folder with --runs, or move the record "
            "away to train again."
        )
    return require_weights(load(job.folder, job.config.training.device), str(job.record))


@dataclass
class Outcome:
    """How a task ended."""

    task: Task
    record: dict[str, Any] | None  # None: it failed; a record without results is kept on disk alone
    error: str = ""  # why it failed
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
        for option, folder in (("--runs", plan.request.runs), ("--out", plan.out)):
            make_folder(folder, option)
        threads = engine.threads(len(plan.tasks))
        for measuring in () if engine.here else (False, True):
            alone = [task for task in plan.tasks if bool(task.models) == measuring and len(task.jobs) == 1]
            left = [task for task in reversed(alone) if not (done_before(task, plan) or self._blocked(task))]
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
        if task.models:
            asked = replace(self.plan.request, rows=(task.row.name,), seeds=(task.seed,))
            words = [*asked.words, "--no-tables"]
        else:
            words = words_of(task.config, task.folder, task.folder.with_suffix(".yaml"))
        return of_spanlm(words, threads)

    def _outcome(self, task: Task, error: str = "", elsewhere: bool = False) -> Outcome:
        began = time.perf_counter()
        try:
            record = before = done_before(task, self.plan)
            if before is None and not (error := error or self._blocked(task)):
                record = self._do(task)
        except (Interrupted, BrokenPipeError):
            raise
        except (SpanlmError, OSError, RuntimeError, MemoryError, ValueError, KeyError) as problem:
            # RuntimeError: how the tensor library reports a device that is out of memory
            before, record, error = None, None, " ".join(str(problem).split()) or type(problem).__name__
        seconds = time.perf_counter() - began
        outcome = Outcome(task, record, "" if record else error, before is not None and not elsewhere, seconds)
        self.failed |= {task} if outcome.error else set()
        return outcome

    def _do(self, task: Task) -> dict[str, Any]:
        corpus = self.plan.text_of(task)
        if task.models:
            with self.reporting() as report:
                return _save(task, _record_measurement(task, corpus, report))
        record = finished(task, corpus)
        missing = _missing(task, record or {})
        if record is None:
            train(task.config, corpus, task.folder, self.watcher, resume=True)
        model = _model(task, f", and its {', '.join(missing)} was not measured yet" if record else "")
        record = record or _save(task, _record_training(task, model, corpus))
        measures: dict[str, Callable[[], Any]] = {
            "cloze": lambda: _cloze_accuracies(model, self.plan.questions),
            "excess": lambda: [one.to_json() for one in model.excess(corpus)],
            "attention": lambda: _lag_shares(model, corpus),
        }
        for name in missing:
            record[name] = measures[name]()
            _save(task, record)
        return record

    def _blocked(self, task: Task) -> str:
        needed = (job for job in task.jobs if job in self.failed)
        return next((f"needs {job.row.name}, {job.seeds}, which failed" for job in needed), "")


def _missing(job: Task, record: Mapping[str, Any]) -> list[str]:
    return [measure for measure in job.measures if measure != "perplexity" and measure not in record]


def done_before(task: Task, plan: Plan) -> dict[str, Any] | None:
    """Return the record of a task with nothing left to do, or None; errors as of `finished`."""
    record = finished(task, plan.text_of(task))
    return None if record is None or (not task.models and _missing(task, record)) else record


def finished_before(plan: Plan) -> list[Outcome]:
    """Return the plan's other tasks that are done; they are shown beside those that were asked for."""
    found = []
    for task in plan.others:
        with suppress(SpanlmError):  # a record of another configuration is not of this table
            if record := done_before(task, plan):
                found.append(Outcome(task, record, done_before=True))
    return found


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
        train, valid, test = (len(corpus.splits[split]) for split in SPLITS)
        token = self._token(job)
        if not task.models:
            training = job.config.training
            epochs = training.epochs + training.finetune.stages * training.finetune.epochs
            return token * (epochs * (train + _BATCHED * valid) + valid + test), epochs, 1 / token
        if search is None:
            tuning = valid if isinstance(task.row.evaluation, Cached) else 0
            return token * len(task.jobs) * (tuning + valid + test), 0, 0
        # the trained weights read valid for the search and, as test, for the result; adapting weights read it once for
        # each finalist, one of which is the result
        grid = [*dynamic_grid(search.rates, search.decays), *search.own_point(job.row.preset.dynamic)]
        points, first = len(grid), min(search.first_tokens, valid)
        adapted = points * first + (max(min(search.finalists, points), 1) * valid if first < valid else 0) + test
        gathered = min(train, (search.statistics or math.inf) * STREAMS * LENGTH)
        return adapted * self._token(job, adapting=True) + token * (gathered + 2 * valid + test), 0, 0

    def _token(self, job: Task, adapting: bool = False) -> float:
        config, model, parameters = job.config, job.config.model, job.parameters.total
        kind = (model.encoder.kind, model.memory.kind, model.head.kind, config.data.lines, adapting)
        if kind not in self._speeds:
            streams, length = config.training.batching.batch_size, config.training.batching.length
            # on a processor a step of a large model takes a minute, and a share of its streams that share of a minute
            streams = min(streams, max(1, int(_WORK / (parameters * length))))
            streams, length = (1, LENGTH) if adapting else (streams, length)
            batching = replace(config.training.batching, batch_size=streams, length=length, group_size=None)
            config = replace(config, training=replace(config.training, batching=batching))
            trainer, steps = idle_trainer(config, self.plan.text_of(job)), 1
            if adapting:
                steps = max(1, min(5, int(1e7 / parameters)))
            first, *segments = islice(trainer.batcher.segments(start=trainer.batcher.count() // 2), steps + 1)
            trainer.step(first)  # does what is done only once
            segments = segments or [first]
            seconds = sum(timed(partial(trainer.step, segment), trainer.device)[0] for segment in segments)
            seconds /= sum(int(segment.mask.sum()) for segment in segments)
            self._speeds[kind] = seconds / parameters
        return self._speeds[kind] * parameters
