"""Records of tasks: what made each, and what it measured. All choices are made on valid."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from spanlm.analysis.attend import attention_by_lag, excerpt
from spanlm.analysis.compare import text_blocks
from spanlm.analysis.curves import utilisation_of
from spanlm.analysis.export import write_whole
from spanlm.analysis.snapshots import snapshot_of
from spanlm.config import RunConfig, first_difference
from spanlm.data.cbt import Defect, is_cbt_like, word_class
from spanlm.data.config import SPLITS, Split
from spanlm.data.corpora import Corpus
from spanlm.data.synthetic import PREFIX
from spanlm.errors import InputError, RunError, named
from spanlm.models.counting import count_parameters
from spanlm.options import read_group
from spanlm.papers.paper import Averaged, Cached, Dynamic, Measure, Nearest
from spanlm.papers.plan import Task
from spanlm.runs.ensemble import TrainedEnsemble
from spanlm.runs.loading import load
from spanlm.runs.model import Model, TrainedModel, require_weights
from spanlm.runs.ngram import ARPA, NgramRun
from spanlm.scoring.attention import attention_record
from spanlm.scoring.cloze import ClozeTally
from spanlm.scoring.dynamic.evaluate import DivergedError
from spanlm.scoring.excess import law_bits
from spanlm.scoring.ngram.config import NgramRunConfig
from spanlm.scoring.perplexity import Evaluation
from spanlm.scoring.resampling import blocks_of
from spanlm.scoring.stream import Report
from spanlm.store.plain import finite, json_object
from spanlm.store.provenance import provenance, starts
from spanlm.store.run_folder import METRICS, MODEL, epoch_rows
from spanlm.training.progress import training_seconds
from spanlm.training.run import last_position

MEASURED: tuple[Split, ...] = SPLITS[1:]  # every row is evaluated on these parts
DIVERGED = "astray"  # in the record of a measurement that diverged, which has no perplexities: the reason
_DEFECTS_SHOWN = 20  # records keep the first defects of questions in words, and count all


def finished(task: Task, corpus: Corpus) -> dict[str, Any] | None:
    """Return the record of a finished task, or None. Where dynamic evaluation diverged, it has no results.

    Raises:
        InputError: the file is not a record, or it records another configuration, text or set of models.
    """
    if not task.record.exists():
        return None
    expected: dict[str, Any] = {"corpus": corpus.name, "vocabulary_size": len(corpus.vocabulary)}
    try:
        record = _read(task)
        recorded = {name: record[name] for name in expected}
        recorded |= {split: {"tokens": record[split]["tokens"]} for split in MEASURED}
        expected |= {split: {"tokens": len(corpus.splits[split])} for split in MEASURED}
        texts: dict[str, str] = next((start["texts"] for start in reversed(record["starts"]) if start.get("texts")), {})
        splits = texts.keys() & corpus.texts.keys()
        recorded["text"] = {split: texts[split] for split in splits}
        expected["text"] = {split: corpus.texts[split] for split in splits}
        if task.models:
            recorded |= {"how": record["how"], "members": record["members"]}
            members = zip(task.jobs, record["members"], strict=False)
            now = [_member(_read(job)) if job.record.exists() else member for job, member in members]
            expected |= {"how": _how(task), "members": now}
        tree = record["config"]
        config = RunConfig.from_tree(tree, str(task.record)) if "model" in tree else read_group(NgramRunConfig, tree)
        recorded |= _compared(config, task, corpus)
    except (OSError, ValueError, KeyError, TypeError):
        way_out = f"Move it away, or choose another {named('out')}."
        raise InputError(f"{task.record}: is not a record of a run. {way_out}") from None
    if difference := first_difference(recorded, expected | _compared(task.config, task, corpus)):
        name, before, after = difference
        raise InputError(
            f"{task.record}: is the result of another run: {name} was {before}, not {after}. Move it away, or choose "
            f"another {named('out')} (and {named('runs')})."
        )
    return record


def _compared(config: RunConfig | NgramRunConfig, task: Task, corpus: Corpus) -> dict[str, Any]:
    """Return a configuration without the device and the place of the text, which do not distinguish finished runs."""
    if isinstance(config, RunConfig) and isinstance(task.config, RunConfig):
        config = replace(config, training=replace(config.training, device=task.config.training.device))
    return replace(config, data=replace(config.data.compared, corpus=corpus.name)).to_tree()


def _read(task: Task) -> dict[str, Any]:
    record = json_object(task.record.read_text(encoding="utf-8"))
    _ = record["row"], record["starts"]
    if not (isinstance(task.row.evaluation, Dynamic) and isinstance(record.get(DIVERGED), str) and record[DIVERGED]):
        _ = [float(record[split]["perplexity"]) for split in MEASURED]
    return record


def _how(task: Task) -> dict[str, Any]:
    settings = {"kind": type(task.row.evaluation).__name__.lower(), **asdict(task.row.evaluation)}
    # with lists for tuples, as JSON has them
    return settings | ({"search": json.loads(json.dumps(asdict(task.search)))} if task.search else {})


def _member(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("row", "seed")} | {split: record[split]["nll"] for split in MEASURED}


def save(task: Task, record: dict[str, Any]) -> dict[str, Any]:
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


def record_run(job: Task, model: Model, corpus: Corpus, seconds: float) -> dict[str, Any]:
    """Evaluate the model of a run on valid, and on test, on which no choice depends.

    An n-gram model was counted in so many seconds, 0 if it was before; a cache's share is chosen on valid.
    """
    if isinstance(model, NgramRun):
        training, cache = {"ngrams": model.size, "training_seconds": round(seconds, 1)}, model.model.cache
        more = {"details": {"cache": {"window": cache.window, "lambda": cache.share}}} if cache else {}
    else:
        training, more = _training(job, require_weights(model, str(job.record)), corpus)
    return {
        "paper": job.row.preset.paper,
        "row": job.row.name,
        **training,
        **{split: model.evaluate(corpus, split).to_json() for split in MEASURED},
        **more,
        **_law(corpus),
        "blocks": _blocks(model, corpus),
        "starts": starts(model.folder),
        **_about(job, corpus),
    }


def _training(job: Task, model: TrainedModel, corpus: Corpus) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the log says of a training, and the utilisation by epoch of Li et al. (2020), Figure 4, if any."""
    epochs, position = epoch_rows(model.folder), last_position(model.folder)
    if position is not None and len(epochs) != position.epoch:
        raise RunError(
            f"{model.folder / METRICS}: has {len(epochs)} of {position.epoch} epochs, and the record is made of them. "
            "Put it back, or remove the folder to train the row again."
        )
    best, use = min(epochs, key=lambda row: row["loss"]), utilisation_of(epochs, "the run")
    facts = {
        "seed": job.seed,
        "model_parameters": job.parameters.model,
        "all_parameters": job.parameters.total,
        "units": job.network.model.encoder.output_size,
        "readout": model.model.memory.readout_size,
        "epochs": len(epochs),
        "best_epoch": best["epoch"],
        "valid_losses": [row["loss"] for row in epochs],
        "train_perplexity_at_best": math.exp(min(best["train_loss"], 700)),
        "tokens_per_second": statistics.median(row["tokens_per_second"] for row in epochs),
        "training_seconds": round(training_seconds(epochs, len(corpus.splits["train"])), 1),
    }
    by_epoch = use and {"utilisation_by_epoch": list(use.learned), "oracle_utilisation_by_epoch": list(use.oracle)}
    return facts, by_epoch or {}


def _blocks(model: Model, corpus: Corpus) -> dict[str, Any]:
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


def _cloze_accuracies(model: Model, questions: Sequence[Path]) -> dict[str, Any]:
    tallies, defects = defaultdict[str, ClozeTally](ClozeTally), list[str]()
    for path in questions:
        tally = tallies[word_class(path)]
        for answer in model.cloze(path, contexts=("full",)):
            if isinstance(answer, Defect):
                defects.append(f"{path.name}, line {answer.line}: {answer.reason}")
            else:
                tally.add(answer)
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
    shares = {"lags": list(profile.lags), "nearest_lag": profile.nearest_lag, "percent": list(profile.percent)}
    return {"split": "test", **shares, "positions": profile.positions, "left_out": profile.left_out}


def record_measurement(task: Task, corpus: Corpus, report: Report) -> dict[str, Any]:
    """Measure trained models; a search that was stopped goes on, and `seconds` has the time before, too.

    If dynamic evaluation diverges, the record has the reason (`DIVERGED`) and the settings that were tried; it is not
    tried again.
    """
    members = [_member(_read(job)) for job in task.jobs]
    models = [require_weights(load_run(job), str(job.record)) for job in task.jobs]
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
    evaluation, model = task.row.evaluation, models[0]
    options: dict[str, Any] = {}
    if isinstance(evaluation, Averaged):
        ensemble = TrainedEnsemble(models)
        for split in MEASURED:
            result = ensemble.evaluate_members(corpus, split)
            alone = [member.perplexity for member in result.members]
            details[split] = {"members": alone, "oracle_bound": result.oracle_bound.bound}
            yield split, result.ensemble
        return
    if isinstance(evaluation, Cached):
        cache = model.tune_cache((evaluation.window,), corpus)
        details |= {"cache": cache.best.to_json(), "tried": len(cache.grid), "notes": cache.notes}
        options = {"cache": cache.best}
    elif isinstance(evaluation, Nearest):
        store = model.datastore(data_dir=model.config.data.dir, report=report)
        near = model.tune_neighbours(corpus, k=evaluation.k, datastore=store)
        details |= {"neighbours": near.best.to_json(), "tried": len(near.grid), "notes": near.notes}
        options = {"neighbours": near.best, "datastore": store}
    elif isinstance(evaluation, Dynamic) and (search := task.search):
        if evaluation.gate_temperature is not None:
            model = model.at_gate_temperature(evaluation.gate_temperature)
        gathered = model.dynamic_statistics(segments=search.statistics, data_dir=model.config.data.dir, report=report)
        # `origin` names the machine's paths
        details["statistics"] = {name: value for name, value in gathered.to_json().items() if name != "origin"}
        options = asdict(search) | {"statistics": gathered, "report": report}
        tuning = model.tune_dynamic(corpus, "valid", also=search.own_point(task.row.dynamic), **options)
        tuned = tuning.to_json()
        details |= {"dynamic": tuned["best"], "tried": len(tuning.grid), "grid": tuned["grid"], "notes": tuning.notes}
        if tuning.read_before:
            details |= {"read_before": tuning.read_before, "seconds_before": round(tuning.seconds_before, 1)}
        options = {"dynamic": tuning.best, "statistics": gathered, "report": report}
    for split in MEASURED:
        yield split, model.evaluate(corpus, split, **options)


def load_run(job: Task, why: str = "") -> Model:
    """Load the model of a run; the error where it is missing says `why` it is needed."""
    if not (job.folder / (ARPA if job.by_counting else MODEL)).exists():
        raise InputError(
            f"{job.folder}: the run of {job.record} is not there{why}. Put it back, or move the record away to "
            "train again."
        )
    return load(job.folder, "cpu" if job.by_counting else job.network.training.device)


def missing(job: Task, record: Mapping[str, Any], questions: Sequence[Path]) -> list[Measure]:
    """Return the measures of a training that its record does not have, or has of other `questions`."""
    of_others = questions and record.get("cloze", {}).get("files") != [path.name for path in questions]
    held = {"perplexity", *record} - ({"cloze"} if of_others else set())
    return [measure for measure in job.measures if measure not in held]


def measured(measure: Measure, model: Model, corpus: Corpus, questions: Sequence[Path], texts: Sequence[str]) -> Any:
    """Take a measure beside perplexity; `texts` are those that it reads."""
    if measure == "cloze":
        return _cloze_accuracies(model, questions)
    if measure == "excess":
        return [item.to_json() for item in model.excess(corpus)]
    trained = require_weights(model, measure)
    if measure == "article":
        # the beginning of the first document of test (Daniluk et al., 2017, Figure 3a)
        text, first = excerpt(corpus, "test", document=1), trained.texts.predict_first
        return attention_record(
            trained.model, trained.vocabulary, text.words, title=text.source, predict_first=first
        ).to_json()
    if measure == "sentences":
        return {text: trained.attend(text).to_json() for text in texts}
    if measure == "buffer":
        return snapshot_of(trained, corpus, texts).to_json()
    return _lag_shares(trained, corpus)
