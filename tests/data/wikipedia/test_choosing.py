from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data.vocabulary import Vocabulary
from spanlm.data.wikipedia.writing import covering, most_frequent
from spanlm.errors import InputError

COUNTS = st.dictionaries(st.text("abc", min_size=1, max_size=4), st.integers(1, 9), min_size=1, max_size=30)


@given(COUNTS, st.data())
def test_the_same_words_as_the_size_limit_of_a_vocabulary_keeps(counts: dict[str, int], data: st.DataObject) -> None:
    size = data.draw(st.integers(2, len(counts) + 2))
    kept = most_frequent(Counter(counts), size)
    assert {*kept, "<unk>", "<eos>"} == set(Vocabulary.from_counts(counts, max_size=size).words)


def test_more_words_than_there_are() -> None:
    with pytest.raises(InputError, match=r"--vocabulary=6: .* only 3 different words, 5 with .* Give --vocabulary 5 "):
        most_frequent(Counter("aab c"[:3] + "cc"), 6)


@given(COUNTS, st.floats(0.001, 1))
def test_the_fewest_words_that_cover_a_share(counts: dict[str, int], share: float) -> None:
    kept = covering(Counter(counts), share)
    needed = share * sum(counts.values())
    assert sum(counts[word] for word in kept) >= needed
    assert sum(counts[word] for word in kept[:-1]) < needed
    assert min(counts[word] for word in kept) >= max([0, *(counts[word] for word in counts.keys() - kept)])
