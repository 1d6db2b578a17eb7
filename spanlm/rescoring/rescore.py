"""From lists and what language models say of their hypotheses to the best of each list, and how many words are wrong.

The score of a hypothesis is Σ_k w_k · s_k over its first scores (the total alone, where the format has one, else all of
them), log p by each language model, and its number of words; all logarithms are natural.
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
from spanlm.rescoring.weights import Array, Candidates, Tuned, bootstrap, choose, edits, tune

WORDS = "words"


@dataclass(frozen=True)
class WordErrors:
    """The word errors of one hypothesis a list.

    Attributes:
        substitutions: words that stand for another one.
        deletions: words of the references that are missing.
        insertions: words that the references do not have.
        words: of the references.
        interval: 95 % of the word error rate, by drawing lists anew.
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
        """The word error rate: errors by words of the references; NaN where these have none."""
        return self.errors / self.words if self.words else math.nan

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "interval": list(self.interval), "errors": self.errors, "word_error_rate": self.rate}


@dataclass(frozen=True)
class Weighted:
    """What has a weight in the choice of a hypothesis, by name.

    Attributes:
        first: the lists' own scores: the total alone, where the format has one, else all of them.
        language: the language models.
    """

    first: tuple[str, ...]
    language: tuple[str, ...]

    @classmethod
    def of(cls, lists: Sequence[NBestList], language: Iterable[str]) -> Weighted:
        """Name what lists have and language models add; InputError: two have one name."""
        scores = tuple(lists[0].hypotheses[0].scores)
        weighted = cls((TOTAL,) if TOTAL in scores else scores, tuple(language))
        # in the lists that are written, the model would take its place
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
        """All of them, the number of words last."""
        return (*self.first, *self.language, WORDS)

    def weights(self, values: Mapping[str, float]) -> Array:
        """Return a weight of every score: those given, 1 of a first score that is not, 0 of what else is not.

        Raises:
            InputError: a weight of a score that is not there; names those that are.
        """
        for name in values:
            if name not in self.names:
                raise InputError("weights", limit=f"no score {name}.{nearest_or_all(name, self.names)}")
        usual = dict.fromkeys(self.first or self.language[:1], 1.0)
        return np.array([values.get(name, usual.get(name, 0.0)) for name in self.names])


class Scored:
    """Lists with all scores of their hypotheses.

    Args:
        lists: as they were read.
        language: log p of every hypothesis of every list, in their order, by the name of the language model.
        spoken: the lists with the words that count alone (default: with all).
    """

    def __init__(
        self,
        lists: Sequence[NBestList],
        language: Mapping[str, Sequence[Sequence[float]]],
        spoken: Sequence[NBestList] | None = None,
    ) -> None:
        self.lists = list(lists)
        self.spoken = spoken or lists
        self.weighted = Weighted.of(lists, language)
        self.names = self.weighted.names
        self.scores: list[Array] = []
        for place, nbest in enumerate(lists):
            columns: list[Sequence[float]] = [
                [hypothesis.scores[name] for hypothesis in nbest.hypotheses] for name in self.weighted.first
            ]
            columns += [values[place] for values in language.values()]
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

    def tune(self, candidates: Candidates, first: Array) -> Tuned:
        """Tune every weight but the first, which gives the scale; see `spanlm.rescoring.weights.tune`."""
        return tune(candidates, first)

    def best(self, weights: Array) -> list[int]:
        """Return which hypothesis of each list is the best."""
        return choose(self.scores, weights)

    def reordered(self, weights: Array) -> list[NBestList]:
        """Return the lists, best first, with log p of the language models and the new total among the scores."""
        lists, first = [], len(self.weighted.first)
        for scores, nbest in zip(self.scores, self.lists, strict=True):
            totals, hypotheses = scores @ weights, []
            for rank in np.argsort(-totals, kind="stable").tolist():
                old = nbest.hypotheses[rank]
                new = {name: value for name, value in old.scores.items() if name != TOTAL}
                new |= zip(self.weighted.language, scores[rank, first:-1].tolist(), strict=True)
                hypotheses.append(replace(old, scores={**new, TOTAL: float(totals[rank])}))
            lists.append(replace(nbest, hypotheses=tuple(hypotheses)))
        return lists


def word_errors(
    lists: Sequence[NBestList], chosen: Sequence[int], references: Sequence[Reference | None], candidates: Candidates
) -> WordErrors:
    """Count substitutions, deletions and insertions of one hypothesis a list, by rapidfuzz."""
    counted = Counter[str]()
    for nbest, place, reference in zip(lists, chosen, references, strict=True):
        hypothesis, said = aligned(nbest.hypotheses[place].words, reference)
        counted.update(edit.tag for edit in edits().editops(said, hypothesis))
    words = candidates.words_of(chosen)
    interval = bootstrap(candidates.errors_of(chosen), words)
    return WordErrors(counted["replace"], counted["delete"], counted["insert"], int(words.sum()), interval)


def plain_rate(lists: Sequence[NBestList], chosen: Sequence[int], references: Sequence[Reference | None]) -> float:
    """Return the word error rate in lower case without punctuation; NaN where the references have no words."""

    def plain(words: Iterable[str]) -> list[str]:
        text = " ".join(words).casefold()
        return "".join(character for character in text if unicodedata.category(character)[0] not in "PS").split()

    errors = words = 0
    for nbest, place, reference in zip(lists, chosen, references, strict=True):
        hypothesis, said = map(plain, aligned(nbest.hypotheses[place].words, reference))
        errors, words = errors + edits().distance(said, hypothesis), words + len(said)
    return errors / words if words else math.nan


def weight_grid(candidates: Candidates, weights: Array, k: int) -> list[tuple[float, float]]:
    """Return word error rates with weight k from 0 to twice its value, the others as they are."""
    rates = []
    for value in np.linspace(0.0, 2 * float(weights[k]) or 1.0, 11):
        changed = weights.copy()
        changed[k] = value
        chosen = choose(candidates.scores, changed)
        words = candidates.words_of(chosen).sum() or math.nan
        rates.append((float(value), float(candidates.errors_of(chosen).sum() / words)))
    return rates
