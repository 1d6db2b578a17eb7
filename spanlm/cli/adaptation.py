"""Options and output of what changes a model while it reads: a neural cache, nearest neighbours, dynamic evaluation.

Each has a function that checks its options, and one that chooses its settings.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from spanlm.cli.evaluation_report import Rows, both_counts, tuned_rows
from spanlm.cli.options import TUNED_ON, tuning_part
from spanlm.cli.parser import field_values, refuse_given
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, Note, named
from spanlm.options import kinds
from spanlm.runs.model import Model, require_weights
from spanlm.runs.texts import Texts
from spanlm.scoring.cache import CacheTuning
from spanlm.scoring.dynamic.evaluate import require_loss
from spanlm.scoring.dynamic.tuning import TRIALS, DynamicTuning
from spanlm.scoring.options import CacheConfig, CacheOptions, DynamicGrid, DynamicOptions, NeighboursGrid
from spanlm.scoring.perplexity import Evaluation
from spanlm.scoring.stream import Report
from spanlm.scoring.tally import edge_note


class Adaptation(NamedTuple):
    """The arguments of `Model.evaluate`, the fields of --json, and the rows of a table, given its result."""

    mode: dict[str, Any]
    fields: dict[str, Any]
    rows: Callable[[Evaluation], Rows]


# --- a neural cache ---


def check_cache(options: argparse.Namespace) -> None:
    if options.cache is None:
        refuse_given(options, "cache", "needs a cache; give the number of words that it keeps, as in --cache 500")
        return
    if options.tune_weights:
        raise InputError("--tune-weights and --cache do not go together: tune the weights first, then give --weights")
    field_values(options, CacheOptions, "cache", window=options.cache)


def choose_cache(
    model: Model, options: argparse.Namespace, texts: Texts | None = None
) -> tuple[CacheConfig | None, CacheTuning | None]:
    """Return the cache and the search that chose it, None without; `texts` finds the corpus to tune on."""
    if options.cache is None:
        return None, None
    cache = field_values(options, CacheOptions, "cache", window=options.cache)
    if not cache.tune:
        return CacheConfig(window=cache.window, theta=cache.thetas[0], lambda_=cache.lambdas[0]), None
    valid = tuning_part(model, options, "--tune-cache", "--cache-theta and --cache-lambda", texts)
    mode = {"state": options.state, "precision": options.precision, "over_lines": vars(options).get("over_lines", True)}
    tuning = model.tune_cache((cache.window,), valid, TUNED_ON, thetas=cache.thetas, lambdas=cache.lambdas, **mode)
    return tuning.best, tuning


def cache_fields(cache: CacheConfig | None, tuning: CacheTuning | None) -> dict[str, Any]:
    fields = {} if cache is None else {"cache": cache.to_json()}
    return fields if tuning is None else {**fields, "tuning": tuning.to_json()}


def cache_notes(cache: CacheConfig | None) -> list[str]:
    alone = cache is not None and cache.lambda_ == 1
    return ["with λ 1 a word that is not in the cache has probability 0"] if alone else []


def cache_rows(result: Evaluation, tuning: CacheTuning | None, options: argparse.Namespace) -> Rows:
    if result.without_cache is None:
        return []
    rows = [("without cache", both_counts(result.without_cache))]
    if tuning is not None:
        best = tuning.best
        chosen = f"θ {best.theta:g}, λ {best.lambda_:g} of {len(tuning.grid)} pairs"
        rows += tuned_rows(result, tuning, chosen, options.parser.option_of)
    return rows


# --- nearest neighbours ---


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


def choose_neighbours(model: Model, options: argparse.Namespace, report: Report) -> Adaptation | None:
    """Return the neighbours, searched for T and λ if there are several; None without --neighbours."""
    if options.neighbours is None:
        return None
    model, valid = require_weights(model, "--neighbours"), None
    grid = field_values(options, NeighboursGrid, "neighbours", k=options.neighbours)
    if len(grid.points) > 1:
        otherwise = "one --neighbours-temperature and one --neighbours-lambda"
        valid = tuning_part(model, options, "--neighbours", otherwise)
    mode: dict[str, Any] = {"state": options.state, "precision": options.precision, "report": report}
    datastore = model.datastore(data_dir=options.data_dir, download=options.download, **mode)
    best, tuning = grid.points[0], None
    if valid is not None:
        mode |= {"temperatures": grid.temperatures, "lambdas": grid.lambdas, "datastore": datastore}
        tuning = model.tune_neighbours(valid, TUNED_ON, k=grid.k, **mode)
        best = tuning.best
    store = datastore.to_json()
    fields = {"neighbours": {**best.to_json(), "datastore": store}}
    fields |= {} if tuning is None else {"tuning": tuning.to_json()}

    def rows(result: Evaluation) -> Rows:
        assert result.without_neighbours is not None
        states = f"{store['keys']:,} states of {store['text']}, {store['size']:,} numbers each"
        chosen = "" if tuning is None else f"T {best.temperature:g}, λ {best.lambda_:g} of {len(tuning.grid)} pairs"
        return [
            ("without neighbours", both_counts(result.without_neighbours)),
            ("datastore", f"{states}; {store['megabytes']:,} MB, {store['file']}"),
            *([] if tuning is None else tuned_rows(result, tuning, chosen, options.parser.option_of)),
        ]

    return Adaptation({"neighbours": best, "datastore": datastore}, fields, rows)


# --- dynamic evaluation ---


def check_dynamic(options: argparse.Namespace, runs: int) -> None:
    if not options.dynamic:
        refuse_given(options, "dynamic", "needs dynamic evaluation; add --dynamic")
        return
    if runs > 1:
        raise InputError("--dynamic: is for one run; an ensemble has no gradient statistics")
    if options.cache is not None:
        raise InputError("--dynamic and --cache do not go together: measure one, then the other")
    if options.batch_size not in (None, 1):
        raise InputError(f"--batch-size={options.batch_size}: must be 1 with --dynamic: its weights follow one text")
    field_values(options, DynamicOptions, "dynamic")


def choose_dynamic(model: Model, corpus: Corpus, options: argparse.Namespace, report: Report) -> Adaptation | None:
    """Return dynamic evaluation, with the rates that --tune-dynamic looks for; None without --dynamic."""
    if not options.dynamic:
        return None
    model = require_weights(model, "--dynamic")
    settings, valid = field_values(options, DynamicOptions, "dynamic"), None
    # rejects a missing split before the statistics take minutes
    model.texts.protocol(*model.texts.part(corpus, options.split), options.state)
    require_loss(settings.loss, model.model)
    if settings.tune:
        valid = tuning_part(model, options, "--tune-dynamic", "--dynamic-rate and --dynamic-decay")
    where: dict[str, Any] = {"data_dir": options.data_dir, "download": options.download, "report": report}
    statistics = model.dynamic_statistics(segments=settings.statistics, **where)
    config, tuning = settings.points[0], None
    if valid is not None:
        grid = {name: getattr(settings, name) for name in kinds(DynamicGrid)}
        reading: dict[str, Any] = {"state": options.state, "precision": options.precision, "report": report}
        tuning = model.tune_dynamic(valid, TUNED_ON, **grid, **reading, statistics=statistics)
        config = tuning.best
    first_release = config.sum_convention(statistics.segments, statistics.tensors)
    values = dict(zip(("rate", "decay", "epsilon"), first_release, strict=True))
    fields = {
        "dynamic": {**config.to_json(), "sum_convention": values},
        "dynamic_statistics": statistics.to_json(),
        **({} if tuning is None else {"tuning": tuning.to_json()}),
    }

    def rows(result: Evaluation) -> Rows:
        assert result.without_dynamic is not None
        return [
            ("without dynamic", both_counts(result.without_dynamic)),
            ("statistics", f"{statistics.description}; {statistics.origin}"),
            *([] if tuning is None else _rows_of_trials(result, tuning, options)),
        ]

    return Adaptation({"dynamic": config, "statistics": statistics, "report": report}, fields, rows)


def _rows_of_trials(result: Evaluation, tuning: DynamicTuning, options: argparse.Namespace) -> Rows:
    tuning = replace(tuning, notes=[_with_options(note, tuning) for note in tuning.notes])
    whole, points = sum(point.whole for point in tuning.grid), len(tuning.grid)
    full = "" if whole == points else f", {whole} of them on all of it"
    chosen = f"η {tuning.best.rate:.3g}, λ {tuning.best.decay:.3g} of {points} pairs{full}"
    rows = tuned_rows(result, tuning, chosen, options.parser.option_of)
    if count := tuning.read_before:
        trials = "1 trial was" if count == 1 else f"{count} trials were"
        rows.append(("resumed", f"{trials} read from {TRIALS} in the run's folder"))
    return rows


def _with_options(note: str, tuning: DynamicTuning) -> str:
    """Suggest values beyond the grid in a note that the best value is at its edge."""
    for name, most in (("rate", math.inf), ("decay", 1.0)):
        best, tried = getattr(tuning.best, name), [getattr(point, name) for point in tuning.grid]
        if note == (edge := edge_note(f"dynamic.{name}", best, tried)):
            beyond = [best * factor for factor in ((1, 2, 4) if best == max(tried) else (1, 0.5, 0.25))]
            values = [f"{value:.3g}" for value in beyond if value <= most]
            more = f" Try {named(f'dynamic.{name}')} {' '.join(values)}" if len(values) > 1 else ""
            return Note(f"{edge.marked}{more}")
    return note
