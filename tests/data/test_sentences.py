"""Sentences as streams of their own: what becomes of long ones, what opens them, and in which batches they come."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlm.data.batching import LONG, POOL, SentenceBatcher
from spanlm.data.config import SentenceOrder, SentenceRules
from spanlm.data.token_files import TokenFile
from spanlm.errors import InputError

EOS = 0
LINE = st.integers(0, 9)
LINES = st.lists(LINE, min_size=1, max_size=14)
"""The number of words of each line."""

Sentence = tuple[list[int], list[int]]


def text(lines: list[int]) -> TokenFile:
    """Words count up from 1, so that each says where it stands."""
    words = itertools.count(1)
    ids = [word for length in lines for word in (*itertools.islice(words, length), EOS)]
    return TokenFile(np.array(ids, np.int32), np.zeros(1, np.int64))


def by_a_loop(lines: list[int], limit: int | None, predict_first: bool) -> list[Sentence]:
    """Inputs and targets of all sentences."""
    words, found = itertools.count(1), []
    for length in lines:
        line = [*itertools.islice(words, length), EOS]
        inputs, targets = ([EOS, *line[:-1]], line) if predict_first else (line[:-1], line[1:])
        found += [(inputs[:limit], targets[:limit])] if targets else []
    return found


def read(batcher: SentenceBatcher, seed: int = 0, start: int = 0) -> list[list[Sentence]]:
    """Inputs and targets of each stream of each segment, without padding; every stream begins anew."""
    found = []
    for segment in batcher.segments(seed, start):
        assert segment.reset.all()
        assert segment.mask.any(1).all(), "a step of padding only"
        streams = [(segment.inputs[real, b], segment.targets[real, b]) for b, real in enumerate(segment.mask.T)]
        found.append([(inputs.tolist(), targets.tolist()) for inputs, targets in streams if len(targets)])
    return found


def padding(batcher: SentenceBatcher, seed: int = 0) -> float:
    masks = [segment.mask for segment in batcher.segments(seed)]
    return 1 - sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)


def test_a_text_without_words_has_nothing_to_predict_unopened() -> None:
    with pytest.raises(InputError, match=r"^training\.batching\.predict_first=false"):
        read(SentenceBatcher(text([0, 0]), EOS, batch_size=3, rules=SentenceRules(predict_first=False)))


def test_a_last_line_without_an_end() -> None:
    ids = TokenFile(np.array([1, EOS, 2, 3], np.int32), np.zeros(1, np.int64))
    batcher = SentenceBatcher(ids, EOS, batch_size=2, rules=SentenceRules(predict_first=False))
    assert read(batcher) == [[([1], [EOS]), ([2], [3])]]


def skewed(count: int = 3000) -> list[int]:
    """Most sentences are short, a few are very long."""
    return [int(x) for x in np.random.default_rng(7).geometric(0.06, count)]


def test_sentences_of_similar_length_need_little_padding() -> None:
    tokens = text(skewed())

    def batcher(order: Any, shuffle: bool = True) -> SentenceBatcher:
        return SentenceBatcher(tokens, EOS, batch_size=32, rules=SentenceRules(order=order), shuffle=shuffle)

    assert padding(batcher("drawn", shuffle=False)) > 0.3 < padding(batcher("drawn"))
    assert padding(batcher("bucketed")) < 0.1
    assert padding(batcher("by-length")) < 0.06
    lengths = [len(targets) for batch in read(batcher("by-length")) for _, targets in batch]
    assert lengths == sorted(lengths)


def test_only_neighbours_of_the_drawn_order_are_put_together() -> None:
    """A bucket is sorted, not the text: whose sentences come together would else be the same in every epoch."""

    def firsts(order: SentenceOrder) -> list[list[int]]:
        rules = SentenceRules(order=order)
        batcher = SentenceBatcher(text(skewed(1000)), EOS, batch_size=4, rules=rules, shuffle=True)
        return [[targets[0] for _, targets in batch] for batch in read(batcher, seed=3)]

    drawn = [word for batch in firsts("drawn") for word in batch]
    pools = {word: place // (4 * POOL) for place, word in enumerate(drawn)}
    assert len(set(pools.values())) == 3
    assert all(len({pools[word] for word in batch}) == 1 for batch in firsts("bucketed"))


@settings(max_examples=40)
@given(
    lines=st.lists(st.integers(0, 20) | st.integers(LONG - 5, 1200), min_size=1, max_size=9),
    batch_size=st.integers(1, 4),
    pieces=st.integers(90, 600),
    order=st.sampled_from(["drawn", "by-length"]),
    predict_first=st.booleans(),
    start=st.integers(0, 9),
)
def test_very_long_lines_are_read_alone_and_in_pieces(
    lines: list[int], batch_size: int, pieces: int, order: Any, predict_first: bool, start: int
) -> None:
    """Joined again they are the lines; the others come in the order, and where none is long in the batches, as ever."""
    tokens, rules = text([1, *lines]), SentenceRules(predict_first=predict_first, order=order)
    expected = by_a_loop([1, *lines], None, predict_first)
    if order == "by-length":
        expected.sort(key=lambda sentence: len(sentence[1]))
    batcher = SentenceBatcher(tokens, EOS, batch_size=batch_size, rules=rules, piece=pieces)
    segments, later = list(batcher.segments()), list(batcher.segments(start=start))
    assert len(segments) == batcher.count()
    found: list[Sentence] = []
    for segment in segments:
        assert segment.reset.all() or len(segment.reset) == 1
        assert len(segment.inputs) <= max(LONG, pieces)
        for b, real in enumerate(segment.mask.T):
            if segment.reset.all() and real.any():
                found.append(([], []))
            found[-1][0].extend(segment.inputs[real, b].tolist())
            found[-1][1].extend(segment.targets[real, b].tolist())
    assert found == expected
    assert [segment.targets.tolist() for segment in later] == [s.targets.tolist() for s in segments[start:]]
    if all(len(targets) <= LONG for _, targets in expected):
        plain = SentenceBatcher(tokens, EOS, batch_size=batch_size, rules=rules).segments()
        assert [s.targets.tolist() for s in segments] == [s.targets.tolist() for s in plain]


RULES = st.builds(
    SentenceRules,
    order=st.sampled_from(["drawn", "bucketed", "by-length"]),
    limit=st.none() | st.integers(1, 9),
    predict_first=st.booleans(),
)


@given(lines=LINES, size=st.integers(1, 4), seed=st.integers(0, 3), shuffle=st.booleans(), rules=RULES, start=LINE)
def test_sentences_are_those_of_a_loop_in_every_order_and_start_anywhere(
    lines: list[int], size: int, seed: int, shuffle: bool, rules: SentenceRules, start: int
) -> None:
    """The limit counts what is predicted; an unopened line's first word is only read, one without words left out."""
    expected = by_a_loop([1, *lines], rules.limit, rules.predict_first)
    batcher = SentenceBatcher(text([1, *lines]), EOS, batch_size=size, rules=rules, shuffle=shuffle)
    batches = read(batcher, seed)
    found = [sentence for batch in batches for sentence in batch]
    if shuffle or rules.order != "drawn":
        assert sorted(found) == sorted(expected)
    else:
        assert found == expected
    assert batcher.targets == sum(len(targets) for _, targets in expected)
    assert len(batches) == batcher.count(seed) == -(-len(expected) // size)
    assert sorted(map(len, batches))[1:] == [size] * (len(batches) - 1)
    assert read(batcher, seed, start) == batches[start:]
