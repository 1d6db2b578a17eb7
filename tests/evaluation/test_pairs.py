"""Minimal pairs: what is counted right, and which words a region is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spanlm.errors import InputError
from spanlm.evaluation.pairs import Accuracy, Pair, accuracies, compare_pairs, region_of
from spanlm.evaluation.prefix_tree import TextScore


def scores(texts: Sequence[str]) -> list[TextScore]:
    """A word costs its length, a line end 1; `?` is not in the vocabulary."""
    return [TextScore([-float(len(word)) for word in text.split()], -1.0, text.count("?")) for text in texts]


def test_sums_ties_and_oov() -> None:
    pairs = [
        Pair("a b", "a bb", fields={"UID": "x"}),
        Pair("a bb", "a b", fields={"UID": "x"}),
        Pair("a b", "b a", fields={"UID": "y"}),
        Pair("? b", "a bbb", fields={"UID": "y"}),
    ]
    found = compare_pairs(pairs, scores)
    assert [each.good for each in found] == [-3.0, -4.0, -3.0, -3.0]
    assert [each.correct for each in found] == [True, False, False, True]
    assert [each.tie for each in found] == [False, False, True, False]
    total = Accuracy.of(found)
    assert (total.pairs, total.correct, total.ties, total.oov, total.oov_correct) == (4, 2, 1, 1, 1)
    assert {value: each.accuracy for value, each in accuracies(found, "UID").items()} == {"x": 0.5, "y": 0.5}
    assert found[0].to_json()["UID"] == "x"


def test_a_region_alone_is_summed() -> None:
    pair = Pair("the keys are here", "the keys is here now", regions=((3, 3), (3, 4)))
    (found,) = compare_pairs([pair], scores)
    assert (found.good, found.bad) == (-3.0, -6.0)


@pytest.mark.parametrize("correct", [0, 3, 15, 50])
def test_wilsons_interval_is_where_the_score_test_just_accepts(correct: int) -> None:
    share = correct / 50
    low, high = Accuracy(50, correct, 0, 0, 0).interval
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1
    for bound in (low, high):
        assert (share - bound) ** 2 == pytest.approx(1.959964**2 * bound * (1 - bound) / 50, abs=1e-9)


@pytest.mark.parametrize(("wanted", "region"), [("2", (2, 2)), ("2-3", (2, 3)), ("keys are", (2, 3)), ("the", (1, 1))])
def test_regions(wanted: str, region: tuple[int, int]) -> None:
    assert region_of("the keys are here", wanted, "line 1") == region


@pytest.mark.parametrize(
    ("text", "wanted", "message"),
    [
        ("the keys", "3", "line 1: there are no words 3"),
        ("the keys", "0", "no words 0"),
        ("the keys", "2-1", "no words 2-1"),
        ("the keys", "²", "'²' is not in"),
        ("the keys", "lock", "'lock' is not in"),
        ("the the", "the", "is 2 times in"),
    ],
)
def test_regions_that_are_not_there(text: str, wanted: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        region_of(text, wanted, "line 1")


def test_equal_sentences_are_refused() -> None:
    with pytest.raises(InputError, match="line 7: both sentences"):
        compare_pairs([Pair("a b", "a  b", place="line 7")], scores)
