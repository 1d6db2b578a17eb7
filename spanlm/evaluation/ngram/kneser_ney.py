r"""Interpolated modified Kneser-Ney estimation (Chen and Goodman 1998), as KenLM's `lmplz` computes it.

With c(h w) the count of an n-gram, and a its adjusted count: c for the highest order and for n-grams that start with
`<s>`, and the number of different words before it, {v : c(v h w) > 0}, for all others,

    p(w | h)  = (a(h w) - D(a(h w))) / sum_v a(h v) + gamma(h) p(w | h'),
    gamma(h)  = (D_1 N_1(h) + D_2 N_2(h) + D_3 N_3+(h)) / sum_v a(h v),
    D_j       = j - (j + 1) n_{j+1} / n_j * n_1 / (n_1 + 2 n_2),      j = 1, 2, 3; D(0) = 0, D(a) = D_3 for a > 3,

where h' is h without its first word, N_j(h) the number of words v with a(h v) = j, n_j the number of n-grams of this
order with a = j, and p(w) of the empty context ends in 1/V, V counting `<unk>` and `</s>` but not `<s>`. Back-off
weights are the gamma. A word of the vocabulary that the text lacks has a = 0, as `<unk>` has; where the text has
`<unk>`, it is counted like a word (SRILM's -unk; `lmplz` refuses such texts). No n-gram is pruned.

Arithmetic is in float32 and in the order of `lmplz`, and one departure from the paper is that of `lmplz`, too: n_j has
the very last n-gram of each lower order, sorted from the last word backwards, by c instead of a.

Memory holds the words of the vocabulary and a constant number of blocks of `block` words. All else is in unnamed
temporary files, which the system frees when the process ends, however it ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError, RunError, require
from spanlm.evaluation.ngram.model import END, MAX_ORDER, START, UNKNOWN, ArpaModel, Floats, Integers, Table

_UNKNOWN_ID, _START_ID, _END_ID = range(3)
_MARKS = (UNKNOWN, START, END)
_TEXT_WORDS = 1 << 16

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class KneserNey:
    """How to estimate an n-gram model.

    Attributes:
        order: Length of the longest n-grams, 1 to 6.
        fallback: Discounts D_1, D_2, D_3 for an order whose own cannot be computed, as `lmplz --discount_fallback`
            (0.5, 1, 1.5 there); None refuses such a text.
        block: Words that are counted at a time; memory grows with it.
        folder: Where temporary files go; about 40 bytes for each word of the text and order. None is the system's
            choice ($TMPDIR).
    """

    order: int = 5
    fallback: tuple[float, float, float] | None = None
    block: int = 1 << 20
    folder: Path | None = None

    def __post_init__(self) -> None:
        require(1 <= self.order <= MAX_ORDER, "order", self.order, f"from 1 to {MAX_ORDER}")
        require(self.block >= 1, "block", self.block, "at least 1")
        for count, discount in enumerate(self.fallback or (), 1):
            require(0 <= discount <= count, f"fallback[{count - 1}]", discount, f"from 0 to {count}")

    def estimate(self, sentences: Iterable[Sequence[str]]) -> ArpaModel:
        """Estimate a model of all the words of a text.

        Args:
            sentences: The words of each, read once. A word `<unk>` is counted as the unknown word.

        Raises:
            InputError: A sentence holds `<s>` or `</s>`, or the text is too short for the discounts.
            RunError: The temporary files have no room.
        """
        words = list(_MARKS)
        return self._model(_numbered(sentences, words), words)

    def estimate_ids(self, ids: Iterable[Integers], vocabulary: Vocabulary) -> ArpaModel:
        """Estimate a model of a vocabulary from a text in ids, each sentence ended by `<eos>`.

        Words of the vocabulary that the text lacks are part of the model.

        Args:
            ids: The text, in pieces of any length.
            vocabulary: Its words; `<eos>` becomes `</s>`, and the others keep their order.

        Raises:
            InputError: The text is too short for the discounts, or lacks `<eos>` at its end, or the vocabulary has
                `<s>` or `</s>`.
            RunError: The temporary files have no room.
        """
        for mark in (START, END):
            require(mark not in vocabulary, "vocabulary", mark, f"without {START} and {END}, which mark sentences")
        words = [*_MARKS, *(word for word in vocabulary.words if word not in (EOS, UNK))]
        renumbered = np.zeros(len(vocabulary), np.int64)
        renumbered[[index for index, word in enumerate(vocabulary.words) if word not in (EOS, UNK)]] = np.arange(
            len(_MARKS), len(words)
        )
        renumbered[vocabulary.eos_id] = _END_ID
        return self._model((renumbered[piece] for piece in ids), words)

    def _model(self, pieces: Iterable[Integers], words: list[str]) -> ArpaModel:
        try:
            disk = _Disk(self.folder)
            tokens = disk.spill(_with_starts(pieces), np.int32)
            if not len(tokens):
                raise InputError("Kneser-Ney: the text has no sentence; give a text with at least one word")
            if tokens[-1] != _END_ID:
                raise InputError(f"Kneser-Ney: the text does not end in {EOS}; every sentence must")
            orders = _Counting(disk, tokens, len(words), self.block).orders(self.order)
            return ArpaModel(tuple(words), tuple(self._tables(disk, orders)))
        except OSError as error:
            raise RunError(
                f"Kneser-Ney: temporary files in {self.folder or tempfile.gettempdir()}: {error.strerror}; choose a "
                "folder with more room"
            ) from error

    def _tables(self, disk: _Disk, orders: list[_Order]) -> Iterator[Table]:
        """Turn counts into probabilities, order by order, from short to long."""
        size = len(orders[0].keys)
        shorter = np.full(1, np.float32(1.0) / np.float32(size - 1))  # p of the order below, here 1/V
        tables: list[Table] = []
        for length, order in enumerate(orders, 1):
            discounts = self._discounts(order, length)
            total, gamma = self._contexts(disk, order, discounts, len(shorter))
            if tables:
                _set_log10(tables[-1].backoff, gamma, self.block)
            probability = disk.array(np.float32, len(order.keys))
            log10 = disk.array(np.float32, len(order.keys))
            for part in _parts(len(order.keys), self.block):
                count, context = order.counts[part], order.contexts[part]
                suffix = (order.keys[part] // np.uint64(size)).astype(np.int64)
                own = (count.astype(np.float32) - discounts[np.minimum(count, 3)]) / total[context]
                probability[part] = own + gamma[context] * shorter[suffix]
            if length == 1:
                probability[_START_ID] = 1.0
            _set_log10(log10, probability, self.block)
            shorter = probability
            tables.append(Table(order.keys, log10, disk.array(np.float32, len(log10))))
        yield from tables

    def _discounts(self, order: _Order, length: int) -> Floats:
        """Return D(0) ... D(3) of one order."""
        n = order.corrections.copy()
        for part in _parts(len(order.counts), self.block):
            n += np.bincount(np.minimum(order.counts[part], 5), minlength=6)[:5]
        problem = next((f"no {length}-gram occurs with count {j}" for j in (1, 2, 3) if n[j] == 0), "")
        if not problem:
            ratio = np.float32(n[1]) / np.float32(n[1] + 2.0 * n[2])
            j = np.arange(4, dtype=np.float32)
            found = j - (j + 1) * ratio * n[1:].astype(np.float32) / np.maximum(n[:4], 1).astype(np.float32)
            found[0] = 0.0
            if (found >= 0).all() and (found <= j).all():
                return found
            problem = f"they are out of range ({', '.join(f'{value:.3g}' for value in found[1:])})"
        if self.fallback is not None:
            return np.array([0.0, *self.fallback], np.float32)
        raise InputError(
            f"Kneser-Ney: the text gives no discounts for order {length}: {problem}. Give more text or text that is "
            "not repeated, a lower order, or discounts to fall back on (0.5, 1, 1.5)"
        )

    def _contexts(self, disk: _Disk, order: _Order, discounts: Floats, contexts: int) -> tuple[Floats, Floats]:
        """Return for each context its total count (1 where there is none) and its gamma (1 where there is none)."""
        sums = [disk.array(np.int64, contexts) for _ in range(4)]  # the total, N_1, N_2, N_3+
        for part in _parts(len(order.keys), self.block):
            count = order.counts[part]
            found, where = np.unique(order.contexts[part], return_inverse=True)
            sums[0][found] += np.bincount(where, count).astype(np.int64)
            for j in (1, 2, 3):
                sums[j][found] += np.bincount(where, np.minimum(count, 3) == j).astype(np.int64)
        total, gamma = (disk.array(np.float32, contexts) for _ in range(2))
        for part in _parts(contexts, self.block):
            total[part] = np.maximum(sums[0][part], 1)
            mass = np.zeros(len(total[part]), np.float32)
            for j in (1, 2, 3):
                mass += discounts[j] * sums[j][part].astype(np.float32)
            gamma[part] = np.where(sums[0][part] > 0, mass / total[part], np.float32(1.0))
        return total, gamma


@dataclass(slots=True)
class _Order:
    """The n-grams of one order, sorted by key.

    Attributes:
        keys: (n,) as in `Table`.
        counts: (n,) c, and once adjusted, a.
        contexts: (n,) the index of each n-gram's context in the order below.
        corrections: (5,) what is added to n_0 ... n_4 because of the last n-gram.
    """

    keys: NDArray[np.uint64]
    counts: Integers
    contexts: Integers
    corrections: Integers = field(default_factory=lambda: np.zeros(5, np.int64))


class _Counting:
    """Counts of the n-grams of a text: sorted block by block, merged, and looked up again to number each place."""

    def __init__(self, disk: _Disk, tokens: Array, size: int, block: int) -> None:
        self.disk, self.tokens, self.size, self.block = disk, tokens, size, block

    def orders(self, longest: int) -> list[_Order]:
        """Count every order and adjust the counts of all but the longest."""
        counts = np.zeros(self.size, np.int64)
        for part in _parts(len(self.tokens), self.block):
            counts += np.bincount(self.tokens[part], minlength=self.size)
        counts[_START_ID] = 0
        orders = [_Order(np.arange(self.size, dtype=np.uint64), counts, np.zeros(self.size, np.int64))]
        places: Array = self.tokens
        last = int(np.flatnonzero(counts)[-1])
        for length in range(2, longest + 1):
            order, places = self._order(length, places)
            if not len(order.keys):
                raise InputError(
                    f"Kneser-Ney: order={longest}: the text has no {length}-grams: its sentences have at most "
                    f"{length - 3} words; must be at most {length - 1}"
                )
            # the last n-gram of all orders together: it ends a longer one unless it starts with <s>
            if last != int(order.keys[-1]) // self.size:
                last = -1
            self._adjust(orders[-1], order, length - 1, last)
            last = len(order.keys) - 1 if last >= 0 else -1
            orders.append(order)
        return orders

    def _order(self, length: int, shorter: Array) -> tuple[_Order, Array]:
        """Count one order; `shorter` has the index of the shorter n-gram that ends at each place, -1 for none."""
        blocks = list(_parts(len(self.tokens), self.block))
        keys, counts = self.disk.spiller(np.uint64), self.disk.spiller(np.int64)
        ends = []
        for part in blocks:
            unique, repeated = np.unique(self._ngrams(length, shorter, part)[1], return_counts=True)
            keys.write(unique)
            counts.write(repeated)
            ends.append(keys.size)
        runs = keys.done(), counts.done()
        keys, counts = self.disk.spiller(np.uint64), self.disk.spiller(np.int64)
        for merged, summed in _merged(*runs, ends, self.block):
            keys.write(merged)
            counts.write(summed)
        table = Table(keys.done(), np.zeros(0, np.float32), np.zeros(0, np.float32))
        contexts = self.disk.array(np.int64, len(table))
        places = self.disk.array(np.int64, len(self.tokens))
        for part in blocks:
            whole, ngrams, before = self._ngrams(length, shorter, part)
            unique, first, where = np.unique(ngrams, return_index=True, return_inverse=True)
            found = table.find(unique)
            contexts[found] = before[first]
            numbered = np.full(len(whole), -1, np.int64)
            numbered[whole] = found[where]
            places[part] = numbered
        return _Order(table.keys, counts.done(), contexts), places

    def _ngrams(self, length: int, shorter: Array, part: slice) -> tuple[Array, NDArray[np.uint64], Integers]:
        """Return where in a block an n-gram ends, the keys of these n-grams, and the indices of their contexts."""
        tokens, suffixes = self.tokens[part], shorter[part]
        before = _shifted(shorter, part, 1)
        whole = (tokens != _START_ID) & (before >= 0)
        keys = suffixes[whole].astype(np.int64) * self.size + _shifted(self.tokens, part, length - 1)[whole]
        return whole, keys.astype(np.uint64), before[whole].astype(np.int64)

    def _adjust(self, order: _Order, longer: _Order, length: int, last: int) -> None:
        """Replace counts by the number of different words before, except for n-grams that start with `<s>`.

        `last` is the index of the n-gram that n_j has by its own count, -1 for none.
        """
        adjusted = self.disk.array(np.int64, len(order.keys))
        for part in _parts(len(longer.keys), self.block):
            suffixes = (longer.keys[part] // np.uint64(self.size)).astype(np.int64)
            adjusted[suffixes[0] : suffixes[-1] + 1] += np.bincount(suffixes - suffixes[0])
        if length > 1:
            for part in _parts(len(order.keys), self.block):
                starts = order.keys[part] % np.uint64(self.size) == _START_ID
                adjusted[part] = np.where(starts, order.counts[part], adjusted[part])
        if last >= 0:
            for count, change in ((adjusted[last], -1), (order.counts[last], 1)):
                if count < 5:
                    order.corrections[count] += change
        order.counts = adjusted


class _Disk:
    """Arrays in temporary files without a name."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def array(self, dtype: Any, size: int) -> Array:
        """Return an array of zeros; its room is taken at once, as a full disk under a mapped file kills a process."""
        if not size:
            return np.zeros(0, dtype)
        with tempfile.TemporaryFile(dir=self.folder) as file:
            os.posix_fallocate(file.fileno(), 0, size * np.dtype(dtype).itemsize)
            return np.memmap(file, dtype, "r+", shape=(size,))  # type: ignore[call-overload, no-any-return]

    def spiller(self, dtype: Any) -> _Spiller:
        """Return an array that grows by what is written to it."""
        return _Spiller(self.folder, dtype)

    def spill(self, pieces: Iterable[Array], dtype: Any) -> Array:
        """Write pieces one after the other and return them as one array."""
        spiller = self.spiller(dtype)
        for piece in pieces:
            spiller.write(piece)
        return spiller.done()


class _Spiller:
    def __init__(self, folder: Path | None, dtype: Any) -> None:
        self.file, self.dtype, self.size = tempfile.TemporaryFile(dir=folder), np.dtype(dtype), 0

    def write(self, piece: Array) -> None:
        self.file.write(piece.astype(self.dtype, copy=False).tobytes())
        self.size += len(piece)

    def done(self) -> Array:
        with self.file:
            self.file.flush()
            return np.memmap(self.file, self.dtype, "r", shape=(self.size,)) if self.size else np.zeros(0, self.dtype)


def _merged(keys: Array, counts: Array, ends: list[int], block: int) -> Iterator[tuple[Array, Array]]:
    """Merge runs of sorted keys that lie one after the other; counts of equal keys are summed."""
    at = [0, *ends[:-1]]
    size = max(1, block // len(ends))
    while live := [run for run, end in enumerate(ends) if at[run] < end]:
        heads = {run: keys[at[run] : min(at[run] + size, ends[run])] for run in live}
        unfinished = [head[-1] for run, head in heads.items() if at[run] + size < ends[run]]
        limit = min(unfinished, default=max(head[-1] for head in heads.values()))
        taken = {run: int(np.searchsorted(head, limit, "right")) for run, head in heads.items()}
        unique, where = np.unique(np.concatenate([heads[run][: taken[run]] for run in live]), return_inverse=True)
        weights = np.concatenate([counts[at[run] : at[run] + taken[run]] for run in live])
        yield unique, np.bincount(where, weights).astype(np.int64)
        for run in live:
            at[run] += taken[run]


def _parts(size: int, block: int) -> Iterator[slice]:
    return (slice(start, min(start + block, size)) for start in range(0, size, block))


def _shifted(array: Array, part: slice, by: int) -> Array:
    """Return `array[part]` as it was `by` places before; -1 before the first."""
    inside = array[max(0, part.start - by) : max(0, part.stop - by)]
    return np.concatenate([np.full(part.stop - part.start - len(inside), -1, array.dtype), inside])


def _set_log10(target: Array, values: Array, block: int) -> None:
    for part in _parts(len(values), block):
        target[part] = np.minimum(np.log10(values[part].astype(np.float64)), 0)


def _numbered(sentences: Iterable[Sequence[str]], words: list[str]) -> Iterator[Integers]:
    """Yield sentences as ids, each ended by `</s>`; words that are new are added to `words`."""
    ids = {word: index for index, word in enumerate(words)}
    add: Callable[[str], int] = lambda word: ids.setdefault(word, len(ids))  # noqa: E731
    piece: list[int] = []
    for number, sentence in enumerate(sentences, 1):
        if START in sentence or END in sentence:
            raise InputError(f"Kneser-Ney: line {number} holds {START} or {END}, which mark sentences: remove it")
        piece.extend(map(add, sentence))
        piece.append(_END_ID)
        if len(piece) >= _TEXT_WORDS:
            yield np.array(piece, np.int64)
            piece = []
    yield np.array(piece, np.int64)
    words.extend(list(ids)[len(words) :])


def _with_starts(pieces: Iterable[Integers]) -> Iterator[Integers]:
    """Put `<s>` before the first word and after each `</s>` but the last."""
    ended = True
    for piece in pieces:
        if len(piece):
            starts = np.flatnonzero(np.concatenate([[ended], piece[:-1] == _END_ID]))
            yield np.insert(piece, starts, _START_ID)
            ended = bool(piece[-1] == _END_ID)
