"""From the tokens of a split to segments (T, B) of inputs and targets.

Shapes: T time steps, B streams. Every token of the split is a target exactly once (unless sentences are cut for
training: `SentenceRules`). Padding has the input `<eos>` and the mask False. The first input of the text is one
`<eos>`; every other stream begins with the token before its first target.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from spanlm.data.config import SHORTEST, BatchingKind, SentenceRules, StreamRules
from spanlm.data.token_files import TokenFile
from spanlm.data.tokenizer import Flags, Positions
from spanlm.errors import require

LONG = 512
"""Evaluation reads a sentence with more targets alone, in pieces."""
POOL = 100
"""Batches whose sentences are sorted together: enough for even lengths, few enough for varied neighbours."""
_BLOCK, _MOST_STEPS = 4096, 2**31
# one generator for each purpose, so that no option changes the draws of another
_BATCHES, _LENGTHS, _TURNS = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of each stream.

    Attributes:
        inputs: The words that the model reads, int64 (T, B).
        targets: The words after the inputs, int64 (T, B).
        mask: False where the target is padding, bool (T, B).
        reset: True where a stream starts with an empty state, bool (B,).
        place: Index of each target in the text, from 0, int64 (T, B).
        rate_share: Factor of the step's learning rate: drawn length / usual length.
        after: Index of the stream that each stream continues from the last segment, (B,); None: the same stream.
    """

    inputs: Tensor
    targets: Tensor
    mask: Tensor
    reset: Tensor
    place: Tensor
    rate_share: float = 1.0
    after: Tensor | None = None

    def to(self, device: torch.device) -> Segment:
        if device.type == "cpu":
            return self
        parts = ("inputs", "targets", "mask", "reset")
        return replace(self, **{name: getattr(self, name).to(device, non_blocking=True) for name in parts})


class Batcher(ABC):
    """Cuts a split into segments of B streams. `make_batcher` documents arguments and errors."""

    def __init__(self, tokens: TokenFile, eos_id: int, *, batch_size: int, length: int = 1) -> None:
        # a plain view: indexing a np.memmap takes twice as long
        self._ids = np.asarray(tokens.ids)
        self._eos_id = eos_id
        self._batch_size, self._length = batch_size, length

    @property
    def targets(self) -> int:
        """Number of predicted tokens: all of the split, except those that `SentenceRules` leaves out."""
        return len(self._ids)

    @abstractmethod
    def count(self, seed: int = 0) -> int:
        """Return the number of segments, which depends on the seed for shuffled documents and drawn lengths."""

    @abstractmethod
    def segments(self, seed: int = 0, start: int = 0) -> Iterator[Segment]:
        """Yield the segments that `seed` draws, from number `start` on, without making the earlier ones."""

    def _read(self, begin: Positions, end: Positions, opening: Positions, steps: int, reset: Flags) -> Segment:
        """Read a segment; `begin`, `end` and `opening` (B,) are positions of each stream's targets in the split."""
        at = begin + np.arange(-1, steps)[:, None]
        return self._gather(at, at[1:] < end, at[1:] == opening, reset)

    def _gather(self, at: Positions, mask: Flags, opens: Flags, reset: Flags, rate_share: float = 1.0) -> Segment:
        """Read a segment from the positions `at` (T + 1, B) in the split of its inputs and its last targets.

        An input is the target before it, or `<eos>` where `opens` (T, B). Positions outside the split are padding.
        """
        # one read gives both inputs and targets
        ids = self._ids[np.clip(at, 0, len(self._ids) - 1)]
        targets = np.where(mask, ids[1:], self._eos_id)
        inputs = np.where(mask & ~opens, ids[:-1], self._eos_id)
        return Segment(
            torch.from_numpy(inputs.astype(np.int64)),
            torch.from_numpy(targets.astype(np.int64)),
            torch.from_numpy(mask),
            torch.from_numpy(reset.copy()),
            torch.from_numpy(at[1:]),
            rate_share,
        )


def _drawn_order(items: int, shuffle: bool, seed: int) -> Positions:
    return np.random.default_rng(seed).permutation(items) if shuffle else np.arange(items)


class StreamBatcher(Batcher):
    """Cuts the split into B contiguous streams, and the streams into segments; the state carries over.

    Stream b holds the tokens from b * ceil(N / B) on; its first input is the token before them. All streams are reset
    at the first segment and never again. In training two things may be drawn for each epoch:

    * The length of each segment (Merity et al., 2018), so that gradients are not always cut at the same places. With
      the usual length L, and b = L or, for a share of the segments, ⌊L / 2⌋:

          l = max(5, ⌊n⌋),  n ~ N(b, spread²),  at most L + `longest_over`

      The step multiplies its learning rate by l / L (`Segment.rate_share`), also at the last segment, which may be cut
      short.
    * The start of each stream (Press, 2019, "partial shuffle"): with s uniform in 0 … M - 1, a stream of x_1 … x_M
      reads x_{s+1} … x_M x_1 … x_s; x_1 is then predicted from x_M. Each epoch rotates the original stream, not last
      epoch's rotation.

    The last segment may be shorter.
    """

    def __init__(
        self, tokens: TokenFile, eos_id: int, *, batch_size: int, length: int, rules: StreamRules | None = None
    ) -> None:
        super().__init__(tokens, eos_id, batch_size=batch_size, length=length)
        self._rules = rules or StreamRules()
        self._column = -(-len(tokens) // batch_size)
        self._begins = np.arange(batch_size) * self._column
        self._sizes = np.clip(len(tokens) - self._begins, 0, self._column)

    def count(self, seed: int = 0) -> int:
        return len(self._lengths(seed))

    def segments(self, seed: int = 0, start: int = 0) -> Iterator[Segment]:
        lengths, turns = self._lengths(seed), np.zeros_like(self._sizes)
        if self._rules.partial_shuffle:
            turns = np.random.default_rng([seed, _TURNS]).integers(np.maximum(self._sizes, 1))
        ends = np.cumsum(lengths)
        for index in range(start, len(lengths)):
            begin, end = int(ends[index] - lengths[index]), min(int(ends[index]), self._column)
            steps = np.arange(begin - 1, end)[:, None]
            # a rotated stream wraps around; the position before its first target stays there
            turned = steps + turns
            at = self._begins + np.where(turned < self._sizes, turned, turned - self._sizes)
            reset = np.full(len(turns), index == 0)
            # only the first token of the text has no token before it
            yield self._gather(at, steps[1:] < self._sizes, at[:-1] < 0, reset, int(lengths[index]) / self._length)

    def _lengths(self, seed: int) -> Positions:
        if not self._rules.draws_lengths:
            return np.full(-(-self._column // self._length), self._length)
        return drawn_lengths(self._rules, self._length, self._column, seed)


def drawn_lengths(rules: StreamRules, length: int, steps: int, seed: int) -> Positions:
    """Draw segment lengths around the usual `length` until they cover the steps; the last may exceed them."""
    generator = np.random.default_rng([seed, _LENGTHS])
    longest = _MOST_STEPS if rules.longest_over is None else length + rules.longest_over
    blocks: list[Positions] = []
    while sum(int(block.sum()) for block in blocks) < steps:
        base = np.where(generator.random(_BLOCK) < rules.short_share, length // 2, length)
        drawn = generator.normal(base, rules.length_spread)
        lengths = np.minimum(np.maximum(drawn, SHORTEST), longest).astype(np.int64)
        if rules.length_multiple > 1:
            multiples = np.rint(lengths / rules.length_multiple).clip(1, max(1, longest // rules.length_multiple))
            lengths = multiples.astype(np.int64) * rules.length_multiple
        blocks.append(lengths)
    lengths = np.concatenate(blocks)
    return lengths[: 1 + np.searchsorted(np.cumsum(lengths), steps)]


class DocumentBatcher(Batcher):
    """Starts each document at a segment's start, with a reset; the last segment of a document is padded.

    A document's first input is `<eos>`. With `whole`, each document stays in one stream, and a stream that finishes one
    takes the next: the context of a word is the same for every batch size, but a few long documents leave the other
    streams idle (98 books in 64 streams: 61 % of all steps are padding). Otherwise the documents are joined and cut
    into B streams of equal length. At most B - 1 documents are cut; the part after a cut begins with an empty state,
    and its first input is the true word before it. A segment has fewer than T steps if no stream needs more.
    """

    def __init__(
        self, tokens: TokenFile, eos_id: int, *, batch_size: int, length: int, shuffle: bool = False, whole: bool = True
    ) -> None:
        super().__init__(tokens, eos_id, batch_size=batch_size, length=length)
        self._shuffle, self._whole = shuffle, whole
        self._begins = tokens.documents
        self._ends = np.append(tokens.documents[1:], len(tokens))

    def count(self, seed: int = 0) -> int:
        _, begins, ends, _, first = self._pieces(seed)
        return self._total(begins, ends, first)

    def _total(self, begins: Positions, ends: Positions, first: Positions) -> int:
        return int((first - (begins - ends) // self._length).max())

    def segments(self, seed: int = 0, start: int = 0) -> Iterator[Segment]:
        openings, begins, ends, stream, first = self._pieces(seed)
        # per stream: starts of its document and of its piece, next position, end; all 0 while it has no piece
        opening, began, position, end = np.zeros((4, self._batch_size), np.int64)
        taken = 0
        for index in range(start, self._total(begins, ends, first)):
            # pieces come in order, so a stream's latest piece overwrites the others
            arriving = slice(taken, taken := int(np.searchsorted(first, index, side="right")))
            streams = stream[arriving]
            opening[streams], began[streams], end[streams] = openings[arriving], begins[arriving], ends[arriving]
            position[streams] = begins[arriving] + (index - first[arriving]) * self._length
            steps = min(self._length, int((end - position).max()))
            yield self._read(position, end, opening, steps, (position == began) & (position < end))
            position += self._length

    def _pieces(self, seed: int) -> tuple[Positions, Positions, Positions, Positions, Positions]:
        """Return the pieces of documents in the order in which streams take them.

        Five arrays: start of the document, start and end of the piece, its stream, the number of its first segment.
        """
        order = _drawn_order(len(self._begins), self._shuffle, seed)
        openings, ends = self._begins[order], self._ends[order]
        segments = -(-(ends - openings) // self._length)
        if self._whole:
            return openings, openings, ends, *_first_free(segments.tolist(), self._batch_size)
        after = np.cumsum(segments)
        total = int(after[-1])
        column = -(-total // self._batch_size)
        cuts = np.unique(np.concatenate([after - segments, np.arange(0, total, column)]))
        document = np.searchsorted(after, cuts, side="right")
        begins = openings[document] + (cuts - (after - segments)[document]) * self._length
        ends = np.minimum(begins + np.diff(np.append(cuts, total)) * self._length, ends[document])
        stream, first = np.divmod(cuts, column)
        by_time = np.argsort(first, kind="stable")
        return openings[document][by_time], begins[by_time], ends[by_time], stream[by_time], first[by_time]


def _first_free(segments: list[int], streams: int) -> tuple[Positions, Positions]:
    """Give each document, in order, to the first free stream; return streams and numbers of first segments."""
    free = [(0, stream) for stream in range(min(streams, len(segments)))]
    taken = []
    for length in segments:
        begin, stream = free[0]
        heapq.heapreplace(free, (begin + length, stream))
        taken.append((stream, begin))
    stream_of, first = np.array(taken).T
    return stream_of, first


class SentenceBatcher(Batcher):
    """Makes each line a stream: B lines a segment, all reset, padded to the longest line.

    Salton et al. (2017) train on sentences of at most 35 words, in the order of the text, and drop the rest of longer
    sentences (2.7 % of the tokens of Penn Treebank). Their code reads no `<eos>` first: it never predicts the first
    word. Missing lines of the last segment are padding. With a `piece`, a line of more than `LONG` targets is read
    alone, in segments of `piece` steps.

    Raises:
        InputError: No line has a target.
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
        super().__init__(tokens, eos_id, batch_size=batch_size)
        self._rules, self._shuffle, self._piece = rules or SentenceRules(), shuffle, piece
        # after each line's `<eos>`; tokens after the last one are a line, too
        ends = np.union1d(np.flatnonzero(self._ids == eos_id) + 1, [len(self._ids)])
        begins = openings = np.append(0, ends[:-1])
        if not self._rules.predict_first:
            begins = begins + 1
            some = begins < ends
            begins, ends = begins[some], ends[some]
            openings = np.full_like(begins, -1)
            require(len(begins) > 0, "training.batching.predict_first", False, "true for a text without any word")
        if self._rules.limit is not None:
            ends = np.minimum(ends, begins + self._rules.limit)
        # of each line its first target, its end, and the target whose input is `<eos>` (-1: none)
        self._begins, self._ends, self._openings = begins, ends, openings
        self._lengths = ends - begins

    @property
    def targets(self) -> int:
        return int(self._lengths.sum())

    def count(self, seed: int = 0) -> int:
        return sum(1 for _ in self._plan(seed))

    def segments(self, seed: int = 0, start: int = 0) -> Iterator[Segment]:
        for lines, at, steps, streams in islice(self._plan(seed), start, None):
            begin, end, opening = np.zeros((3, streams), np.int64)
            begin[: len(lines)], end[: len(lines)] = self._begins[lines] + at, self._ends[lines]
            opening[: len(lines)] = self._openings[lines]
            yield self._read(begin, end, opening, steps, np.full(streams, at == 0))

    def _plan(self, seed: int) -> Iterator[tuple[Positions, int, int, int]]:
        """Yield each segment's lines, its offset in them, its steps and its streams."""
        for lines in self._batches(seed):
            groups, piece = [lines], self._piece
            if piece and self._lengths[lines].max() > LONG:
                alone = np.flatnonzero(self._lengths[lines] > LONG)
                groups = np.split(lines, np.union1d(alone, alone + 1))
            for group in groups:
                total = int(self._lengths[group].max(initial=0))
                size, streams = (piece, 1) if piece and total > LONG else (total, self._batch_size)
                for at in range(0, total, size or 1):
                    yield group, at, min(size, total - at), streams

    def _batches(self, seed: int) -> list[Positions]:
        lengths, size = self._lengths, self._batch_size
        order = _drawn_order(len(lengths), self._shuffle, seed)
        if self._rules.order == "by-length":
            order = order[np.argsort(lengths[order], kind="stable")]
        bucketed = self._rules.order == "bucketed"
        if bucketed:
            order = order[np.lexsort((lengths[order], np.arange(len(order)) // (size * POOL)))]
        batches = [order[first : first + size] for first in range(0, len(order), size)]
        if bucketed:
            batches = [batches[n] for n in np.random.default_rng([seed, _BATCHES]).permutation(len(batches))]
        return batches


def make_batcher(
    kind: BatchingKind,
    tokens: TokenFile,
    eos_id: int,
    *,
    batch_size: int,
    length: int,
    shuffle: bool = False,
    whole: bool = True,
    sentences: SentenceRules | None = None,
    streams: StreamRules | None = None,
) -> Batcher:
    """Make a batcher of B = `batch_size` streams.

    `length` is T, the longest segment; for drawn lengths, the usual segment; for sentences, the piece of a very long
    one. `shuffle` draws the order of documents or sentences; streams keep that of the text. `whole` keeps each document
    in one stream, as evaluation must. InputError: as `SentenceBatcher`.
    """
    if kind == "streams":
        return StreamBatcher(tokens, eos_id, batch_size=batch_size, length=length, rules=streams)
    if kind == "documents":
        return DocumentBatcher(tokens, eos_id, batch_size=batch_size, length=length, shuffle=shuffle, whole=whole)
    piece = length if whole else None
    return SentenceBatcher(tokens, eos_id, batch_size=batch_size, rules=sentences, shuffle=shuffle, piece=piece)
