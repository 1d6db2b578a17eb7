"""Minimal pairs: what is counted right, and which words a region is."""

from collections.abc import Sequence

import pytest

from spanlm.errors import InputError
from spanlm.scoring.pairs import Accuracy, Pair, accuracies, compare_pairs, regions_of
from spanlm.scoring.prefix_tree import TextScore


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


@pytest.mark.parametrize(
    ("good", "bad", "wanted", "regions"),
    [
        ("the keys are here", "the key are here", "2", ((2, 2), (2, 2))),
        ("the keys are here", "the key are here", "2-3", ((2, 3), (2, 3))),
        ("the keys are here", "the key are here", "are here", ((3, 4), (3, 4))),
        ("the keys are", "the keys old are", "are", ((3, 3), (4, 4))),
        ("Ann saw herself.", "Ann saw himself.", "herself|himself", ((3, 3), (3, 3))),
        ('"Ann," she said', '"Eve," she said', "Ann|Eve", ((1, 1), (1, 1))),
        ("a . b .", "a . c .", ".", ((4, 4), (4, 4))),
        ("dogs' dogs", "cats' dogs", "dogs'|cats'", ((1, 1), (1, 1))),
        ("a cat saw the cat.", "a cat saw the dog.", "cat|dog", ((5, 5), (5, 5))),
        ("cats that saw cats.", "dogs that saw cats.", "cats", ((4, 4), (4, 4))),
        ("cats that saw cats.", "dogs that saw cats.", "cats|dogs", ((1, 1), (1, 1))),
        ("the cat saw one cat", "a big cat saw one cat", "cat", None),
        ("cat, a cat saw it", "cat, this old cat saw it", "cat", ((3, 3), (4, 4))),
        ("the cat saw the cat.", "a cat saw the cat.", "cat", None),
        ("the the", "the the", "the", None),
        *(("the keys", "the key", wanted, None) for wanted in ("3", "0", "2-1", "²", "lock", "keys", " ")),
    ],
)
def test_regions(good: str, bad: str, wanted: str, regions: object) -> None:
    both = wanted.split("|")
    if regions is None:
        with pytest.raises(InputError, match=r" in 'the|in 'the keys'"):
            regions_of(good, bad, both[0], both[-1])
    else:
        assert regions_of(good, bad, both[0], both[-1]) == regions


def test_equal_sentences_are_a_tie_whatever_the_model_says() -> None:
    numbers = iter([-1.0, -2.0])
    (found,) = compare_pairs([Pair("a b", "a  b")], lambda texts: [TextScore([next(numbers)], 0.0, 0) for _ in texts])
    assert (found.tie, found.correct, found.good) == (True, False, found.bad)
