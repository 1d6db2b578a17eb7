"""The grid of the neural cache: every point is an evaluation of its own, and one pass of the model gives them all."""

from __future__ import annotations

from typing import Any

import pytest

from spanlm.evaluation.cache import CacheConfig, CacheTuning, tune_cache
from spanlm.evaluation.perplexity import evaluate
from spanlm.evaluation.protocol import STANDARD, Context, Protocol
from tests.evaluation import reference
from tests.evaluation.reference import CONTEXTS

WINDOWS, SOME_THETAS, SOME_LAMBDAS = (2, 30), (0.0, 0.7, 4.0), (0.0, 0.1, 0.45, 1.0)

REPEATED = [["dog", "ran"] * 4] * 4


def tuned(lines: reference.Lines = reference.TEXT, protocol: Protocol = STANDARD, **grid: Any) -> CacheTuning:
    grid = {"windows": WINDOWS, "thetas": SOME_THETAS, "lambdas": SOME_LAMBDAS, **grid}
    return tune_cache(reference.small_model(), reference.corpus(lines), "test", **grid, protocol=protocol)


@pytest.mark.parametrize("context", CONTEXTS)
def test_every_point_is_an_evaluation(context: Context) -> None:
    model, corpus = reference.small_model(), reference.corpus(reference.TEXT)
    found = tuned(protocol=Protocol(context=context))
    points = [(w, t, x) for w in WINDOWS for t in SOME_THETAS for x in SOME_LAMBDAS]
    assert [(point.window, point.theta, point.lambda_) for point in found.grid] == points
    for point in found.grid:
        cache = CacheConfig(window=point.window, theta=point.theta, lambda_=point.lambda_)
        assert point.perplexity == pytest.approx(
            evaluate(model, corpus, protocol=Protocol(context=context), cache=cache).perplexity, rel=1e-12
        )
    assert found.plain == pytest.approx(
        evaluate(model, corpus, protocol=Protocol(context=context)).perplexity, rel=1e-12
    )
    assert (found.text, found.tokens) == ("small test", evaluate(model, corpus).tokens)


def test_the_best_is_the_lowest_and_says_where_it_was_found() -> None:
    found = tuned(REPEATED)
    lowest = min(found.grid, key=lambda point: point.perplexity)
    assert found.perplexity == lowest.perplexity < found.plain
    expected = CacheConfig(window=lowest.window, theta=lowest.theta, lambda_=lowest.lambda_, tuned_on="small test")
    assert found.best == expected
    again = evaluate(reference.small_model(), reference.corpus(REPEATED), cache=found.best)
    assert again.perplexity == pytest.approx(found.perplexity, rel=1e-12)
    assert again.protocol.endswith("(tuned on small test)")


def test_the_edge_of_the_grid_is_noted() -> None:
    (note,) = tuned(REPEATED, windows=(5,), thetas=(0.3,), lambdas=(0.01, 0.02)).notes
    assert note == "cache.lambda=0.02 is the largest that was tried: the best may lie beyond."
    assert tuned(REPEATED, windows=(5,), thetas=(0.3,), lambdas=(0.02,)).notes == []
    assert tuned(REPEATED, windows=(5,), thetas=(0.3,), lambdas=(0.02, 1.0)).best.lambda_ == 0.02
    best = (found := tuned(REPEATED, windows=(5, 20), thetas=(0.3, 60.0), lambdas=(0.01, 0.02))).best
    ends = [(best.window, 5), (best.theta, 0.3), (best.lambda_, 0.01)]
    assert found.notes == [
        f"cache.{name}={value:g} is the {'smallest' if value == least else 'largest'} that was tried: "
        "the best may lie beyond."
        for name, (value, least) in zip(("window", "theta", "lambda"), ends, strict=True)
    ]


def test_no_helpful_cache_is_noted() -> None:
    different = [list(reference.WORDS[1:3]), list(reference.WORDS[4:])]
    found = tuned(different, windows=(8,), lambdas=(0.0, 0.3))
    assert found.best.lambda_ == 0
    assert found.perplexity == found.plain
    assert found.notes == ["cache.lambda=0: no cache of the grid helps."]
