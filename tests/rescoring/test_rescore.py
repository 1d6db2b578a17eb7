"""Lists with the scores of language models: what is chosen, counted wrong, written back; how weights are found."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spanlm.errors import InputError
from spanlm.rescoring.formats import TOTAL, Hypothesis, NBestList
from spanlm.rescoring.references import Reference
from spanlm.rescoring.rescore import Scored, weight_grid, word_errors
from spanlm.rescoring.weights import Candidates, bootstrap, choose, line_search, tune

LISTS = [
    NBestList(
        "a", (Hypothesis("the bat", {"am": -1.0, TOTAL: -2.0}), Hypothesis("the cat", {"am": -1.5, TOTAL: -2.5}))
    ),
    NBestList("b", (Hypothesis("", {"am": 0.0, TOTAL: 0.0}), Hypothesis("a dog sat", {"am": -1.0, TOTAL: -3.0}))),
]
REFERENCES = [["the", "cat"], ["a", "dog", "sat"]]
SCORED = Scored(LISTS, {"lm": [[-9.0, -5.0], [-2.0, -6.0]]})


def test_the_total_stands_for_the_scores_that_it_sums() -> None:
    assert SCORED.names == (TOTAL, "lm", "words")
    alone = [NBestList("a", (Hypothesis("x", {"ascore": -1.0, "lscore": -2.0}),))]
    assert Scored(alone, {"lm": [[-1.0]]}).names == ("ascore", "lscore", "lm", "words")
    none = Scored([NBestList("a", (Hypothesis("x"),))], {"p": [[-1.0]], "q": [[-1.0]]})
    assert none.weighted.weights({}).tolist() == [1.0, 0.0, 0.0]


def test_weights_choose_and_reorder() -> None:
    assert SCORED.best(SCORED.weighted.weights({})) == [0, 0]
    weights = SCORED.weighted.weights({"lm": 0.5, "words": 2.0})
    assert SCORED.best(weights) == [1, 1]
    first = SCORED.reordered(weights)[0]
    assert [each.text for each in first.hypotheses] == ["the cat", "the bat"]
    assert first.hypotheses[0].scores == {"am": -1.5, "lm": -5.0, TOTAL: pytest.approx(-2.5 - 2.5 + 4.0)}
    with pytest.raises(InputError, match=r"no score lmm.*There are: total, lm, words"):
        SCORED.weighted.weights({"lmm": 1.0})


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_hypothesis_of_probability_0_is_never_the_best(weight: float) -> None:
    lists = [
        NBestList("a", (Hypothesis("x", {"am": -9.0}), Hypothesis("y", {"am": -1.0}), Hypothesis("z", {"am": -5.0})))
    ]
    scored = Scored(lists, {"lm": [[-3.0, -math.inf, -2.0]]})
    weights = scored.weighted.weights({"lm": weight})
    assert scored.best(weights) == [1 if weight == 0 else 2]
    assert all(math.isfinite(x) for each in scored.reordered(weights)[0].hypotheses for x in each.scores.values())


def test_errors_before_and_after_and_at_best() -> None:
    candidates = SCORED.candidates(REFERENCES)
    before = word_errors(LISTS, [0, 0], REFERENCES, candidates)
    assert (before.substitutions, before.deletions, before.insertions, before.words) == (1, 3, 0, 5)
    assert before.rate == 0.8
    tuned = tune(candidates, SCORED.weighted.weights({}))
    after = word_errors(LISTS, SCORED.best(tuned.weights), REFERENCES, candidates)
    assert after.errors == tuned.errors == 0 == word_errors(LISTS, candidates.oracle, REFERENCES, candidates).errors


def test_kinds_of_errors_sum_to_their_number() -> None:
    """Also of empty texts, and where white space that is not ASCII is part of a word."""
    lists = [NBestList("a", (Hypothesis("x y"), Hypothesis(""), Hypothesis("y\u00a0 x"), Hypothesis("z x x y")))]
    scored = Scored(lists, {"lm": [[-1.0, -2.0, -3.0, -4.0]]})
    for reference in ([], ["x"], ["x", "y"], ["y", "x"]):
        candidates = scored.candidates([reference])
        for place in range(4):
            counted = word_errors(lists, [place], [reference], candidates)
            assert counted.errors == candidates.errors[0][place]


def test_the_grid_goes_through_the_weight() -> None:
    candidates = SCORED.candidates(REFERENCES)
    rates = weight_grid(candidates, np.array([1.0, 0.5, 2.0]), 1)
    assert len(rates) == 11
    assert rates[5] == (0.5, 0.0)
    assert rates[0] == (0.0, 0.2)  # with no language model "the bat" stays


def test_references_with_alternatives_and_none_have_the_words_of_their_hypothesis() -> None:
    lists = [NBestList("a", (Hypothesis("um x"), Hypothesis("x y"))), NBestList("b", (Hypothesis("z"),))]
    references: list[Reference | None] = [[[["um"], []], "x"], None]
    found = Scored(lists, {"lm": [[-1.0, -2.0], [-1.0]]}).candidates(references)
    assert [each.tolist() for each in found.errors] == [[0, 1], [0]]
    counts = [word_errors(lists, [place, 0], references, found) for place in (0, 1)]
    assert [(each.words, each.insertions) for each in counts] == [(2, 0), (1, 1)]
    assert math.isnan(word_errors(lists[1:], [0], [[]], Scored(lists[1:], {"lm": [[-1.0]]}).candidates([[]])).rate)


@pytest.mark.parametrize("name", [TOTAL, "words", "am", "text"])
def test_two_scores_of_one_name_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"^{name}: .* Rename the model"):
        Scored(LISTS, {name: [[-9.0, -5.0], [-2.0, -6.0]]})
    lists = [NBestList("a", (Hypothesis("x y", {"am": -1.0, "words": 3.0}),))]
    with pytest.raises(InputError, match=r"^words: names two scores .* Rename the score in the lists"):
        Scored(lists, {"lm": [[-1.0]]})


AXIS = np.array([0.0, 1.0, 0.5])


def candidates(seed: int, lists: int = 6, most: int = 7, names: int = 3, *, whole: bool = False) -> Candidates:
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, most + 1, size=lists)
    draw = (lambda n: generator.integers(-2, 3, size=(n, names)).astype(float)) if whole else None
    scores = [draw(n) if draw else generator.normal(size=(n, names)) for n in sizes]
    errors = [generator.integers(0, 6, size=n) for n in sizes]
    return Candidates(scores, errors, [np.full(n, 5) for n in sizes])


@example(1525, True)  # several lists change at 0, but for rounding
@given(st.integers(0, 10_000), st.booleans())
def test_line_search_counts_what_choosing_counts(seed: int, whole: bool) -> None:
    found = candidates(seed, whole=whole)
    weights = np.array([1.0, 0.3, -0.2])
    edges, counts = line_search(found, weights, AXIS)
    assert len(counts) == len(edges) + 1
    assert (np.diff(edges) > 0).all(), "between equal edges there would be nothing to choose"
    bounds = np.concatenate([edges[:1] - 1, edges, edges[-1:] + 1]) if len(edges) else np.array([0.0, 1.0])
    for low, high, count in zip(bounds, bounds[1:], counts, strict=False):
        moved = weights + (low + high) / 2 * AXIS
        assert found.errors_of(choose(found.scores, moved)).sum() == count


def test_of_equal_hypotheses_the_first_is_chosen() -> None:
    assert choose([np.zeros((3, 2))], np.ones(2)) == [0]
    found = Candidates([np.array([[0.0, 1.0], [0.0, 1.0]])], [np.array([2, 0])], [np.array([2, 2])])
    assert line_search(found, np.ones(2), np.array([0.0, 1.0]))[1].tolist() == [2]


@pytest.mark.parametrize("count", range(2, 12))
def test_equal_hypotheses_are_equal_at_any_length_and_place(count: int) -> None:
    """Products of matrices round rows differently by their place."""
    draw = np.random.default_rng(count)
    for _ in range(40):
        scores = np.tile(draw.normal(-40, 9, 3), (count, 1)).T.copy().T
        assert choose([scores], draw.normal(2, 1, 3)) == [0]


def test_a_score_that_is_the_same_for_all_hypotheses_of_a_list_keeps_its_weight() -> None:
    found = candidates(2, lists=20)
    same = [np.column_stack([scores, np.full(len(scores), n)]) for n, scores in enumerate(found.scores)]
    result, without = (
        tune(Candidates(x, found.errors, found.words), np.ones(x[0].shape[1])) for x in (same, found.scores)
    )
    assert result.weights[3] == 1 and abs(result.weights).max() < 1e3 and result.errors <= without.errors + 1
    alone = tune(Candidates([x[:, [0, 1, 3]] for x in same], found.errors, found.words), np.ones(3))
    assert alone.exact, "one weight is left to tune"


def test_tuning_finds_planted_weights() -> None:
    # the right hypothesis is the greatest exactly with the planted weights' signs and sizes
    generator = np.random.default_rng(3)
    planted = np.array([1.0, 0.6, 1.5])
    scores = [generator.normal(size=(30, 3)) for _ in range(60)]
    errors = [np.where(np.arange(30) == (each @ planted).argmax(), 0, 4) for each in scores]
    found = Candidates(scores, errors, [np.full(30, 10)] * 60)
    alone = found.errors_of(choose(scores, np.array([1.0, 0.0, 0.0]))).sum()
    result = tune(found, np.array([1.0, 0.0, 0.0]))
    assert result.errors == found.errors_of(choose(scores, result.weights)).sum()
    assert result.errors < alone / 10
    assert result.weights == pytest.approx(planted, rel=0.15)
    assert result.intervals[0] is None and result.weights[0] == 1.0
    for interval, weight in zip(result.intervals[1:], result.weights[1:], strict=True):
        assert interval is not None and interval[0] < weight < interval[1]


@pytest.mark.parametrize("seed", range(8))
def test_one_weight_is_tuned_exactly_and_several_as_well_as_by_many_draws(seed: int) -> None:
    """Against a value between each two at which any two hypotheses change their order, and against random weights."""
    one = candidates(seed, lists=15, names=2)
    pairs = [(x - y) for scores in one.scores for x in scores for y in scores]
    edges = np.sort([-difference[0] / difference[1] for difference in pairs if difference[1]])
    values = np.concatenate([[edges[0] - 1], (edges[1:] + edges[:-1]) / 2, [edges[-1] + 1]])

    def least(found: Candidates, weights: list[np.ndarray]) -> int:
        return min(int(found.errors_of(choose(found.scores, each)).sum()) for each in weights)

    tuned = tune(one, np.array([1.0, 0.0]))
    assert tuned.exact and tuned.errors == least(one, [np.array([1.0, value]) for value in values])
    several = candidates(seed, lists=15)
    tuned = tune(several, np.array([1.0, 0.0, 0.0]))
    drawn = np.random.default_rng(seed).normal(size=(2_000, 2)) * 3
    assert not tuned.exact and tuned.errors <= least(several, [np.array([1.0, *draw]) for draw in drawn])


def test_errors_that_no_weight_gives_are_not_claimed() -> None:
    """Two lists of the same scores change at the same weight: one of them is wrong on either side."""
    scores = [np.array([[0.0, 2.0], [-1.0, 1.0]])] * 2
    found = Candidates(scores, [np.array([3, 0]), np.array([0, 3])], [np.array([5, 5])] * 2)
    result = tune(found, np.array([1.0, 0.5]))
    assert result.errors == found.errors_of(choose(scores, result.weights)).sum() == 3


def test_bootstrap_holds_the_rate_and_is_none_wide_where_lists_are_alike() -> None:
    generator = np.random.default_rng(0)
    errors, words = generator.integers(0, 5, size=200), np.full(200, 10)
    low, high = bootstrap(errors, words)
    assert low < errors.sum() / words.sum() < high
    assert bootstrap(np.full(10, 2), np.full(10, 8)) == (0.25, 0.25)
    assert bootstrap(errors, words, other=errors) == (0.0, 0.0)
    assert np.isnan(bootstrap(np.full(9, 2), np.full(9, 8))).all()
    words[5:190] = 0  # references of silence
    assert np.isfinite(bootstrap(errors, words)).all() and np.isnan(bootstrap(errors[5:], words[5:] * 0)).all()
