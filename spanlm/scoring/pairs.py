"""Minimal pairs: is the good sentence of each pair more probable than the bad one (Warstadt et al., 2020, BLiMP)?

A sentence's log-probability is Σ log p(word | <eos>, the words before it), line end included. With a region, only the
region's words are summed, each with its full context. Equal log-probabilities, as of equal sentences, are a wrong
answer; such ties are also counted apart. So are pairs with a word outside the vocabulary, which may compare two <unk>.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spanlm.data.tokenizer import written_words
from spanlm.errors import InputError
from spanlm.scoring.prefix_tree import TextScore
from spanlm.scoring.tally import wilson

Region = tuple[int, int]
"""The numbers of the first and the last word, from 1; white space separates words."""


@dataclass(frozen=True)
class Pair:
    """An acceptable sentence and an unacceptable one.

    Attributes:
        regions: the words to compare, in both; None: whole sentences.
        fields: further columns of the pair's row.
        line: its line number in the file.
    """

    good: str
    bad: str
    regions: tuple[Region, Region] | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    line: int = 0

    @property
    def same(self) -> bool:
        return written_words(self.good) == written_words(self.bad)


ANSWERS = ("good", "bad", "correct", "tie", "oov")
"""Columns written after the pair's own fields."""


@dataclass(frozen=True)
class Compared:
    """A model's scores of a pair.

    Attributes:
        good: log p of the good sentence or its region, nats.
        bad: log p of the bad sentence or its region, nats.
        oov: whether either sentence has a word outside the vocabulary.
    """

    pair: Pair
    good: float
    bad: float
    oov: bool

    @property
    def correct(self) -> bool:
        return self.good > self.bad

    @property
    def tie(self) -> bool:
        return self.good == self.bad

    def to_json(self, prefix: str = "") -> dict[str, Any]:
        return {**self.pair.fields, **{prefix + name: getattr(self, name) for name in ANSWERS}}


@dataclass(frozen=True)
class Accuracy:
    """Numbers of pairs by answer.

    Attributes:
        correct: pairs whose good sentence is more probable.
        ties: pairs with equal log-probabilities, which count as wrong.
        oov: pairs with a word outside the vocabulary.
        oov_correct: correct pairs among these.
    """

    pairs: int
    correct: int
    ties: int
    oov: int
    oov_correct: int

    @classmethod
    def of(cls, compared: Iterable[Compared]) -> Accuracy:
        results = list(compared)
        correct, ties, oov = (sum(getattr(result, name) for result in results) for name in ("correct", "tie", "oov"))
        return cls(len(results), correct, ties, oov, sum(result.oov and result.correct for result in results))

    @property
    def accuracy(self) -> float:
        return self.correct / self.pairs

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the accuracy."""
        return wilson(self.correct, self.pairs)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "accuracy": self.accuracy, "interval": list(self.interval)}


def accuracies(compared: Sequence[Compared], column: str) -> dict[str, Accuracy]:
    """Return the accuracy for each value of a field, in order of first appearance."""
    groups: dict[str, list[Compared]] = defaultdict(list)
    for result in compared:
        groups[str(result.pair.fields.get(column, ""))].append(result)
    return {value: Accuracy.of(group) for value, group in groups.items()}


def regions_of(good: str, bad: str, wanted: str, wanted_bad: str) -> tuple[Region, Region]:
    """Find regions in two sentences by word numbers (`4`, `4-6`) or by the words themselves.

    Punctuation attached to a word is ignored, unless it is wanted. If words occur at several places, the region is the
    place that both sentences share, counted from the beginning or the end, up to which they differ.

    Raises:
        InputError: there is no such place, or several.
    """
    words, others = written_words(good), written_words(bad)
    places = [(x, y) for x in _places(good, words, wanted) for y in _places(bad, others, wanted_bad)]
    if len(places) > 1:
        alike = [(x, y) for x, y in places if x[0] == y[0] or len(words) - x[1] == len(others) - y[1]]
        places = [(x, y) for x, y in alike if words[: x[1]] != others[: y[1]]]
    if len(places) != 1:
        count = f"has {len(places) or 'no'} places that differ"
        raise InputError(f"{wanted!r} {count} in {good!r} and {bad!r}. Give the number of its first word, as 4 or 4-6.")
    return places[0]


def _places(text: str, words: list[str], wanted: str) -> list[Region]:
    tokens = written_words(wanted)
    first, dash, last = wanted.partition("-")
    if first.strip().isdecimal() and (not dash or last.strip().isdecimal()):
        start, end = int(first), int(last or first)
        if not 1 <= start <= end <= len(words):
            raise InputError(f"there are no words {wanted} in {text!r}, which has {len(words)}")
        return [(start, end)]
    plain = [*map(_plain, words)] if tokens == [*map(_plain, tokens)] else words
    starts = [n for n in range(len(words)) if tokens and plain[n : n + len(tokens)] == tokens]
    if not starts:
        raise InputError(f"{wanted!r} is not in {text!r}. Give the number of its first word, as 4 or 4-6.")
    return [(n + 1, n + len(tokens)) for n in starts]


def _plain(word: str) -> str:
    """Strip punctuation around a word, unless the word is all punctuation."""
    return re.sub(r"^\W+|\W+$", "", word) or word


def compare_pairs(pairs: Sequence[Pair], score: Callable[[Sequence[str]], Sequence[TextScore]]) -> list[Compared]:
    """Compare the sentences of every pair; `score` scores sentences."""
    scored, results = iter(score([text for pair in pairs for text in (pair.good, pair.bad)])), []
    for pair in pairs:
        good, bad = next(scored), next(scored)
        if pair.same:
            bad = good  # equal sentences in other batches may differ by rounding
        log_p, bad_log_p = good.log_prob, bad.log_prob
        if pair.regions is not None:
            both = zip((good, bad), pair.regions, strict=True)
            log_p, bad_log_p = (math.fsum(text.words[first - 1 : last]) for text, (first, last) in both)
        results.append(Compared(pair, log_p, bad_log_p, bool(good.oov or bad.oov)))
    return results
