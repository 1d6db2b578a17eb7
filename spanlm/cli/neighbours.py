"""Options and output of nearest neighbours in `spanlm evaluate`."""

from __future__ import annotations

import argparse
from typing import Any

from spanlm.cli.evaluation_report import Rows, both_counts, tuned_rows
from spanlm.cli.options import TUNED_ON, tuning_part
from spanlm.cli.parser import field_values, refuse_given
from spanlm.errors import InputError
from spanlm.runs.model import Model, require_weights
from spanlm.scoring.neighbours import Datastore, NeighboursTuning
from spanlm.scoring.options import NeighboursConfig, NeighboursGrid
from spanlm.scoring.perplexity import Evaluation
from spanlm.scoring.stream import Report

Choice = tuple[NeighboursConfig, Datastore, NeighboursTuning | None]


def check_neighbours(options: argparse.Namespace, runs: int) -> None:
    if options.neighbours is None:
        refuse_given(options, "neighbours", "needs neighbours; give their number, as in --neighbours 64")
        return
    if runs > 1:
        raise InputError("--neighbours: is for one run; an ensemble has no states of its own")
    others = {"--cache": options.cache is not None, "--dynamic": options.dynamic, "--parts": options.parts}
    for name in (name for name, is_set in others.items() if is_set):
        raise InputError(f"--neighbours and {name} do not go together: measure one, then the other")
    field_values(options, NeighboursGrid, "neighbours", k=options.neighbours)


def choose_neighbours(model: Model, options: argparse.Namespace, report: Report) -> Choice | None:
    """Return the neighbours, the states to search, and the search for T and λ, if any; None without --neighbours."""
    if options.neighbours is None:
        return None
    model, valid = require_weights(model, "--neighbours"), None
    grid = field_values(options, NeighboursGrid, "neighbours", k=options.neighbours)
    if len(grid.points) > 1:
        otherwise = "one --neighbours-temperature and one --neighbours-lambda"
        valid = tuning_part(model, options, "--neighbours", otherwise)
    mode: dict[str, Any] = {"state": options.state, "precision": options.precision, "report": report}
    store = model.datastore(data_dir=options.data_dir, download=options.download, **mode)
    if valid is None:
        return grid.points[0], store, None
    mode |= {"temperatures": grid.temperatures, "lambdas": grid.lambdas, "datastore": store}
    tuning = model.tune_neighbours(valid, TUNED_ON, k=grid.k, **mode)
    return tuning.best, store, tuning


def neighbours_fields(choice: Choice | None) -> dict[str, Any]:
    if choice is None:
        return {}
    config, store, tuning = choice
    fields = {"neighbours": {**config.to_json(), "datastore": store.to_json()}}
    return fields if tuning is None else {**fields, "tuning": tuning.to_json()}


def neighbours_rows(result: Evaluation, choice: Choice | None, options: argparse.Namespace) -> Rows:
    if choice is None or result.without_neighbours is None:
        return []
    best, datastore, tuning = choice
    store = datastore.to_json()
    states = f"{store['keys']:,} states of {store['text']}, {store['size']:,} numbers each"
    rows = [
        ("without neighbours", both_counts(result.without_neighbours)),
        ("datastore", f"{states}; {store['megabytes']:,} MB, {store['file']}"),
    ]
    if tuning is not None:
        chosen = f"T {best.temperature:g}, λ {best.lambda_:g} of {len(tuning.grid)} pairs"
        rows += tuned_rows(result, tuning, chosen, options.parser.option_of)
    return rows
