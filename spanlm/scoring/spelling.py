"""Spelled unknown words, with which a model of words has an open vocabulary.

    p(w | context) = p(<unk> | context) p_spell(w)                    for a word w that the vocabulary lacks
    p_spell(c_1 … c_n) = Π_{i=1}^{n} p(c_i | <w> c_1 … c_{i-1}) · p(</w> | <w> c_1 … c_n)

p over characters is interpolated Kneser-Ney of order 6 (`spanlm.scoring.ngram`), counted over the spellings of the
words that the training text has once: they are the nearest to words that it lacks. A text in which `<unk>` has taken
the place of rare words, as it was published, has no such words; there all its words are counted. Characters that no
spelling has (of all code points) share p(<unk>) of the character model equally, so p_spell(w) > 0.

Σ_w p_spell(w) over all strings is 1, and so less over the words that the vocabulary lacks. A written `<unk>` is a word
of the vocabulary, and is not spelled: its cost is that of p(<unk> | context) alone.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from spanlm.data.corpora import Corpus
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.scoring.ngram.config import FALLBACK
from spanlm.scoring.ngram.kneser_ney import KneserNey
from spanlm.scoring.ngram.model import MAX_ORDER

LOSSY = "words", "straight-words"
"""Tokenizers whose tokens do not give the text as written."""


class Speller:
    """p_spell, from the counts of a training text's words by word, those outside the vocabulary included.

    Attributes:
        spellings: number of words whose spellings are counted.
        description: how p is computed, for people.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        words = [word for word in counts if word not in (EOS, UNK)]
        once = [] if UNK in counts else [word for word in words if counts[word] == 1]
        source = "words that the training text has once" if once else "words of the training text"
        words = once or words
        self.spellings: int = len(words)
        characters = dict.fromkeys(chain.from_iterable(words))
        self._unseen = math.log(sys.maxunicode + 1 - len(characters))
        vocabulary = Vocabulary((EOS, UNK, *characters))
        ids = np.array([id for word in words for id in (*vocabulary.encode(word), vocabulary.eos_id)], np.int64)
        # <w> c_1 … c_n </w> has no n-gram of more than n + 2
        order = min(MAX_ORDER, 2 + max(map(len, words), default=0))
        self.description: str = (
            f"p({UNK}) · p(spelling), by Kneser-Ney of order {order} over the {self.spellings:,} {source}"
        )
        self._model = KneserNey(order, FALLBACK).estimate([ids], vocabulary)
        self._costs: dict[str, float] = {}

    def costs(self, words: Iterable[str]) -> dict[str, float]:
        """Return −log p_spell of different words, nats."""
        costs = {}
        for spelled in self._model.score(map(tuple, words)):  # of characters: <s> in a word is no mark
            log10, unseen = math.fsum(spelled.log10.tolist()), int(spelled.oov.sum())
            costs["".join(spelled.words[:-1])] = unseen * self._unseen - log10 * math.log(10)
        return costs

    def cost(self, word: str) -> float:
        """Return −log p_spell of a word, nats."""
        if word not in self._costs:
            self._costs |= self.costs([word])
        return self._costs[word]


@dataclass(frozen=True)
class Spelling:
    """The spelling of a text's unknown words.

    Attributes:
        words: how many targets are spelled: words that the vocabulary lacks.
        nll: −Σ log p_spell over them, nats.
        spellings: number of words whose spellings were counted; None: no word is unknown.
        description: what was done, for the protocol.
        notes: what a reader should know of the numbers.
    """

    words: int
    nll: float
    spellings: int | None
    description: str
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, corpus: Corpus, split: str, speller: Callable[[], Speller]) -> Spelling:
        """Spell the unknown words of a split; `speller` is only called if there are any."""
        counts, notes = corpus.unknown_words(split), list[str]()
        if (written := corpus.unk_tokens(split) - corpus.oov[split]) > 0:
            improper = "; beside words that are spelled, probabilities then sum to more than 1" if counts else ""
            notes.append(f"{written:,} {UNK} stand in the text itself: they are not spelled, at no cost{improper}")
        if corpus.tokenizer in LOSSY:
            lost = "capitals, and whether a mark touches a word, cost nothing"
            notes.append(f"{lost}: the model reads words without them (data.tokenizer={corpus.tokenizer})")
        if not counts:
            return cls(0, 0.0, None, "open vocabulary: no word is unknown", tuple(notes))
        used = speller()
        costs = used.costs(counts)
        nll = math.fsum(number * costs[word] for word, number in counts.items())
        words = sum(counts.values())
        done = f"open vocabulary: {words:,} unknown words are spelled, {used.description}"
        return cls(words, nll, used.spellings, done, tuple(notes))
