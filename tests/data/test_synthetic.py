"""The law of a synthetic text is the law: against brute force, as a distribution, and by counting what is drawn."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from spanlm.data.config import DataConfig
from spanlm.data.corpora import load_corpus
from spanlm.data.synthetic import (
    SOURCES,
    Agreement,
    Copy,
    Counting,
    Markov,
    Parity,
    Recall,
    Source,
    Topics,
    find_synthetic,
)
from spanlm.errors import InputError

SMALL: list[Source] = [
    Markov(states=2, words=3, end=0.4),
    Copy(lag=2, chance=0.6, words=2, end=0.3),
    Agreement(depth=2, nested=0.4, words=1),
    Recall(pairs=2, queries=1, keys=2, values=2),
    Topics(words=2, strength=3, end=0.3),
    Parity(asks=0.4, end=0.3),
    Counting(longest=4),
]
LINES = 4_000


def likelihood(source: Source, line: list[str]) -> float:
    return math.exp(math.fsum(known.log_p for known in source.law(line)))


@pytest.mark.parametrize("source", SMALL, ids=lambda source: source.kind)
def test_lines_are_drawn_as_often_as_the_law_says(source: Source) -> None:
    draw = np.random.default_rng(7)
    counts = Counter(tuple(source.line(draw)) for _ in range(LINES))
    for line, count in counts.most_common(30):
        p = likelihood(source, list(line))
        assert count == pytest.approx(LINES * p, abs=5 * math.sqrt(LINES * p))


def test_the_forward_algorithm_sums_over_all_paths_of_states() -> None:
    source = Markov(states=3, words=4, end=0.25)
    moves, emits = source._tables
    for line in (["w0"], ["w1", "w3"], ["w2", "w2", "w0", "w1"]):
        total = 0.0
        for path in itertools.product(range(3), repeat=len(line)):
            p = 1 / 3
            for place, (state, word) in enumerate(zip(path, line, strict=True)):
                p *= (moves[path[place - 1], state] if place else 1) * emits[state, int(word[1:])]
            total += p
        assert likelihood(source, line) == pytest.approx(total * 0.75 ** (len(line) - 1) * 0.25)


@pytest.mark.parametrize(
    ("source", "line", "lags"),
    [
        (Copy(lag=2), "w1 w2 w1", [0, 0, 2, 0]),
        (Agreement(), "the noun1-s that the noun2-p verb0-p verb3-s", [0, 0, 0, 0, 0, 1, 5, 0]),
        (Recall(pairs=2, queries=2), "k1 v5 k2 v7 k1 v5 k1 v5", [0, 0, 0, 0, 0, 4, 0, 2, 0]),
        (Topics(), "w1 w2 w1 w1", [0, 0, 2, 1, 0]),
        (Parity(), "1 0 ? odd 1 ? even", [0, 0, 0, 3, 0, 0, 3, 0]),
        (Counting(), "a a a b b b", [0, 0, 0, 0, 3, 5, 6]),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_the_lag_is_that_of_the_word_that_is_needed(source: Source, line: str, lags: list[int]) -> None:
    assert [known.lag for known in source.law(line.split())] == lags


@pytest.mark.parametrize("kind", SOURCES)
def test_a_corpus_is_the_same_from_the_same_seed_alone(kind: str) -> None:
    name = f"synthetic:{kind},tokens=400"
    one, other = (load_corpus(DataConfig(corpus=each)) for each in (name, f"{name},seed=2"))
    assert one.name == name
    assert one.texts == load_corpus(DataConfig(corpus=name)).texts
    assert one.texts != other.texts
    lines = [line.split() for line in one.written_lines("train")]
    assert lines[:-1] == list(find_synthetic(name).lines("train"))[: len(lines) - 1]
    assert 400 <= len(one.splits["train"]) < 1200


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("copi", "Did you mean 'synthetic:copy'"),
        ("copy,lagg=3", "Did you mean 'lag'"),
        ("copy,lag=x", "lag=x"),
        ("copy,chance=1.5", "chance=1.5"),
        ("recall,pairs=30", "pairs=30: must be at most keys=8"),
    ],
)
def test_what_is_no_source_is_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_corpus(DataConfig(corpus=f"synthetic:{name}"))
