"""A trained model adapting to what it reads: settings found on valid, then valid and, this once, test."""

from __future__ import annotations

from typing import Any

from spanlm.data.config import SPLITS, Split
from spanlm.data.corpora import Corpus
from spanlm.evaluation.dynamic.evaluate import DivergedError
from spanlm.evaluation.dynamic.update import DynamicConfig
from spanlm.evaluation.perplexity import Evaluation
from spanlm.evaluation.scoring import Report
from spanlm.reproduction.scale import DynamicSearch
from spanlm.reproduction.tables import Dynamic
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
) -> Results:
    """Measure a model with dynamic evaluation, and without.

    Args:
        model: that is trained.
        corpus: valid of it chooses, then both are read.
        how: of its gate.
        search: how settings are found.
        report: told of progress.
        published: settings that the model's authors had.

    Raises:
        InputError: the text of the training is not there, and no statistics that were gathered on it.
        DivergedError: the weights diverged, at every setting on valid or at the chosen one; has what was tried.
    """
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
            also=search.own_point(published),
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
