r"""A back-off n-gram model in sorted arrays, and its look-ups.

With h a context of at most n-1 words and h' the same context without its first word,

    log10 p(w | h) = the listed value             if the n-gram (h w) is listed,
                     b(h) + log10 p(w | h')       otherwise; b(h) is 0 where h is not listed.

The key of an n-gram (w_1 ... w_k) is the index of its suffix (w_2 ... w_k) in the table of order k-1, times the size of
the vocabulary, plus w_1. Tables are sorted by key, so a match grows from the last word backwards with one binary search
per order. Sums are in float32 and in KenLM's order: the longest match, then back-off weights from short contexts to
long ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError

UNKNOWN, START, END = "<unk>", "<s>", "</s>"
ALSO_UNKNOWN = "<UNK>"
"""ARPA readers treat this word as `<unk>`, too."""
MAX_ORDER = 6
_BATCH = 1024
"""Sentences scored at a time."""

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Keys = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Table:
    """The n-grams of one order, sorted by key.

    Attributes:
        keys: (n,) suffix index times vocabulary size plus first word; in order 1 the word's id.
        log10: (n,) log10 p(w_k | w_1 ... w_{k-1}); NaN for an unlisted n-gram that is a listed one's suffix.
        backoff: (n,) log10 back-off weight of the n-gram as a context.
    """

    keys: Keys
    log10: Floats
    backoff: Floats

    def find(self, suffixes: Integers, first: NDArray[np.integer], size: int) -> Integers:
        """Return the indices of n-grams by suffix (-1: none) and first word; -1 for n-grams that are not stored."""
        if not len(self.keys):
            return np.full(len(suffixes), -1, np.int64)
        keys = (np.maximum(suffixes, 0) * size + first).astype(np.uint64)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where((suffixes >= 0) & (self.keys[at] == keys), at, -1)

    def split(self, size: int, part: slice | Integers = slice(None)) -> tuple[Integers, Integers]:
        """Return the suffix index and the first word of n-grams."""
        suffixes, first = np.divmod(self.keys[part], np.uint64(size))
        return suffixes.astype(np.int64), first.astype(np.int64)


@dataclass(frozen=True, slots=True)
class SentenceScores:
    """Scores of a sentence's words and of the `</s>` after them.

    Attributes:
        words: The words as written, and `</s>`.
        ids: (n,) ids in the model's vocabulary; 0 for unknown words.
        log10: (n,) log10 p(word | words before), float32.
        lengths: (n,) length of the longest listed n-gram that ends at the word.
    """

    words: Sequence[str]
    ids: Integers
    log10: Floats
    lengths: NDArray[np.int8]

    @property
    def oov(self) -> NDArray[np.bool_]:
        """(n,) bool, whether the word is outside the model's vocabulary, or `<unk>` itself."""
        return np.asarray(self.ids == 0)


@dataclass(frozen=True)
class ArpaModel:
    """A back-off n-gram model of order n, 1 to 6.

    Attributes:
        words: The vocabulary by id, with `<unk>` at 0, `<s>` and `</s>`.
        tables: One table per order.
    """

    words: tuple[str, ...]
    tables: Sequence[Table]

    @property
    def order(self) -> int:
        return len(self.tables)

    @cached_property
    def ids(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.words)}

    def score(self, sentences: Iterable[Sequence[str]]) -> Iterator[SentenceScores]:
        """Score sentences, each after `<s>`, in batches of bounded memory.

        Raises:
            InputError: A sentence holds `<s>` or `</s>` as a word.
        """
        source = iter(sentences)
        while batch := list(islice(source, _BATCH)):
            ids = list(map(self._numbers, batch))
            contexts = np.concatenate(list(map(self._contexts, ids)))
            log10, lengths = self.look_up(np.concatenate(ids), contexts)
            start = 0
            for words, row in zip(batch, ids, strict=True):
                part = slice(start, start := start + len(row))
                yield SentenceScores((*words, END), row, log10[part], lengths[part])

    def distributions(self, contexts: Integers, columns: tuple[Integers, Floats] | None = None) -> Floats:
        """Return log10 p of every next word after each context, (N, V); 4 N V bytes.

        `distributions(contexts)[i, ids[i]]` is `look_up(ids, contexts)[0][i]` bit for bit. `<s>`, which is never
        predicted, has -inf.

        Args:
            contexts: (N, n-1), see `look_up`.
            columns: The vocabulary of the result, as `columns` maps it; None: the model's.
        """
        unigrams = self.tables[0].log10.copy()
        unigrams[self.ids[START]] = -np.inf
        out: Floats = np.repeat(unigrams[None], len(contexts), axis=0)
        for context, table, (heads, words, log10) in zip(
            self._find_contexts(contexts), self.tables[:-1], self._successors, strict=True
        ):
            rows = np.flatnonzero(context >= 0)
            out[rows] += table.backoff[context[rows], None]
            first, last = (np.searchsorted(heads, context[rows], side) for side in ("left", "right"))
            many = last - first
            at = np.arange(many.sum()) + np.repeat(first - np.cumsum(many) + many, many)
            out[np.repeat(rows, many), words[at]] = log10[at]
        return out if columns is None else out[:, columns[0]] + columns[1]

    def columns(self, vocabulary: Vocabulary) -> tuple[Integers, Floats]:
        """Map `vocabulary` to the model: the model's id of each word, 0 for those it lacks, and the shift of log10 p.

        Its `<eos>` is `</s>`; `<s>` and `</s>` in it are unknown. The K words with id 0 share p(<unk>): −log10 K.
        """
        known = self.ids | {START: 0, END: 0, EOS: self.ids[END]}
        ids = np.array([known.get(word, 0) for word in vocabulary.words], np.int64)
        unknown = ids == 0
        return ids, np.where(unknown, -np.log10(max(1, unknown.sum())), 0).astype(np.float32)

    @cached_property
    def _successors(self) -> list[tuple[Integers, Integers, Floats]]:
        """Per context length from 1: the sorted index of the context, the next word, and its log10 p."""
        successors, last = [], np.arange(len(self.words))
        for table, contexts in zip(self.tables[1:], contexts_of(self.tables), strict=True):
            last = last[table.split(len(self.words))[0]]
            listed = np.flatnonzero(~np.isnan(table.log10))
            listed = listed[np.argsort(contexts[listed], kind="stable")]
            successors.append((contexts[listed], last[listed], table.log10[listed]))
        return successors

    def _numbers(self, sentence: Sequence[str]) -> Integers:
        require_no_marks(sentence)
        return np.array([*(self.ids.get(word, 0) for word in sentence), self.ids[END]], np.int64)

    def _contexts(self, ids: Integers) -> Integers:
        """Return the contexts (N, n-1) of a sentence's words, with `<s>` before the first."""
        read = np.concatenate([np.full(self.order - 1, -1), [self.ids[START]], ids[:-1]])
        return sliding_window_view(read, self.order - 1)[1:]

    def _find_contexts(self, contexts: Integers) -> list[Integers]:
        """Look up contexts (N, n-1): per length, the index of their last words as an n-gram, -1 for none."""
        return self._grow(contexts[:, -1], contexts[:, :-1]) if self.order > 1 else []

    def _grow(self, last: Integers, before: Integers) -> list[Integers]:
        """Look up n-grams that end in the words `last` (N,), with more and more of the words `before` (N, k)."""
        matches = [last]
        for column, table in zip(before.T[::-1], self.tables[1:], strict=False):
            matches.append(np.where(column < 0, -1, table.find(matches[-1], column, len(self.words))))
        return matches

    def look_up(self, ids: Integers, contexts: Integers) -> tuple[Floats, NDArray[np.int8]]:
        """Return log10 p of words (N,) after their contexts, and the lengths of the longest listed n-grams, as `score`.

        `contexts` (N, n-1) are the ids of the preceding words, in order; -1 for none.
        """
        log10, lengths = self.tables[0].log10[ids], np.ones(len(ids), np.int8)
        for length, (table, match) in enumerate(zip(self.tables[1:], self._grow(ids, contexts)[1:], strict=True), 2):
            matched = np.flatnonzero(match >= 0)
            values = table.log10[match[matched]]
            listed = matched[~np.isnan(values)]
            log10[listed], lengths[listed] = values[~np.isnan(values)], length
        for length, (table, context) in enumerate(zip(self.tables[:-1], self._find_contexts(contexts), strict=True), 1):
            backed_off = np.flatnonzero((context >= 0) & (lengths <= length))
            log10[backed_off] += table.backoff[context[backed_off]]
        return log10, lengths


def require_no_marks(sentence: Sequence[str]) -> None:
    """Raise InputError if a sentence holds `<s>` or `</s>` as a word."""
    for mark in (START, END):
        if mark in sentence:
            raise InputError(f"a sentence holds {mark} as a word; it marks where sentences start and end: remove it")


def contexts_of(tables: Sequence[Table]) -> Iterator[Integers]:
    """Yield, per order from 2 on, the index of each n-gram's context in the order below; -1 for none."""
    size = len(tables[0].keys)
    contexts = np.zeros(size, np.int64)  # the context of a single word is empty
    for order, table in enumerate(tables[1:], 2):
        suffixes, first = table.split(size)
        contexts = first if order == 2 else tables[order - 2].find(contexts[suffixes], first, size)
        yield contexts
