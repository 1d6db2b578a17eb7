"""The record of a finished row: what it is, what made it, and what it measured; the test part is read once."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from spanlm.analysis.attend import attention_by_lag
from spanlm.analysis.export import write_whole
from spanlm.analysis.utilisation import epoch_rows, utilisation_of
from spanlm.config import RunConfig, first_difference
from spanlm.data.cbt import Defect, is_cbt_like, word_class
from spanlm.data.config import SPLITS, Split
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError
from spanlm.evaluation.cloze import ClozeTally
from spanlm.evaluation.dynamic.evaluate import DivergedError
from spanlm.evaluation.perplexity import Evaluation
from spanlm.evaluation.scoring import Report, quiet
from spanlm.models.counting import count_parameters
from spanlm.models.language_model import LanguageModel
from spanlm.reproduction.papers import Averaged, Cached, Dynamic
from spanlm.reproduction.plan import Job, Measurement, Task
from spanlm.runs.ensemble import TrainedEnsemble
from spanlm.runs.loading import load
from spanlm.runs.trained_model import TrainedModel
from spanlm.store.plain import finite, json_object
from spanlm.store.provenance import provenance, starts
from spanlm.store.run_folder import MODEL

MEASURED: tuple[Split, ...] = SPLITS[1:]
"""The parts that every row is measured on."""

ASTRAY = "astray"
"""Of the record of a measurement that has no perplexities: why it has none."""

_KEYS: dict[type, str] = {
    Job: "corpus vocabulary_size seed model_parameters units readout epochs best_epoch train_perplexity_at_best "
    "tokens_per_second training_seconds starts",
    Measurement: "row how members corpus vocabulary_size all_parameters seconds starts details",
}
"""What every record has, beside the perplexities."""

_DEFECTS_SHOWN = 20
"""Defects of questions that are kept in words; all are counted."""

_Results = tuple[dict[Split, Evaluation], dict[str, Any]]
"""By part, and how they came about."""


def finished(task: Task, corpus: Corpus) -> dict[str, Any] | None:
    """Return the record of a task that is done, or None; if its weights diverged, it has no results.

    Raises:
        InputError: the file is no record, or that of another configuration, text, or of models that are no longer
            those that were measured.
    """
    path = task.record
    if not path.exists():
        return None
    record = _read(task)
    try:
        recorded = RunConfig.from_tree(record["config"], str(path))
    except ValueError:
        raise _damaged(path) from None
    # how a device is asked for, and where the text lies, make no other run of one that is finished
    one, other = (replace(c, data=replace(c.data.compared, corpus=corpus.name)) for c in (recorded, task.config))
    one = replace(one, training=replace(one.training, device=task.config.training.device))
    sizes: dict[str, int] = {split: len(corpus.splits[split]) for split in MEASURED}
    text = {"name": corpus.name, "vocabulary_size": len(corpus.vocabulary), **sizes}
    was = {"corpus": _text(record), **one.to_tree()}
    now = {"corpus": text, **other.to_tree()}
    if isinstance(task, Measurement):
        both = zip(record["members"], task.jobs, strict=False)
        members = [_member(_read(job)) if job.record.exists() else old for old, job in both]
        was |= {"how": record["how"], "members": record["members"]}
        now |= {"how": _how(task), "members": members}
    if difference := first_difference(was, now):
        field, old, new = difference
        raise InputError(
            f"{path}: is the result of another run: {field} was {old}, not {new}. Move it away, or choose "
            "another --out (and --runs)."
        )
    return record


def _read(task: Task) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json_object(task.record.read_text(encoding="utf-8"))
        _ = _text(record), record["config"], [record[name] for name in _KEYS[type(task)].split()]
        adapts = isinstance(task, Measurement) and isinstance(task.how, Dynamic)
        if not (adapts and isinstance(record.get(ASTRAY), str) and record[ASTRAY]):
            _ = [float(record[split]["perplexity"]) for split in MEASURED]
    except (OSError, ValueError, KeyError, TypeError):
        raise _damaged(task.record) from None
    return record


def _damaged(path: Path) -> InputError:
    return InputError(f"{path}: is not a record of a run. Move it away, or choose another --out.")


def _text(record: dict[str, Any]) -> dict[str, Any]:
    """Return what identifies the text of a record."""
    sizes: dict[str, Any] = {split: record[split]["tokens"] for split in MEASURED}
    return {"name": record["corpus"], "vocabulary_size": record["vocabulary_size"], **sizes}


def _how(task: Measurement) -> dict[str, Any]:
    how = {"kind": type(task.how).__name__.lower(), **asdict(task.how)}
    if task.search is None:
        return how
    search = asdict(task.search).items()
    return {**how, "search": {name: list(value) if isinstance(value, tuple) else value for name, value in search}}


def _member(record: dict[str, Any]) -> dict[str, Any]:
    """Return what tells a trained model from another."""
    return {name: record[name] for name in ("row", "seed")} | {split: record[split]["nll"] for split in MEASURED}


def save(path: Path, record: dict[str, Any]) -> None:
    """Write a record.

    Raises:
        InputError: not allowed to write there.
        RunError: the disk refused.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())


def record_training(job: Job, model: TrainedModel, corpus: Corpus) -> dict[str, Any]:
    """Evaluate a trained model on valid and, this once, on test; keep and return all there is to say of the run."""
    epochs = epoch_rows(model.folder)
    best = min(epochs, key=lambda row: row["loss"])
    assert isinstance(model.model, LanguageModel), "a row is one model"
    tokens = len(corpus.splits["train"])
    seconds = sum(tokens / row["tokens_per_second"] for row in epochs)  # of all training steps, validation left out
    use = utilisation_of(epochs, "the run")  # Li et al. (2020), Figure 4
    by_epoch = use and {"utilisation_by_epoch": list(use.learned), "oracle_utilisation_by_epoch": list(use.oracle)}
    record = {
        "paper": job.preset.paper,
        "preset": job.preset.name,
        "row": job.row,
        "seed": job.seed,
        "corpus": corpus.name,
        "notes": corpus.notes,
        "vocabulary_size": len(corpus.vocabulary),
        "model_parameters": job.parameters.model,
        "all_parameters": job.parameters.total,
        "units": job.config.model.encoder.output_size,
        "readout": model.model.memory.readout_size,
        "epochs": len(epochs),
        "best_epoch": best["epoch"],
        "train_perplexity_at_best": math.exp(min(best["train_loss"], 700)),
        "tokens_per_second": statistics.median(row["tokens_per_second"] for row in epochs),
        "training_seconds": round(seconds, 1),
        "valid": model.evaluate(corpus, "valid").to_json(),
        "test": model.evaluate(corpus, "test").to_json(),
        **(by_epoch or {}),
        "starts": starts(model.folder),
        "config": _recorded_config(job.config, corpus),
    }
    save(job.record, record)
    return record


def _recorded_config(config: RunConfig, corpus: Corpus) -> dict[str, Any]:
    """Return a configuration as records have it: the corpus by its name, since where it lies is the machine's own."""
    return replace(config, data=replace(config.data, corpus=corpus.name, dir=None)).to_tree()


def cloze_accuracies(model: TrainedModel, questions: Sequence[Path]) -> dict[str, Any]:
    """Rank the candidates of every question with its whole context; return accuracies by word class as plain values.

    Raises:
        InputError: a file cannot be read, or holds no question.
    """
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


def lag_shares(model: TrainedModel, corpus: Corpus) -> dict[str, Any]:
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


def record_measurement(task: Measurement, corpus: Corpus, report: Report = quiet) -> dict[str, Any]:
    """Measure trained models, and keep the record; a search that was stopped goes on.

    Where weights that adapted diverged the record says so (`ASTRAY`), and what was tried, so that this is done once,
    too. Of a search that was stopped `details.read_before` has how many trials were there, and `seconds` has what these
    took, too.

    Raises:
        InputError: a model is not there, or the text is too short for the cache.
        RunError: the disk refused.
    """
    members = [_trained(job, corpus) for job in task.jobs]
    models = [load(job.folder, job.config.training.device) for job in task.jobs]
    began = time.perf_counter()
    try:
        if isinstance(task.how, Averaged):
            results, details = _averaged(models, corpus)
        elif isinstance(task.how, Cached):
            results, details = _cached(models[0], corpus, task.how)
        else:
            results, details = adapted(task, models[0], corpus, report)
        found: dict[str, Any] = {split: result.to_json() for split, result in results.items()}
        found["details"] = finite(details)
    except DivergedError as error:
        sizes: dict[str, Any] = {split: {"tokens": len(corpus.splits[split])} for split in MEASURED}
        found = {ASTRAY: str(error), **sizes, "details": finite(error.details)}
    first = task.jobs[0]
    record = {
        "row": task.row,
        "preset": first.preset.name,
        "how": _how(task),
        "members": [_member(member) for member in members],
        "corpus": corpus.name,
        "notes": corpus.notes,
        "vocabulary_size": len(corpus.vocabulary),
        "all_parameters": sum(count_parameters(model.model).total for model in models),
        "seconds": round(time.perf_counter() - began + found["details"].get("seconds_before", 0.0), 1),
        **found,
        "starts": [provenance(models[0].model.device)],
        "config": _recorded_config(first.config, corpus),
    }
    save(task.record, record)
    return record


def _trained(job: Job, corpus: Corpus) -> dict[str, Any]:
    """Return the record of a job whose model is needed."""
    record = finished(job, corpus)
    if record is None:
        raise InputError(f"{job.record}: is not there: {job.row}, {job.seeds}, is not trained yet.")
    require_run(job, "")
    return record


def require_run(job: Job, why: str) -> None:
    """Refuse a run that has a record, but whose model is elsewhere; the error adds `why` its model is needed."""
    if not (job.folder / MODEL).exists():
        raise InputError(
            f"{job.folder}: the run of {job.record} is not there{why}. Give its folder with --runs, or move the record "
            "away to train again."
        )


def _cached(model: TrainedModel, corpus: Corpus, how: Cached) -> _Results:
    """Tune a cache on valid; measure with it and without."""
    tuning = model.tune_cache((how.window,), corpus)
    results = {split: model.evaluate(corpus, split, cache=tuning.best) for split in MEASURED}
    return results, {"cache": tuning.best.to_json(), "tried": len(tuning.grid), "notes": tuning.notes}


def _averaged(models: Sequence[TrainedModel], corpus: Corpus) -> _Results:
    """Measure the mixture, its members and the oracle bound."""
    ensemble = TrainedEnsemble(models)
    found = {split: ensemble.evaluate_members(corpus, split) for split in MEASURED}
    details: dict[str, Any] = {}
    for split, result in found.items():
        members = [member.perplexity for member in result.members]
        details[split] = {"members": members, "oracle_bound": result.oracle_bound.bound}
    return {split: result.ensemble for split, result in found.items()}, details


def adapted(task: Measurement, model: TrainedModel, corpus: Corpus, report: Report) -> _Results:
    """Measure a model with dynamic evaluation: settings are found on valid, then valid and, this once, test are read.

    Raises:
        InputError: the text of the training is not there, and no statistics that were gathered on it.
        DivergedError: the weights diverged, at every setting on valid or at the chosen one; has what was tried.
    """
    how, search = task.how, task.search
    assert isinstance(how, Dynamic) and search is not None  # a plan gives it to every such measurement
    if how.gate_temperature is not None:
        model = model.at_gate_temperature(how.gate_temperature)
    where = model.config.data.dir
    statistics = model.dynamic_statistics(segments=search.statistics, data_dir=where, report=report)
    gathered = {name: value for name, value in statistics.to_json().items() if name != "origin"}  # a machine's paths
    details: dict[str, Any] = {"statistics": gathered}
    results: dict[Split, Evaluation] = {}
    try:
        tuning = model.tune_dynamic(
            corpus,
            "valid",
            rates=search.rates,
            decays=search.decays,
            also=search.own_point(task.jobs[0].preset.dynamic),
            first_tokens=search.first_tokens,
            finalists=search.finalists,
            statistics=statistics,
            report=report,
        )
        tuned = tuning.to_json()
        chosen = {"dynamic": tuned["best"], "tried": len(tuning.grid), "grid": tuned["grid"], "notes": tuning.notes}
        details = {**chosen, **details}
        if tuning.read_before:
            details |= {"read_before": tuning.read_before, "seconds_before": round(tuning.seconds_before, 1)}
        for split in MEASURED:
            results[split] = model.evaluate(corpus, split, dynamic=tuning.best, statistics=statistics, report=report)
    except DivergedError as error:
        measured = {split: result.to_json() for split, result in results.items()}
        raise DivergedError(str(error), {**error.details, **details, "measured": measured}) from None
    return results, details
