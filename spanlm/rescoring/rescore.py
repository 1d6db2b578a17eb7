"""Choose the best hypothesis of each n-best list by its scores and language models, and count word errors.

A hypothesis scores Σ_k w_k · s_k over its first scores (the total if the format has one, else all scores), log p by
each language model, and its number of words. All logarithms are natural.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spanlm.errors import InputError, nearest_or_all
from spanlm.rescoring.formats import TOTAL, NBestList
from spanlm.rescoring.references import Reference, aligned
from spanlm.rescoring.weights import Array, Candidates, bootstrap, choose, edits, totals

WORDS = "words"

IMPOSSIBLE = -1e5
"""log p of a hypothesis of probability 0: below all others, and finite, so that a weight of 0 leaves it out."""


@dataclass(frozen=True)
class WordErrors:
    """Word errors of one hypothesis per list.

    Attributes:
        substitutions: wrong words.
        deletions: missing words of the references.
        insertions: words that the references do not have.
        words: words of the references.
        interval: 95 % interval of the word error rate, from resampled lists.
    """

    substitutions: int
    deletions: int
    insertions: int
    words: int
    interval: tuple[float, float]

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Word errors per word of the references; NaN if the references have no words."""
        return self.errors / self.words if self.words else math.nan

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "interval": list(self.interval), "errors": self.errors, "word_error_rate": self.rate}


@dataclass(frozen=True)
class Weighted:
    """Names of the weighted scores.

    Attributes:
        first: scores in the lists: the total if the format has one, else all of them.
        language: language models.
    """

    first: tuple[str, ...]
    language: tuple[str, ...]

    @classmethod
    def of(cls, lists: Sequence[NBestList], language: Iterable[str]) -> Weighted:
        """Name the scores of lists and language models; InputError: two share a name."""
        scores = tuple(lists[0].hypotheses[0].scores)
        weighted = cls((TOTAL,) if TOTAL in scores else scores, tuple(language))
        # the model's column would overwrite the field in the written lists
        fields = {name for nbest in lists for h in nbest.hypotheses for name in (*h.scores, *h.fields)}
        fields |= {TOTAL, "text", "words_text"}
        for name in (*weighted.language, WORDS):
            if weighted.names.count(name) > 1:
                way = "Rename the model." if name in weighted.language else "Rename the score in the lists."
                raise InputError(f"{name}: names two scores of the choice ({', '.join(weighted.names)}). {way}")
            if name in weighted.language and name in fields:
                raise InputError(f"{name}: is a model's name, and a field's of the lists. Rename the model.")
        return weighted

    @property
    def names(self) -> tuple[str, ...]:
        """All weighted scores, the number of words last."""
        return (*self.first, *self.language, WORDS)

    def weights(self, values: Mapping[str, float]) -> Array:
        """Return the weight of every score, by default 1 for first scores and 0 for others.

        Raises:
            InputError: a weight names no score; the message lists the scores.
        """
        for name in values:
            if name not in self.names:
                raise InputError("weights", limit=f"no score {name}.{nearest_or_all(name, self.names)}")
        usual = dict.fromkeys(self.first or self.language[:1], 1.0)
        return np.array([values.get(name, usual.get(name, 0.0)) for name in self.names])


class Scored:
    """Lists with all scores of their hypotheses.

    Args:
        lists: the lists as read.
        language: by language model, log p of every hypothesis of every list, in order; of −∞ `IMPOSSIBLE` is taken.
        spoken: the lists without the words that are not counted; None: all words count.
    """

    def __init__(
        self,
        lists: Sequence[NBestList],
        language: Mapping[str, Sequence[Sequence[float]]],
        spoken: Sequence[NBestList] | None = None,
    ) -> None:
        self.lists: list[NBestList] = list(lists)
        self.spoken: Sequence[NBestList] = spoken or lists
        self.weighted: Weighted = Weighted.of(lists, language)
        self.names: tuple[str, ...] = self.weighted.names
        self.scores: list[Array] = []
        for place, nbest in enumerate(lists):
            columns: list[Sequence[float]] = [
                [hypothesis.scores[name] for hypothesis in nbest.hypotheses] for name in self.weighted.first
            ]
            columns += [np.maximum(values[place], IMPOSSIBLE).tolist() for values in language.values()]
            columns += [[len(hypothesis.words) for hypothesis in self.spoken[place].hypotheses]]
            self.scores.append(np.array(columns, dtype=np.float64).T)

    def candidates(self, references: Sequence[Reference | None]) -> Candidates:
        """Count the word errors of every hypothesis."""
        candidates, distance = Candidates(self.scores, [], []), edits().distance
        for spoken, reference in zip(self.spoken, references, strict=True):
            pairs = [aligned(candidate.words, reference) for candidate in spoken.hypotheses]
            candidates.errors.append(np.array([distance(said, hypothesis) for hypothesis, said in pairs]))
            candidates.words.append(np.array([len(said) for _, said in pairs]))
        return candidates

    def best(self, weights: Array) -> list[int]:
        """Return the index of the best hypothesis of each list."""
        return choose(self.scores, weights)

    def reordered(self, weights: Array) -> list[NBestList]:
        """Return the lists, best first; their scores include log p of the language models and the new total."""
        lists, first = [], len(self.weighted.first)
        for scores, nbest in zip(self.scores, self.lists, strict=True):
            sums, hypotheses = totals(scores, weights), []
            for rank in np.argsort(-sums, kind="stable").tolist():
                old = nbest.hypotheses[rank]
                new = {name: value for name, value in old.scores.items() if name != TOTAL}
                new |= zip(self.weighted.language, scores[rank, first:-1].tolist(), strict=True)
                hypotheses.append(replace(old, scores={**new, TOTAL: float(sums[rank])}))
            lists.append(replace(nbest, hypotheses=tuple(hypotheses)))
        return lists


def word_errors(
    lists: Sequence[NBestList], chosen: Sequence[int], references: Sequence[Reference | None], candidates: Candidates
) -> WordErrors:
    """Count the word errors of one hypothesis per list with rapidfuzz."""
    counted = Counter[str]()
    for nbest, place, reference in zip(lists, chosen, references, strict=True):
        hypothesis, said = aligned(nbest.hypotheses[place].words, reference)
        counted.update(edit.tag for edit in edits().editops(said, hypothesis))
    words = candidates.words_of(chosen)
    interval = bootstrap(candidates.errors_of(chosen), words)
    return WordErrors(counted["replace"], counted["delete"], counted["insert"], int(words.sum()), interval)


def plain_rate(lists: Sequence[NBestList], chosen: Sequence[int], references: Sequence[Reference | None]) -> float:
    """Return the word error rate in lower case without punctuation; NaN if the references have no words."""

    def plain(words: Iterable[str]) -> list[str]:
        text = " ".join(words).casefold()
        return "".join(character for character in text if unicodedata.category(character)[0] not in "PS").split()

    errors = words = 0
    for nbest, place, reference in zip(lists, chosen, references, strict=True):
        hypothesis, said = map(plain, aligned(nbest.hypotheses[place].words, reference))
        errors, words = errors + edits().distance(said, hypothesis), words + len(said)
    return errors / words if words else math.nan


def weight_grid(candidates: Candidates, weights: Array, k: int) -> list[tuple[float, float]]:
    """Return word error rates with weight k varied from 0 to twice its value."""
    rates = []
    for value in np.linspace(0.0, 2 * float(weights[k]) or 1.0, 11):
        changed = weights.copy()
        changed[k] = value
        chosen = choose(candidates.scores, changed)
        words = candidates.words_of(chosen).sum() or math.nan
        rates.append((float(value), float(candidates.errors_of(chosen).sum() / words)))
    return rates
