"""Lists with the scores of language models: what is chosen, what is counted wrong, what is written back."""

from __future__ import annotations

import math

import numpy as np
import pytest

from spanlm.errors import InputError
from spanlm.rescoring.formats import TOTAL, Hypothesis, NBestList
from spanlm.rescoring.references import Reference
from spanlm.rescoring.rescore import Scored, weight_grid, word_errors

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


def test_errors_before_and_after_and_at_best() -> None:
    candidates = SCORED.candidates(REFERENCES)
    before = word_errors(LISTS, [0, 0], REFERENCES, candidates)
    assert (before.substitutions, before.deletions, before.insertions, before.words) == (1, 3, 0, 5)
    assert before.rate == 0.8
    tuned = SCORED.tune(candidates, SCORED.weighted.weights({}))
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
