"""Options and output of nearest neighbours in `spanlm evaluate`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from spanlm.cli.evaluation_report import Rows, both_counts, tuned_rows
from spanlm.cli.options import TUNED_ON, tuning_part
from spanlm.cli.parser import field_values, refuse_given
from spanlm.errors import InputError
from spanlm.runs.model import Model, require_weights
from spanlm.scoring.neighbours import Datastore, NeighboursTuning
from spanlm.scoring.options import NeighboursConfig, NeighboursOptions
from spanlm.scoring.perplexity import Evaluation
from spanlm.scoring.stream import Report


@dataclass(frozen=True)
class NeighboursChoice:
    """Nearest neighbours, the states to search, and the search that chose the settings, if any."""

    config: NeighboursConfig
    datastore: Datastore
    tuning: NeighboursTuning | None


def check_neighbours(options: argparse.Namespace, runs: int) -> None:
    if options.neighbours is None:
        refuse_given(options, "neighbours", "needs neighbours; give their number, as in --neighbours 64")
        return
    if runs > 1:
        raise InputError("--neighbours: is for one run; an ensemble has no states of its own")
    others = {"--cache": options.cache is not None, "--dynamic": options.dynamic, "--parts": options.parts}
    for name in (name for name, is_set in others.items() if is_set):
        raise InputError(f"--neighbours and {name} do not go together: measure one, then the other")
    field_values(options, NeighboursOptions, "neighbours", k=options.neighbours)


def choose_neighbours(model: Model, options: argparse.Namespace, report: Report) -> NeighboursChoice | None:
    """Return the neighbours and their states; None without --neighbours."""
    if options.neighbours is None:
        return None
    model, valid = require_weights(model, "--neighbours"), None
    settings = field_values(options, NeighboursOptions, "neighbours", k=options.neighbours)
    if settings.tune:
        otherwise = "--neighbours-temperature and --neighbours-lambda"
        valid = tuning_part(model, options, "--tune-neighbours", otherwise)
    mode: dict[str, Any] = {"state": options.state, "precision": options.precision, "report": report}
    store = model.datastore(data_dir=options.data_dir, download=options.download, **mode)
    if valid is None:
        temperature, lambda_ = settings.temperatures[0], settings.lambdas[0]
        return NeighboursChoice(NeighboursConfig(k=settings.k, temperature=temperature, lambda_=lambda_), store, None)
    grid: dict[str, Any] = {"k": settings.k, "temperatures": settings.temperatures, "lambdas": settings.lambdas}
    tuning = model.tune_neighbours(valid, TUNED_ON, **grid, **mode, datastore=store)
    return NeighboursChoice(tuning.best, store, tuning)


def neighbours_fields(choice: NeighboursChoice | None) -> dict[str, Any]:
    if choice is None:
        return {}
    fields = {"neighbours": {**choice.config.to_json(), "datastore": choice.datastore.to_json()}}
    return fields if choice.tuning is None else {**fields, "tuning": choice.tuning.to_json()}


def neighbours_rows(result: Evaluation, choice: NeighboursChoice | None, options: argparse.Namespace) -> Rows:
    if choice is None or result.without_neighbours is None:
        return []
    store = choice.datastore.to_json()
    states = f"{store['keys']:,} states of {store['text']}, {store['size']:,} numbers each"
    rows = [
        ("without them", both_counts(result.without_neighbours)),
        ("datastore", f"{states}; {store['megabytes']:,} MB, {store['file']}"),
    ]
    if choice.tuning is not None:
        best, points = choice.tuning.best, len(choice.tuning.grid)
        chosen = f"T {best.temperature:g}, λ {best.lambda_:g} of {points} pairs"
        rows += tuned_rows(result, choice.tuning, chosen, options.parser.option_of)
    return rows
