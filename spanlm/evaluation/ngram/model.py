r"""A back-off n-gram model in sorted arrays, and the questions that are asked of it.

With h a context of at most n-1 words, h' the same context without its first word, and * the n-grams listed,

    log10 p(w | h) = log10 p*(h w)                       if h w is listed,
                     b(h) + log10 p(w | h')              otherwise; b(h) is 0 where h is not listed.

An n-gram (w_1 ... w_k) is stored under one integer: the index of its suffix (w_2 ... w_k) in the table of order k-1,
times the vocabulary's size, plus w_1. Every table is sorted by this key, so that n-grams are found from the last word
backwards, one binary search an order, and the match of (w_{t-k+1} ... w_t) is also the context of word t+1. Sums are
in float32 and in the order of KenLM: the longest match first, then the back-off weights from short to long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError, require

UNKNOWN, START, END = "<unk>", "<s>", "</s>"
MAX_ORDER = 6
NO_UNKNOWN = -100.0
"""log10 probability of unknown words where a file lists no `<unk>`; KenLM's value."""
_BATCH_WORDS = 1 << 16

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Table:
    """The n-grams of one order, sorted by key.

    Attributes:
        keys: (n,) uint64, suffix index times vocabulary size plus first word; in order 1 the word's id.
        log10: (n,) float32, log10 p(w_k | w_1 ... w_{k-1}); NaN for an n-gram that is not listed itself but ends one
            that is.
        backoff: (n,) float32, log10 back-off weight of the n-gram as a context.
    """

    keys: NDArray[np.uint64]
    log10: Floats
    backoff: Floats

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, keys: NDArray[np.uint64]) -> Integers:
        """Return the index of each key, -1 for those that are not there."""
        if not len(self):
            return np.full(len(keys), -1, np.int64)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self) - 1)
        return np.where(self.keys[at] == keys, at, -1)


@dataclass(frozen=True, slots=True)
class SentenceScores:
    """Scores of the words of one sentence and of the `</s>` after them.

    Attributes:
        log10: (n,) float32, log10 p(word | words before).
        lengths: (n,) int8, words in the longest listed n-gram that ends here.
        oov: (n,) bool, the word is not in the model's vocabulary, or is `<unk>` itself.
    """

    log10: Floats
    lengths: NDArray[np.int8]
    oov: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Columns:
    """Where the words of another vocabulary stand in a model's distribution.

    Attributes:
        ids: (V,) the model's id of each word, 0 (`<unk>`) for a word that the model does not have.
        shift: (V,) float32, added to log10 p: the K words without an id of their own share p(<unk>) equally, -log10 K.
    """

    ids: Integers
    shift: Floats


@dataclass(frozen=True)
class ArpaModel:
    """A back-off n-gram model of order 1 to 6.

    Attributes:
        words: The vocabulary in id order; id 0 is `<unk>`, and `<s>` and `</s>` are among them.
        tables: One table an order.
    """

    words: tuple[str, ...]
    tables: tuple[Table, ...]

    def __post_init__(self) -> None:
        require(1 <= self.order <= MAX_ORDER, "order", self.order, f"from 1 to {MAX_ORDER}")

    @property
    def order(self) -> int:
        """Return the length of the longest n-grams."""
        return len(self.tables)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Return the id of each word."""
        return {word: index for index, word in enumerate(self.words)}

    @cached_property
    def initial(self) -> tuple[int, ...]:
        """Return the state at the start of a sentence: the words seen, which are `<s>`."""
        return (self.ids[START],)[: self.order - 1]

    def advance(self, state: Sequence[int], word: int) -> tuple[int, ...]:
        """Return the state after a word: the last n-1 words; after `</s>` a new sentence starts."""
        if word == self.ids[END]:
            return self.initial
        return (*state, word)[max(0, len(state) + 2 - self.order) :] if self.order > 1 else ()

    def score(self, sentences: Iterable[Sequence[str]], end: bool = True) -> Iterator[SentenceScores]:
        """Score sentences, each from `<s>`, in batches of bounded memory.

        Args:
            sentences: The words of each.
            end: Score the `</s>` after each sentence, too.

        Raises:
            InputError: A sentence holds `<s>` or `</s>` as a word.
        """
        for batch in _batches(sentences):
            ids = [self._numbers(sentence) for sentence in batch]
            log10, lengths = self._scores(np.concatenate([part for row in ids for part in (row, self._end)]), ())
            start = 0
            for row in ids:
                stop = start + len(row)
                part = slice(start, stop + end)
                oov = np.append(row == 0, False)[: len(row) + end]
                yield SentenceScores(log10[part], lengths[part], oov)
                start = stop + 1

    def log10_probs(self, ids: Integers, state: Sequence[int] | None = None) -> Floats:
        """Return the log10 probability of each word of a stream; (T,), float32.

        Args:
            ids: (T,) the words by id; `</s>` ends a sentence, after which the next starts from `<s>`.
            state: The words before the first; None starts a sentence.
        """
        return self._scores(ids, self.initial if state is None else state)[0]

    def distributions(
        self, ids: Integers, state: Sequence[int] | None = None, columns: Columns | None = None
    ) -> Floats:
        """Return the distribution that predicts each word of a stream, as log10 probabilities.

        `distributions(ids)[t, ids[t]]` is `log10_probs(ids)[t]` bit for bit. Memory is T x V x 4 bytes: cut the
        stream and pass the state on.

        Args:
            ids: (T,) the words by id, as for `log10_probs`; the last one matters to none.
            state: The words before the first; None starts a sentence.
            columns: The vocabulary of the result; None is the model's own. `<s>`, which is never predicted, has -inf.

        Returns:
            (T, V), float32.
        """
        stream, places = self._with_starts(ids, self.initial if state is None else state)
        matches, since = self._matches(stream)
        unigrams = self.tables[0].log10.copy()
        unigrams[self.ids[START]] = -np.inf
        out = np.repeat(unigrams[None], len(ids), axis=0)
        for length in range(1, self.order):
            context = np.where(since[places] >= length, matches[length - 1][places - 1], -1)
            rows = np.flatnonzero(context >= 0)
            out[rows] += self.tables[length - 1].backoff[context[rows], None]
            contexts, words, log10 = self._successors[length]
            first, last = (np.searchsorted(contexts, context[rows], side) for side in ("left", "right"))
            many = last - first
            at = np.arange(many.sum()) + np.repeat(first - np.cumsum(many) + many, many)
            out[np.repeat(rows, many), words[at]] = log10[at]
        return out if columns is None else out[:, columns.ids] + columns.shift

    def distribution(self, state: Sequence[int], columns: Columns | None = None) -> Floats:
        """Return the log10 probability of every next word after a state; (V,), float32."""
        return self.distributions(np.zeros(1, np.int64), state, columns)[0]

    def columns(self, vocabulary: Vocabulary) -> Columns:
        """Return where the words of `vocabulary` stand; its `<eos>` is `</s>`."""
        ids = np.array([self.ids.get(END if word == EOS else word, 0) for word in vocabulary.words], np.int64)
        unknown = ids == 0
        return Columns(ids, np.where(unknown, -np.log10(max(1, unknown.sum())), 0).astype(np.float32))

    @cached_property
    def _end(self) -> Integers:
        return np.array([self.ids[END]], np.int64)

    @cached_property
    def _successors(self) -> list[tuple[Integers, Integers, Floats]]:
        """By length of the context: the context's index, sorted, the word after it, and its log10 p."""
        successors = [(np.zeros(0, np.int64),) * 2 + (np.zeros(0, np.float32),)]
        last = np.arange(len(self.words))
        for table, contexts in zip(self.tables[1:], prefixes(self.tables, len(self.words)), strict=True):
            last = last[(table.keys // np.uint64(len(self.words))).astype(np.int64)]
            listed = np.flatnonzero(~np.isnan(table.log10))
            listed = listed[np.argsort(contexts[listed], kind="stable")]
            successors.append((contexts[listed], last[listed], table.log10[listed]))
        return successors

    def _numbers(self, sentence: Sequence[str]) -> Integers:
        require_no_marks(sentence)
        return np.array([self.ids.get(word, 0) for word in sentence], np.int64)

    def _with_starts(self, ids: Integers, state: Sequence[int]) -> tuple[Integers, Integers]:
        """Return the state and the words with `<s>` after each `</s>`, and the place of each word in it."""
        ended = np.flatnonzero(ids[:-1] == self.ids[END]) + 1
        before = np.array(state if len(state) else (self.ids[START],), np.int64)
        stream = np.concatenate([before, np.insert(ids, ended, self.ids[START])])
        starts = np.zeros(len(ids), np.int64)
        starts[ended] = 1
        return stream, np.arange(len(ids)) + len(before) + np.cumsum(starts)

    def _matches(self, stream: Integers) -> tuple[list[Integers], Integers]:
        """Look up the n-grams that end at each word.

        Returns:
            By order: the index of the n-gram that ends at each place, -1 if there is none; and the number of words
            between each place and its sentence's start.
        """
        place = np.arange(len(stream))
        since = place - np.maximum.accumulate(np.where(stream == self.ids[START], place, 0))
        matches = [stream]
        for length in range(2, self.order + 1):
            found = np.full(len(stream), -1, np.int64)
            at = np.flatnonzero((matches[-1] >= 0) & (since >= length - 1))
            keys = matches[-1][at] * len(self.words) + stream[at - length + 1]
            found[at] = self.tables[length - 1].find(keys.astype(np.uint64))
            matches.append(found)
        return matches, since

    def _scores(self, ids: Integers, state: Sequence[int]) -> tuple[Floats, NDArray[np.int8]]:
        if not len(ids):
            return np.zeros(0, np.float32), np.zeros(0, np.int8)
        stream, places = self._with_starts(ids, state)
        matches, since = self._matches(stream)
        log10, lengths = self.tables[0].log10[ids], np.ones(len(ids), np.int8)
        for length in range(2, self.order + 1):
            match = matches[length - 1][places]
            values = self.tables[length - 1].log10[match] if len(self.tables[length - 1]) else np.zeros(0, np.float32)
            listed = (match >= 0) & ~np.isnan(values)
            log10[listed], lengths[listed] = values[listed], length
        for length in range(1, self.order):
            context = matches[length - 1][places - 1]
            backed_off = np.flatnonzero((context >= 0) & (since[places] >= length) & (lengths <= length))
            log10[backed_off] += self.tables[length - 1].backoff[context[backed_off]]
        return log10, lengths


def prefixes(tables: Sequence[Table], size: int) -> Iterator[Integers]:
    """Yield for each order from 2 on the index of every n-gram's context in the order below; -1 where it has none."""
    shorter = np.zeros(size, np.int64)  # the context of a single word: the empty one
    for order, table in enumerate(tables[1:], 2):
        suffixes, first = (table.keys // np.uint64(size)).astype(np.int64), (table.keys % np.uint64(size))
        if order == 2:
            contexts = first.astype(np.int64)
        else:
            inner = shorter[suffixes]
            contexts = tables[order - 2].find(np.maximum(inner, 0).astype(np.uint64) * np.uint64(size) + first)
            contexts[inner < 0] = -1
        yield contexts
        shorter = contexts


def require_no_marks(sentence: Sequence[str]) -> None:
    """Raise InputError if a sentence holds `<s>` or `</s>` as a word."""
    for mark in (START, END):
        if mark in sentence:
            raise InputError(f"a sentence holds {mark} as a word; it marks where sentences start and end: remove it")


def _batches(sentences: Iterable[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    batch: list[Sequence[str]] = []
    words = 0
    for sentence in sentences:
        batch.append(sentence)
        words += len(sentence) + 1
        if words >= _BATCH_WORDS:
            yield batch
            batch, words = [], 0
    if batch:
        yield batch
