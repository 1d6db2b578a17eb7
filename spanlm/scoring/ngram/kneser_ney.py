r"""Interpolated modified Kneser-Ney estimation (Chen and Goodman 1998), as KenLM's `lmplz` computes it.

Let c(h w) be the count of an n-gram and a its adjusted count: c for the highest order and for n-grams that start with
`<s>`, and for all others the number of different words before it, |{v : c(v h w) > 0}|. Then

    p(w | h)  = (a(h w) - D(a(h w))) / sum_v a(h v) + gamma(h) p(w | h'),
    gamma(h)  = (D_1 N_1(h) + D_2 N_2(h) + D_3 N_3+(h)) / sum_v a(h v),
    D_j       = j - (j + 1) n_{j+1} / n_j * n_1 / (n_1 + 2 n_2),      j = 1, 2, 3; D(0) = 0, D(a) = D_3 for a > 3,

where h' is h without its first word, N_j(h) the number of words v with a(h v) = j, n_j the number of n-grams of the
order with a = j. The unigrams back off to 1/V; V counts `<unk>` and `</s>` but not `<s>`. The back-off weights are
gamma. `<unk>` and words that the text lacks have a = 0; an `<unk>` in the text is counted like a word (SRILM's -unk;
`lmplz` refuses such texts). No n-gram is pruned. Arithmetic is in float32 and in the order of `lmplz`. It shares the
one departure of `lmplz` from the paper: the last n-gram of each lower order, sorted from the last word backwards,
enters n_j with c instead of a.

Memory holds the vocabulary and a constant number of blocks. The rest, up to 60 bytes per word and order, is in unnamed
temporary files ($TMPDIR).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError, RunError, require
from spanlm.scoring.ngram.model import ALSO_UNKNOWN, END, START, UNKNOWN, ArpaModel, Floats, Integers, Table

_START_ID, _END_ID = 1, 2
_LAST_KEY = np.uint64(2**64 - 1)

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class KneserNey:
    """Settings of the estimation; `NgramConfig` has their limits.

    Attributes:
        order: Length of the longest n-grams.
        fallback: Discounts D_1, D_2, D_3 for an order whose discounts cannot be computed; None refuses such a text.
        block: Words counted at a time; memory grows with it.
    """

    order: int = 5
    fallback: tuple[float, float, float] | None = None
    block: int = 1 << 20

    def estimate(self, pieces: Iterable[Integers], vocabulary: Vocabulary) -> ArpaModel:
        """Estimate a model over a vocabulary, including words that the text lacks.

        Args:
            pieces: The text by id, in pieces of any length; `<eos>`, which becomes `</s>`, ends every sentence.
            vocabulary: The words of the ids.

        Raises:
            InputError: The vocabulary has `<s>` or `</s>`, or the text does not end in `<eos>` or is too short for the
                order or the discounts.
            RunError: The disk has no room for the temporary files.
        """
        of_sentences = (
            f"without {START} and {END}, which an ARPA file reserves: data.marks=drop leaves them out around lines"
        )
        unknown = f"without it, as ARPA's readers take it for {UNKNOWN}: write {UNK}"
        for mark, limit in ((START, of_sentences), (END, of_sentences), (ALSO_UNKNOWN, unknown)):
            require(mark not in vocabulary, "vocabulary", mark, limit)
        known = {UNK: UNKNOWN, EOS: END}
        words = tuple(dict.fromkeys([UNKNOWN, START, END, *(known.get(word, word) for word in vocabulary.words)]))
        ids = {word: index for index, word in enumerate(words)}
        renumbered = np.array([ids[known.get(word, word)] for word in vocabulary.words], np.int64)
        try:
            text = _with_starts(renumbered[piece] for piece in pieces)
            (tokens,) = _stored(((piece,) for piece in text), np.int32)
            if not len(tokens) or tokens[-1] != _END_ID:
                raise InputError(f"Kneser-Ney: the text is empty or does not end in {EOS}; every sentence must")
            orders = _Counting(tokens, len(words), self.block).orders(self.order)
            return ArpaModel(words, tuple(self._tables(orders)))
        except OSError as error:
            problem = f"temporary files in {tempfile.tempdir or 'no folder'}: {error.strerror}"
            raise RunError(f"Kneser-Ney: {problem}. Let $TMPDIR name a folder with more room") from error

    def _tables(self, orders: list[_Order]) -> list[Table]:
        """Turn counts into probabilities, from short n-grams to long ones."""
        size, tables = len(orders[0].keys), list[Table]()
        shorter: Array = np.full(1, np.float32(1) / np.float32(size - 1))  # p in the order below
        for length, order in enumerate(orders, 1):
            discounts = self._discounts(order, length)
            sums = self._sums(order, len(shorter))
            probability = _zeros(np.float32, len(order.keys))
            tables.append(Table(order.keys, *(_zeros(np.float32, len(order.keys)) for _ in range(2))))
            for part in _parts(len(order.keys), self.block):
                total, gamma = _interpolation(sums, discounts, order.contexts[part])
                rest = (order.counts[part].astype(np.float32) - discounts[np.minimum(order.counts[part], 3)]) / total
                probability[part] = rest + gamma * shorter[tables[-1].split(size, part)[0] if length > 1 else 0]
                tables[-1].log10[part] = _log10(probability[part])
            for part in _parts(len(shorter), self.block) if length > 1 else ():
                tables[-2].backoff[part] = _log10(_interpolation(sums, discounts, part)[1])
            tables[0].log10[_START_ID] = 0.0
            shorter = probability
        return tables

    def _discounts(self, order: _Order, length: int) -> Floats:
        n = order.corrections.copy()
        for part in _parts(len(order.counts), self.block):
            n += np.bincount(np.minimum(order.counts[part], 5), minlength=6)[:5]
        if (n[1:4] > 0).all():
            j = np.arange(4, dtype=np.float32)
            ratio = np.float32(n[1]) / np.float32(n[1] + 2.0 * n[2])
            discounts = j - (j + 1) * ratio * n[1:].astype(np.float32) / np.maximum(n[:4], 1).astype(np.float32)
            discounts[0] = 0
            if (discounts[1:] > 0).all() and (discounts <= j).all():
                return discounts.astype(np.float32)
        if self.fallback is not None:
            return np.array([0, *self.fallback], np.float32)
        raise InputError(
            f"Kneser-Ney: no discounts for order {length}: {n[1]}, {n[2]}, {n[3]} and {n[4]} {length}-grams have the "
            "counts 1 to 4; D_1, D_2 and D_3 must be above 0, and at most 1, 2 and 3. Give more text (not repeated), a "
            "lower order, or discounts to fall back on (ngram.fallback=[0.5, 1, 1.5])"
        )

    def _sums(self, order: _Order, contexts: int) -> list[Array]:
        """Return sum_v a(h v), N_1, N_2 and N_3+ of each context."""
        sums = [_zeros(np.int64, contexts) for _ in range(4)]
        for part in _parts(len(order.keys), self.block):
            counts = order.counts[part]
            heads, where = np.unique(order.contexts[part], return_inverse=True)
            for j, weights in enumerate((counts, counts == 1, counts == 2, counts > 2)):
                sums[j][heads] += np.bincount(where, weights).astype(np.int64)
        return sums


def _interpolation(sums: list[Array], discounts: Floats, contexts: Array | slice) -> tuple[Floats, Floats]:
    """Return sum_v a(h v) and gamma(h) of contexts; both are 1 if no word follows."""
    total, *followers = (values[contexts].astype(np.float32) for values in sums)
    mass = discounts[1] * followers[0] + discounts[2] * followers[1] + discounts[3] * followers[2]
    empty = total == 0
    total[empty], mass[empty] = 1, 1
    return total, mass / total


def _log10(values: Floats) -> Floats:
    return np.minimum(np.log10(values.astype(np.float64)), 0).astype(np.float32)


@dataclass(slots=True)
class _Order:
    """The n-grams of one order, sorted by key.

    Attributes:
        keys: (n,) as in `Table`.
        counts: (n,) c, later replaced by a.
        contexts: (n,) the index of each n-gram's context in the order below.
        corrections: (5,) changes to n_0 ... n_4 for the last n-gram, which counts with c.
    """

    keys: NDArray[np.uint64]
    counts: Integers
    contexts: Integers
    corrections: Integers


class _Counting:
    """Count the n-grams of a text: sort block by block, merge, and look up the index of the n-gram at each place."""

    def __init__(self, tokens: Array, size: int, block: int) -> None:
        self.tokens, self.size, self.block = tokens, size, block
        self.blocks = list(_parts(len(tokens), block))

    def orders(self, longest: int) -> list[_Order]:
        counts = np.zeros(self.size, np.int64)
        for part in self.blocks:
            counts += np.bincount(self.tokens[part], minlength=self.size)
        counts[_START_ID] = 0
        words = np.arange(self.size, dtype=np.uint64)
        orders = [_Order(words, counts, np.zeros(self.size, np.int64), np.zeros(5, np.int64))]
        places: Array = self.tokens
        last = int(np.flatnonzero(counts)[-1])
        for length in range(2, longest + 1):
            order, places = self._order(length, places)
            if not len(order.keys):
                raise InputError("order", longest, f"must be at most {length - 1}; no sentence has {length - 2} words")
            if last != int(order.keys[-1]) // self.size:
                last = -1  # it starts with <s>, so no longer n-gram ends with it, at any order
            self._adjust(orders[-1], order, length - 1, last)
            last = len(order.keys) - 1 if last >= 0 else -1
            orders.append(order)
        return orders

    def _order(self, length: int, shorter: Array) -> tuple[_Order, Array]:
        """Count one order; `shorter` has the index of the next shorter n-gram that ends at each place, -1 for none."""
        ends = [0]

        def runs() -> Iterator[tuple[Array, Array]]:
            for part in self.blocks:
                unique, repeated = np.unique(self._ngrams(length, shorter, part)[1], return_counts=True)
                ends.append(ends[-1] + len(unique))
                yield unique, repeated

        keys, counts = _stored(runs(), np.uint64, np.int64)
        keys, counts = _stored(_merged(keys, counts, ends, self.block), np.uint64, np.int64)
        contexts = _zeros(np.int64, len(keys))
        places = _zeros(np.int64, len(self.tokens))
        for part in self.blocks:
            whole, ngrams, before = self._ngrams(length, shorter, part)
            unique, first, where = np.unique(ngrams, return_index=True, return_inverse=True)
            indices = np.searchsorted(keys, unique)
            contexts[indices] = before[first]
            places[part] = -1
            places[part][whole] = indices[where]
        return _Order(keys, counts, contexts, np.zeros(5, np.int64)), places

    def _ngrams(self, length: int, shorter: Array, part: slice) -> tuple[Array, NDArray[np.uint64], Array]:
        """Return which places of a block end an n-gram, the keys of the n-grams, and the indices of their contexts."""
        before = _shifted(shorter, part, 1)
        whole = (self.tokens[part] != _START_ID) & (before >= 0)
        first = _shifted(self.tokens, part, length - 1)[whole]
        return whole, (shorter[part][whole].astype(np.int64) * self.size + first).astype(np.uint64), before[whole]

    def _adjust(self, order: _Order, longer: _Order, length: int, last: int) -> None:
        """Replace counts by the number of different preceding words, except for n-grams that start with `<s>`.

        `last` is the index of the n-gram that enters n_j with its count c, -1 for none.
        """
        adjusted = _zeros(np.int64, len(order.keys))
        for part in _parts(len(longer.keys), self.block):
            suffixes = (longer.keys[part] // np.uint64(self.size)).astype(np.int64)
            adjusted[suffixes[0] : suffixes[-1] + 1] += np.bincount(suffixes - suffixes[0])
        for part in _parts(len(order.keys), self.block) if length > 1 else ():
            starts = order.keys[part] % np.uint64(self.size) == _START_ID
            adjusted[part] = np.where(starts, order.counts[part], adjusted[part])
        for count, change in ((adjusted[last], -1), (order.counts[last], 1)) if last >= 0 else ():
            order.corrections[count : count + 1] += change  # beyond 4 there is nothing to correct
        order.counts = adjusted


def _zeros(dtype: DTypeLike, size: int) -> Array:
    """Return a mapped array of zeros; writing them first raises on a full disk, where the mapping would be fatal."""
    return _stored(((np.zeros(part.stop - part.start, dtype),) for part in _parts(size, 1 << 12)), dtype)[0]


def _stored(pieces: Iterable[tuple[Array, ...]], *dtypes: DTypeLike) -> tuple[Array, ...]:
    """Concatenate pieces of parallel arrays in unnamed files, and return the mapped arrays."""
    size = 0
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in dtypes]
        for piece in pieces:
            size += len(piece[0])
            for file, part, dtype in zip(files, piece, dtypes, strict=True):
                file.write(part.astype(dtype).tobytes())
        for file in files:
            file.flush()
        if not size:
            return tuple(np.zeros(0, dtype) for dtype in dtypes)
        return tuple(np.memmap(file, dtype, "r+", shape=(size,)) for file, dtype in zip(files, dtypes, strict=True))


def _merged(keys: Array, counts: Array, ends: list[int], block: int) -> Iterator[tuple[Array, Array]]:
    """Merge sorted runs, which lie between the offsets `ends`, and sum the counts of equal keys."""
    at, ends = ends[:-1], ends[1:]
    size = max(1, block // len(ends))
    while live := [run for run, end in enumerate(ends) if at[run] < end]:
        heads = {run: keys[at[run] : min(at[run] + size, ends[run])] for run in live}
        limit = min((head[-1] for run, head in heads.items() if at[run] + size < ends[run]), default=_LAST_KEY)
        taken = {run: slice(at[run], at[run] + int(np.searchsorted(heads[run], limit, "right"))) for run in live}
        unique, where = np.unique(np.concatenate([keys[part] for part in taken.values()]), return_inverse=True)
        weights = np.concatenate([counts[part] for part in taken.values()])
        yield unique, np.bincount(where, weights).astype(np.int64)
        for run, part in taken.items():
            at[run] = part.stop


def _parts(size: int, block: int) -> Iterator[slice]:
    return (slice(start, min(start + block, size)) for start in range(0, size, block))


def _shifted(array: Array, part: slice, by: int) -> Array:
    """Return `array[part]` shifted by `by` places, with -1 before the first place."""
    inside = array[max(0, part.start - by) : max(0, part.stop - by)]
    return np.concatenate([np.full(part.stop - part.start - len(inside), -1, array.dtype), inside])


def _with_starts(pieces: Iterable[Integers]) -> Iterator[Integers]:
    """Put `<s>` before the first word and after each `</s>` but the last."""
    ended = True
    for piece in filter(len, pieces):
        yield np.insert(piece, np.flatnonzero(np.concatenate([[ended], piece[:-1] == _END_ID])), _START_ID)
        ended = bool(piece[-1] == _END_ID)
