"""The grid of dynamic evaluation: every point is an evaluation of its own; most read only the first tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spanlm.data.config import BatchingKind
from spanlm.errors import InputError, RunError
from spanlm.evaluation import dynamic as dynamic_module
from spanlm.evaluation import perplexity as perplexity_module
from spanlm.evaluation.dynamic import tuning as module
from spanlm.evaluation.dynamic.evaluate import adapted_tally, evaluate_dynamic
from spanlm.evaluation.dynamic.tuning import DECAYS, RATES, DynamicTuning, dynamic_grid, tune_dynamic
from spanlm.evaluation.dynamic.update import DynamicConfig
from spanlm.evaluation.perplexity import evaluate, evaluation_batcher
from spanlm.evaluation.scoring import perplexity
from tests.evaluation import reference
from tests.evaluation.test_dynamic import statistics_of, unchanged, weights

SOME_RATES, SOME_DECAYS = (0.0003, 0.003, 0.01), (0.0, 0.2)
CORPUS = reference.corpus(reference.TEXT)
TARGETS = sum(len(line) + 1 for line in reference.TEXT)


def some_grid(**changes: Any) -> list[DynamicConfig]:
    return dynamic_grid(**{"rates": SOME_RATES, "decays": SOME_DECAYS, "epsilon": 0.002, **changes})


def tuned(
    grid: list[DynamicConfig] | None = None, lines: reference.Lines = reference.TEXT, **how: Any
) -> DynamicTuning:
    model = reference.small_model()
    return tune_dynamic(model, reference.corpus(lines), "test", statistics_of(model)[0], grid or some_grid(), **how)


@pytest.mark.parametrize("kind", ["streams", "documents", "sentences"])
def test_every_point_is_an_evaluation_and_the_best_is_the_lowest(
    kind: BatchingKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perplexity_module, "LENGTH", 7)  # longer texts are cut as these are
    model, found = reference.small_model(), tuned(kind=kind)
    assert [(point.rate, point.decay) for point in found.grid] == [(r, d) for r in SOME_RATES for d in SOME_DECAYS]
    for point, config in zip(found.grid, some_grid(), strict=True):
        result = evaluate_dynamic(model, CORPUS, "test", statistics_of(model)[0], config, kind=kind)
        assert point.first == point.perplexity == pytest.approx(result.perplexity, rel=1e-12)
    assert found.plain == pytest.approx(evaluate(model, CORPUS, kind=kind).perplexity, rel=1e-12)
    assert (found.text, found.tokens, found.first_tokens) == ("small test", TARGETS, TARGETS)
    lowest = min(found.grid, key=lambda point: point.first)
    assert len({point.first for point in found.grid}) == len(found.grid)
    assert found.perplexity == lowest.perplexity
    expected = DynamicConfig(rate=lowest.rate, decay=lowest.decay, epsilon=0.002, tuned_on="small test")
    assert found.best == expected


def test_sentences_that_are_not_opened_are_tuned_on_as_the_model_knows_them() -> None:
    model, how = reference.small_model(), dict[str, Any](kind="sentences", predict_first=False)
    found = tuned(**how)
    for point, config in zip(found.grid, some_grid(), strict=True):
        count = evaluate_dynamic(model, CORPUS, "test", statistics_of(model)[0], config, **how).salton2017
        assert count is not None and point.perplexity == pytest.approx(count.perplexity_per_predicted, rel=1e-12)
        assert found.tokens == count.predicted
    count = evaluate(model, CORPUS, **how).salton2017
    assert count is not None and found.plain == pytest.approx(count.perplexity_per_predicted, rel=1e-12)
    assert found.notes[-1].startswith("sentences were read as the model knows them, not opened")
    assert not any("opened" in note for note in tuned(kind="sentences").notes)


def test_most_points_read_only_the_first_tokens_and_the_best_few_all() -> None:
    model, lines = reference.small_model(), [*reference.TEXT, *[["dog", "sat"] * 4] * 6]
    corpus, first = reference.corpus(lines), 12
    found = tuned(lines=lines, first_tokens=first, finalists=2)
    assert found.first_tokens == 15  # to the end of the segment
    for point, config in zip(found.grid, some_grid(), strict=True):
        batcher = evaluation_batcher(corpus, "test", "streams", length=5)
        part = adapted_tally(model, batcher, statistics_of(model)[0], config, 0, most=first)
        assert point.first == pytest.approx(perplexity(part.nll / part.tokens), rel=1e-12)
    best = sorted(found.grid, key=lambda point: point.first)[:2]
    assert [point for point in found.grid if point.perplexity is not None] == [p for p in found.grid if p in best]
    assert found.perplexity == min(point.perplexity for point in best if point.perplexity is not None)
    whole = evaluate_dynamic(model, corpus, "test", statistics_of(model)[0], found.best)
    assert found.perplexity == pytest.approx(whole.perplexity, rel=1e-12)
    # the choice is made on all of the text, not on its beginning
    every = tuned(lines=lines)
    assert min(every.grid, key=lambda point: point.first).rate != best[0].rate


def test_the_work_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int | None] = []
    tally: Callable[..., Any] = adapted_tally
    monkeypatch.setattr(dynamic_module, "adapted_tally", lambda *a, **k: (read.append(k["most"]), tally(*a, **k))[1])
    tuned(first_tokens=10, finalists=2)
    assert read == [10] * 6 + [None] * 2
    read.clear()
    tuned(first_tokens=TARGETS)
    assert read == [None] * 6


def test_without_finalists_the_first_tokens_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said of what helps: the trained weights were measured on all of the text."""
    beginning = tuned(first_tokens=10, finalists=6)
    read: list[int | None] = []
    tally: Callable[..., Any] = adapted_tally
    monkeypatch.setattr(dynamic_module, "adapted_tally", lambda *a, **k: (read.append(k["most"]), tally(*a, **k))[1])
    found = tuned(first_tokens=10, finalists=0)
    assert read == [10] * 6
    assert [point.first for point in found.grid] == [point.first for point in beginning.grid]
    lowest = min(found.grid, key=lambda point: point.first)
    assert (found.best.rate, found.best.decay, found.perplexity) == (lowest.rate, lowest.decay, lowest.first)
    assert {point.perplexity for point in found.grid} == {None}
    harmful = tuned(some_grid(rates=(0.1,), decays=(0.0,)), first_tokens=10, finalists=0)
    assert harmful.notes == []


def test_weights_are_afterwards_what_they_were() -> None:
    model = reference.small_model().float()
    before = weights(model)
    statistics = statistics_of(model)[0]
    tune_dynamic(model, CORPUS, "test", statistics, some_grid(), first_tokens=10)
    assert unchanged(model, before)
    with pytest.raises(KeyboardInterrupt):
        tune_dynamic(model, CORPUS, "test", statistics, some_grid(), report=stop_at(12))
    assert unchanged(model, before)


def stop_at(tokens: int) -> Callable[[str, int, int], None]:
    def report(what: str, done: int, total: int) -> None:
        if done > tokens:
            raise KeyboardInterrupt

    return report


def test_points_that_go_astray_are_never_the_best() -> None:
    found = tuned(some_grid(rates=(1e308, 0.003)))
    assert [math.isinf(point.first) for point in found.grid] == [True, True, False, False]
    assert found.best.rate == 0.003
    with pytest.raises(RunError, match=r"dynamic\.rate: at every point of the grid the weights went astray"):
        tuned(some_grid(rates=(1e308,)))


def test_where_every_point_is_worse_than_nothing_at_all_none_is_chosen() -> None:
    with pytest.raises(RunError, match=r"dynamic\.rate: at every point of the grid the weights went astray"):
        tuned(some_grid(rates=(30.0, 40.0)))


def test_the_edge_of_the_grid_is_noted() -> None:
    repeated = [["dog", "sat"] * 4] * 6
    found = tuned(some_grid(rates=(0.0001, 0.001), decays=(0.0, 0.5)), repeated)
    assert found.best.rate == 0.001 and found.perplexity < found.plain
    assert found.notes == ["dynamic.rate=0.001 is the largest that was tried: the best may lie beyond."]
    assert tuned(some_grid(rates=(0.001,), decays=(0.1,)), repeated).notes == []


def test_no_helpful_point_is_said() -> None:
    found = tuned(some_grid(rates=(0.1,), decays=(0.0,)))
    assert found.perplexity > found.plain
    assert found.notes == ["no point of the grid helps."]


def test_more_read_all_of_it_until_one_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the first tokens say: at high rates the weights leave later."""
    text = [["dog", "sat"] * 4] * 6
    grid = some_grid(rates=(0.2, 0.1, 0.001, 0.0005), decays=(0.1,))
    tally: Callable[..., Any] = adapted_tally

    def misleading(*given: Any, most: int | None, **how: Any) -> Any:
        found = tally(*given, most=most, **how)
        # the higher a rate is, the better it looks at first
        return found if most is None else replace(found, nll=-given[3].rate)

    monkeypatch.setattr(dynamic_module, "adapted_tally", misleading)
    told: list[str] = []
    found = tuned(grid, text, first_tokens=10, finalists=1, report=lambda what, *rest: told.append(what))
    assert [point.perplexity is not None for point in found.grid] == [True, True, True, False]
    assert found.best.rate == 0.001 and found.perplexity < found.plain and len(found.notes) == 0
    assert list(dict.fromkeys(what.partition(",")[0] for what in told))[-3:] == [
        f"finalist {n} of {n}" for n in (1, 2, 3)
    ]
    none = tuned(grid[:2], text, first_tokens=10, finalists=1)
    assert all(point.perplexity is not None for point in none.grid)
    assert none.notes[0] == "no point of the grid helps."


def test_progress_names_the_point() -> None:
    told: list[tuple[str, int, int]] = []
    tuned(first_tokens=10, finalists=1, report=lambda *step: told.append(step))
    assert told[0] == ("point 1 of 6, η 0.0003, λ 0", 5, 10)
    assert ("point 6 of 6, η 0.01, λ 0.2", 10, 10) in told
    assert told[-1][0].startswith("finalist 1 of 1, η ") and told[-1][1:] == (TARGETS, TARGETS)


def test_the_usual_grid_is_the_published_one_in_proportion_to_the_length() -> None:
    assert [(c.rate, c.decay) for c in dynamic_grid(None, None)] == [(r, d) for r in RATES for d in DECAYS]
    assert (RATES, DECAYS) == ((3e-5, 4e-5, 5e-5, 6e-5, 7e-5, 1e-4), (0.001, 0.002, 0.003, 0.005))
    longer = dynamic_grid(None, None, length=20)
    assert {c.length for c in longer} == {20}
    assert (longer[0].rate, longer[0].decay, longer[0].epsilon) == pytest.approx((1.2e-4, 0.004, 2e-5))
    assert [c.rate for c in dynamic_grid([0.1], None, length=20)] == [0.1] * 4


def test_json() -> None:
    found = tuned(first_tokens=10, finalists=1).to_json()
    assert found.keys() == {"text", "tokens", "first_tokens", "plain", "best", "perplexity", "grid", "notes"}
    assert found["best"].keys() == {"rate", "decay", "epsilon", "length", "loss", "tuned_on"}
    assert found["grid"][0].keys() == {"rate", "decay", "first", "perplexity", "whole"}
    assert sum(point["perplexity"] is None for point in found["grid"]) == 5
    assert [point["whole"] for point in found["grid"]] == [point["perplexity"] is not None for point in found["grid"]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rates": ()}, r"dynamic\.rate=: must be at least one value"),
        ({"decays": ()}, r"dynamic\.decay=: must be at least one value"),
        ({"rates": (1e-5, -1.0)}, r"dynamic\.rate=-1\.0: must be finite and at least 0"),
        ({"decays": (0.1, 2.0)}, r"dynamic\.decay=2\.0: must be in \[0, 1\]"),
        ({"epsilon": 0.0}, r"dynamic\.epsilon=0\.0"),
    ],
    ids=str,
)
def test_impossible_grids_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        some_grid(**values)


@pytest.mark.parametrize(
    ("name", "value", "limit"), [("first_tokens", 0, "at least 1"), ("finalists", -1, "0 or more")]
)
def test_numbers_out_of_range_are_refused(name: str, value: int, limit: str) -> None:
    with pytest.raises(InputError, match=rf"dynamic\.{name}={value}: must be {limit}"):
        tuned(**{name: value})


def test_a_grid_of_another_length_than_the_statistics_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "tally", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(InputError, match=r"dynamic\.length=10: must be that of small train"):
        tuned([*some_grid(), *some_grid(length=10)])


def test_a_missing_part_is_named() -> None:
    model = reference.small_model()
    with pytest.raises(InputError, match=r"^split=valid: small has test"):
        tune_dynamic(model, CORPUS, "valid", statistics_of(model)[0], some_grid())
