"""A neural cache on what `spanlm evaluate` evaluates: its options and its rows."""

from __future__ import annotations

import argparse
from typing import Any

from spanlm.cli.evaluation_report import Rows, both_counts, tuned_rows
from spanlm.cli.main import VerbParser
from spanlm.cli.options import TUNED_ON, in_options, refusing_options, tuning_part
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError
from spanlm.evaluation.cache import LAMBDAS, THETAS, CacheConfig, CacheTuning, require_grid, require_text
from spanlm.evaluation.perplexity import Evaluation
from spanlm.runs.trained_model import LoadedModel

_OPTIONS = {"cache.window=": "--cache=", "cache.theta=": "--cache-theta=", "cache.lambda=": "--cache-lambda="}


def add_cache(parser: VerbParser) -> None:
    """Add the options."""
    text = "mix in a neural cache of the last C words; with --tune-cache, or --cache-theta and --cache-lambda"
    parser.add_argument("--cache", type=int, metavar="C", help=text)
    text = "how much likeness counts; several: a grid to tune"
    parser.add_argument("--cache-theta", rare=True, type=float, nargs="+", metavar="θ", help=text)
    text = "the cache's share, 0 to 1; several: a grid to tune"
    parser.add_argument("--cache-lambda", rare=True, type=float, nargs="+", metavar="λ", help=text)
    parser.add_argument("--tune-cache", action="store_true", help="first find the θ and λ that fit the valid part best")


def check_cache(options: argparse.Namespace) -> None:
    """Refuse what cannot be a cache, before anything is loaded.

    Raises:
        InputError: an option without those it needs, or a value outside its range.
    """
    given = {"--cache-theta": options.cache_theta, "--cache-lambda": options.cache_lambda}
    if options.cache is None:
        for name, value in {**given, "--tune-cache": options.tune_cache or None}.items():
            if value is not None:
                raise InputError(f"{name}: is for a cache; give the number of words that it keeps, as in --cache 500")
        return
    if options.tune_weights:
        raise InputError("--tune-weights and --cache do not go together: tune the weights first, then give --weights")
    for name, values in {} if options.tune_cache else given.items():
        if values is None:
            raise InputError(f"--cache={options.cache}: needs {name}, or --tune-cache, which finds what fits best")
        if len(values) > 1:
            raise InputError(f"{name}: {len(values)} values are a grid; choose one, or add --tune-cache")
    with refusing_options(_OPTIONS):
        require_grid((options.cache,), options.cache_theta or THETAS, options.cache_lambda or LAMBDAS)


def choose_cache(
    model: LoadedModel, corpus: Corpus, options: argparse.Namespace
) -> tuple[CacheConfig | None, CacheTuning | None]:
    """Return the cache to evaluate with, or None, and how it was tuned, or None.

    Raises:
        InputError: a window longer than the text, or nothing to tune on.
    """
    if options.cache is None:
        return None, None
    with refusing_options(_OPTIONS, "; take a smaller --cache"):
        require_text(options.cache, *model.texts.part(corpus, options.split))  # before minutes are spent on tuning
        if not options.tune_cache:
            (theta,), (lambda_,) = options.cache_theta, options.cache_lambda
            return CacheConfig(window=options.cache, theta=theta, lambda_=lambda_), None
        grid: dict[str, Any] = {"thetas": options.cache_theta or THETAS, "lambdas": options.cache_lambda or LAMBDAS}
        valid = tuning_part(model, options, "--tune-cache", "--cache-theta and --cache-lambda")
        how = {"state": options.state, "precision": options.precision}
        tuning = model.tune_cache((options.cache,), valid, TUNED_ON, **grid, **how)
    return tuning.best, tuning


def cache_fields(cache: CacheConfig | None, tuning: CacheTuning | None) -> dict[str, Any]:
    """Return the fields of a cache in JSON."""
    found = {} if cache is None else {"cache": cache.to_json()}
    return found if tuning is None else {**found, "tuning": tuning.to_json()}


def cache_notes(cache: CacheConfig | None) -> list[str]:
    """Return notes on what a cache cannot do."""
    if cache is None or cache.lambda_ < 1:
        return []
    return ["λ 1 leaves a word that is not in the cache no probability"]


def cache_rows(result: Evaluation, tuning: CacheTuning | None) -> Rows:
    """Return rows on what the cache changed, and how it was tuned."""
    if result.without_cache is None:
        return []
    rows = [("without cache", both_counts(result.without_cache))]
    if tuning is not None:
        best = tuning.best
        tuned = tuned_rows(result, tuning, f"θ {best.theta:g}, λ {best.lambda_:g} of {len(tuning.grid)} pairs")
        rows += [(name, in_options(text, _OPTIONS)) for name, text in tuned]
    return rows
