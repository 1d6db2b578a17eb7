"""Sentences as streams of their own: each line begins with an empty state.

Salton et al. (2017) train on sentences of at most 35 words, in the order of the text, and throw the rest of longer ones
away (of Penn Treebank 2.7 % of all tokens). Their code opens no sentence: its first word is read and never predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from spanlm.data.segment import Segment, SegmentSource
from spanlm.data.sentence_rules import SentenceRules
from spanlm.data.sizes import at_least_one, drawn_order, not_negative
from spanlm.data.tokens import TokenFile
from spanlm.errors import InputError, require

Positions = NDArray[np.int64]
LONG = 512
POOL = 100
"""Batches whose sentences are sorted together: enough that a batch is even, few enough that its neighbours vary."""


class SentenceBatcher:
    """Makes each line a stream of its own: B lines a segment, all reset, as long as the longest of them.

    Args:
        tokens: The split.
        eos_id: Id of `<eos>`, which ends a line.
        batch_size: B, the number of lines; missing ones of the last segment are padding.
        rules: What becomes of the lines.
        shuffle: Take the lines in an order drawn with the seed of `segments`.
        piece: Steps of the segments of a line of more than `LONG` targets, read alone; None: it is like the others.

    Raises:
        InputError: `batch_size` is below 1, a line is longer than allowed, or no line has a target.
    """

    def __init__(
        self,
        tokens: TokenFile,
        eos_id: int,
        *,
        batch_size: int,
        rules: SentenceRules | None = None,
        shuffle: bool = False,
        piece: int | None = None,
    ) -> None:
        self._source, self._piece = SegmentSource(tokens, eos_id), piece
        self._batch_size = at_least_one("batch_size", batch_size)
        self._rules, self._shuffle = rules or SentenceRules(), shuffle
        ends = _line_ends(tokens, eos_id)
        self._begins, self._ends, self._openings = _pieces(np.append(0, ends[:-1]), ends, self._rules)

    @property
    def targets(self) -> int:
        """Number of tokens that are predicted: all of the split, but for those that the rules leave out."""
        return int((self._ends - self._begins).sum())

    def count(self, seed: int = 0) -> int:
        """Return the number of segments; the seed changes nothing."""
        return sum(1 for _ in self._plan(seed))

    def __len__(self) -> int:
        return self.count()

    def segments(self, seed: int = 0, start: int = 0) -> Iterator[Segment]:
        """Yield the segments from number `start` on, in the order drawn with `seed`."""
        for lines, at, steps, streams in islice(self._plan(seed), not_negative(start), None):
            begin, end, opening = np.zeros((3, streams), np.int64)
            begin[: len(lines)], end[: len(lines)] = self._begins[lines] + at, self._ends[lines]
            opening[: len(lines)] = self._openings[lines]
            yield self._source.segment(begin, end, opening, steps, np.full(streams, at == 0))

    def _plan(self, seed: int) -> Iterator[tuple[Positions, int, int, int]]:
        """Give each segment's lines, where in them it begins, its steps and its streams."""
        lengths = self._ends - self._begins
        for lines in self._batches(seed):
            alone = np.flatnonzero(lengths[lines] > LONG) if self._piece else ()
            for group in np.split(lines, np.union1d(alone, np.add(alone, 1)).astype(int)):
                total = int(lengths[group].max(initial=0))
                size, streams = (self._piece, 1) if self._piece and total > LONG else (total, self._batch_size)
                for at in range(0, total, size or 1):
                    yield group, at, min(size, total - at), streams

    def _batches(self, seed: int) -> list[Positions]:
        lengths, size = self._ends - self._begins, self._batch_size
        order = drawn_order(len(lengths), self._shuffle, seed)
        if self._rules.order == "by-length":
            order = order[np.argsort(lengths[order], kind="stable")]
        if self._rules.order != "bucketed":
            return _cut(order, size)
        pool = np.arange(len(order)) // (size * POOL)
        batches = _cut(order[np.lexsort((lengths[order], pool))], size)
        return [batches[number] for number in np.random.default_rng([seed, 1]).permutation(len(batches))]


def _cut(order: Positions, size: int) -> list[Positions]:
    return [order[first : first + size] for first in range(0, len(order), size)]


def _pieces(begins: Positions, ends: Positions, rules: SentenceRules) -> tuple[Positions, Positions, Positions]:
    """Return where each piece has its first target, where it ends, and where it is opened (-1: not at all)."""
    openings = begins
    if not rules.opened:
        begins = begins + 1
        some = begins < ends
        begins, ends = begins[some], ends[some]
        openings = np.full_like(begins, -1)
        require(len(begins) > 0, "training.batching.predict_first", False, "true for a text without any word")
    if rules.limit is None or rules.long == "keep":
        return begins, ends, openings
    if rules.long == "refuse":
        _refuse_longer(ends - begins, rules.limit)
    if rules.long == "split":
        counts = -(-(ends - begins) // rules.limit)
        which = np.repeat(np.arange(len(begins)), counts)
        number = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        begins, ends, openings = begins[which] + number * rules.limit, ends[which], openings[which]
    return begins, np.minimum(ends, begins + rules.limit), openings


def _refuse_longer(lengths: Positions, limit: int) -> None:
    longer = np.flatnonzero(lengths > limit)
    if len(longer):
        raise InputError(
            f"training.batching.length={limit}: {len(longer):,} of {len(lengths):,} sentences are longer; the first is "
            f"number {longer[0] + 1:,} with {lengths[longer[0]]:,} targets, <eos> included. Say with "
            "training.batching.long_sentences what becomes of them (cut, split or keep), or raise the length to "
            f"{lengths.max():,}."
        )


def _line_ends(tokens: TokenFile, eos_id: int) -> Positions:
    """Return the position after each line's `<eos>`; what follows the last one is a line, too."""
    ids, block = np.asarray(tokens.ids), 1 << 22
    found = [np.flatnonzero(ids[at : at + block] == eos_id) + at + 1 for at in range(0, len(ids), block)]
    ends = np.concatenate(found)
    return ends if len(ends) and ends[-1] == len(ids) else np.append(ends, len(ids))
