"""Rows that are measured on models that were trained for another row: with a cache, adapting, or several as one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from spanlm.data.corpora import Corpus
from spanlm.errors import InputError
from spanlm.evaluation.dynamic.evaluate import DivergedError
from spanlm.evaluation.scoring import Report, quiet
from spanlm.models.counting import count_parameters
from spanlm.reproduction.adapted import MEASURED, Results, adapted
from spanlm.reproduction.record import (
    ASTRAY,
    finished_record,
    read_record,
    recorded_config,
    refuse_another,
    save_record,
)
from spanlm.reproduction.tables import Averaged, Cached, Dynamic
from spanlm.reproduction.tasks import Job, Measurement
from spanlm.runs.ensemble import TrainedEnsemble
from spanlm.runs.loading import load
from spanlm.runs.trained_model import TrainedModel
from spanlm.store.plain import finite
from spanlm.store.provenance import provenance
from spanlm.store.run_folder import MODEL

_SHOWN = ("row", "how", "members", "corpus", "vocabulary_size", "all_parameters", "seconds", "starts", "details")


def finished_measurement(measurement: Measurement, corpus: Corpus) -> dict[str, Any] | None:
    """Return the record of a measurement that is done, or None; if its weights went astray, it has no results.

    Raises:
        InputError: the file is no record, or that of another configuration, text, or of models that are no longer
            those that were measured.
    """
    path = measurement.record
    if not path.exists():
        return None
    adapts = isinstance(measurement.how, Dynamic)
    record = read_record(path, corpus, measurement.config, _SHOWN, adapts=adapts)
    refuse_another(path, record["how"], _how(measurement), "how")
    if isinstance(measurement.how, Dynamic) and measurement.how.gate_temperature is not None:
        # earlier versions took the statistics of another likelihood
        found = _gate_of_statistics(record)
        refuse_another(path, found, measurement.how.gate_temperature, "details.statistics.gate_temperature")
    found = [finished_record(job, corpus) for job in measurement.jobs]
    members = [was if one is None else _member(one) for was, one in zip(record["members"], found, strict=False)]
    refuse_another(path, record["members"], members, "members")
    return record


def measure(measurement: Measurement, corpus: Corpus, report: Report = quiet) -> tuple[dict[str, Any], bool]:
    """Measure unless it is measured, and keep the record.

    Args:
        measurement: which.
        corpus: the text.
        report: told of the progress of dynamic evaluation.

    Returns:
        The record, and whether it was there before; a search that was stopped goes on. Where weights that adapted
        diverged it says so (`ASTRAY`) and what was tried, so that this is done once, too. Of a search that was stopped
        `details.read_before` has how many trials were there, and `seconds` has what these took, too.

    Raises:
        InputError: the record is another one's, or a model is not there; or the text is too short for the cache.
        RunError: the disk refused.
    """
    record = finished_measurement(measurement, corpus)
    if record is not None:
        return record, True
    members = [_trained(job, corpus) for job in measurement.jobs]
    models = [load(job.folder, job.config.training.device) for job in measurement.jobs]
    began = time.perf_counter()
    try:
        found = _measured(measurement, models, corpus, report)
    except DivergedError as error:
        sizes: dict[str, Any] = {split: {"tokens": len(corpus.splits[split])} for split in MEASURED}
        found = {ASTRAY: str(error), **sizes, "details": finite(error.details)}
    first = measurement.jobs[0]
    record = {
        "row": measurement.row,
        "preset": first.preset.name,
        "how": _how(measurement),
        "members": [_member(member) for member in members],
        "corpus": corpus.name,
        "notes": corpus.notes,
        "vocabulary_size": len(corpus.vocabulary),
        "all_parameters": sum(count_parameters(model.model).total for model in models),
        "seconds": round(time.perf_counter() - began + found["details"].get("seconds_before", 0.0), 1),
        **found,
        "starts": [provenance(models[0].model.device)],
        "config": recorded_config(first.config, corpus),
    }
    save_record(measurement.record, record)
    return record, False


def _gate_of_statistics(record: dict[str, Any]) -> object:
    found: Any = record["details"]
    for name in ("statistics", "gate_temperature"):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _how(measurement: Measurement) -> dict[str, Any]:
    how = {"kind": type(measurement.how).__name__.lower(), **asdict(measurement.how)}
    if measurement.search is None:
        return how
    search = asdict(measurement.search).items()
    return {**how, "search": {name: list(value) if isinstance(value, tuple) else value for name, value in search}}


def _member(record: dict[str, Any]) -> dict[str, Any]:
    """Return what tells a trained model from another."""
    return {name: record[name] for name in ("row", "seed")} | {split: record[split]["nll"] for split in MEASURED}


def _trained(job: Job, corpus: Corpus) -> dict[str, Any]:
    """Return the record of a job whose model is needed.

    Raises:
        InputError: it is not trained, or its run is elsewhere.
    """
    record = finished_record(job, corpus)
    if record is None:
        raise InputError(f"{job.record}: is not there: {job.row}, {job.seeds}, is not trained yet.")
    if not (job.folder / MODEL).exists():
        raise InputError(
            f"{job.folder}: the run of {job.record} is not there. Give its folder with --runs, or move the record away "
            "to train again."
        )
    return record


def _measured(
    measurement: Measurement, models: Sequence[TrainedModel], corpus: Corpus, report: Report
) -> dict[str, Any]:
    """Return a row's results, and the details of how they came about."""
    how, search = measurement.how, measurement.search
    if isinstance(how, Averaged):
        results, details = _averaged(models, corpus)
    elif isinstance(how, Cached):
        results, details = _cached(models[0], corpus, how)
    else:
        assert search is not None  # a plan gives it to every such measurement
        results, details = adapted(models[0], corpus, how, search, report, measurement.jobs[0].preset.dynamic)
    return {**{split: result.to_json() for split, result in results.items()}, "details": finite(details)}


def _cached(model: TrainedModel, corpus: Corpus, how: Cached) -> Results:
    """Tune a cache on valid; measure with it and without."""
    tuning = model.tune_cache((how.window,), corpus)
    results = {split: model.evaluate(corpus, split, cache=tuning.best) for split in MEASURED}
    return results, {"cache": tuning.best.to_json(), "tried": len(tuning.grid), "notes": tuning.notes}


def _averaged(models: Sequence[TrainedModel], corpus: Corpus) -> Results:
    """Measure the mixture, its members and the oracle bound."""
    ensemble = TrainedEnsemble(models)
    found = {split: ensemble.evaluate_members(corpus, split) for split in MEASURED}
    details: dict[str, Any] = {
        split: {
            "members": [member.perplexity for member in result.members],
            "oracle_bound": result.oracle_bound.bound,
        }
        for split, result in found.items()
    }
    return {split: result.ensemble for split, result in found.items()}, details
