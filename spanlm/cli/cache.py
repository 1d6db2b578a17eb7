"""Options and output of the neural cache in `spanlm evaluate`, `compare` and `score`."""

from __future__ import annotations

import argparse
from typing import Any

from spanlm.cli.evaluation_report import Rows, both_counts, tuned_rows
from spanlm.cli.options import TUNED_ON, tuning_part
from spanlm.cli.parser import field_values, refuse_given
from spanlm.errors import InputError
from spanlm.runs.model import Model
from spanlm.runs.texts import Texts
from spanlm.scoring.cache import CacheTuning
from spanlm.scoring.options import CacheConfig, CacheOptions
from spanlm.scoring.perplexity import Evaluation


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
