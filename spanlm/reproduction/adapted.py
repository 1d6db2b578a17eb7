"""A trained model adapting to what it reads: settings found on valid, then valid and, this once, test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spanlm.data.config import SPLITS, Split
from spanlm.data.corpora import Corpus
from spanlm.evaluation.astray import AstrayError
from spanlm.evaluation.dynamic_config import DynamicConfig
from spanlm.evaluation.dynamic_statistics import DynamicStatistics
from spanlm.evaluation.dynamic_tuning import DynamicTuning, tune_dynamic
from spanlm.evaluation.lessons import Report
from spanlm.evaluation.perplexity import Evaluation
from spanlm.evaluation.search_log import SearchLog
from spanlm.reproduction.scale import DynamicSearch
from spanlm.reproduction.tables import Dynamic
from spanlm.runs.gate import TemperedModel
from spanlm.runs.trained_model import TrainedModel

MEASURED: tuple[Split, ...] = SPLITS[1:]
"""The parts that every row is measured on."""

Results = tuple[dict[Split, Evaluation], dict[str, Any]]
"""By part, and how they came about."""


def adapted(
    model: TrainedModel,
    corpus: Corpus,
    how: Dynamic,
    search: DynamicSearch,
    report: Report,
    published: DynamicConfig | None = None,
    log: SearchLog | None = None,
) -> Results:
    """Measure a model with dynamic evaluation, and without.

    Args:
        model: that is trained.
        corpus: valid of it chooses, then both are read.
        how: of its gate.
        search: how settings are found.
        report: told of progress.
        published: settings that the model's authors had.
        log: of this model; what it has of a search that was stopped is not read again.

    Raises:
        InputError: the text of the training is not there, and no statistics that were gathered on it.
        AstrayError: the weights went astray, at every setting on valid or at the chosen one; has what was tried.
    """
    if how.gate_temperature is not None:
        model = TemperedModel(model, how.gate_temperature)
    where = model.config.data.dir
    statistics = model.dynamic_statistics(segments=search.statistics, data_dir=where, report=report)
    gathered = {name: value for name, value in statistics.to_json().items() if name != "origin"}  # a machine's paths
    details: dict[str, Any] = {"statistics": gathered}
    results: dict[Split, Evaluation] = {}
    try:
        tuning = _tuned(model, corpus, statistics, search.grid(published), search, report, log)
        tuned = tuning.to_json()
        chosen = {"dynamic": tuned["best"], "tried": len(tuning.grid), "grid": tuned["grid"], "notes": tuning.notes}
        details = {**chosen, **details}
        for split in MEASURED:
            given: dict[str, Any] = {"dynamic": tuning.best, "statistics": statistics, "report": report, "log": log}
            results[split] = model.evaluate(corpus, split, **given)
    except AstrayError as error:
        measured = {split: result.to_json() for split, result in results.items()}
        raise AstrayError(str(error), {**error.details, **details, "measured": measured}) from None
    return results, details


def _tuned(
    model: TrainedModel,
    corpus: Corpus,
    statistics: DynamicStatistics,
    grid: Sequence[DynamicConfig],
    search: DynamicSearch,
    report: Report,
    log: SearchLog | None,
) -> DynamicTuning:
    return tune_dynamic(
        model.model,
        corpus,
        "valid",
        statistics,
        grid,
        kind=model.texts.batching(corpus, "valid"),
        predict_first=model.texts.predict_first,
        first_tokens=search.first_tokens,
        finalists=search.finalists,
        report=report,
        log=log,
    )
