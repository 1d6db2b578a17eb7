"""From the tokens of a split to segments (T, B): what a model reads, and what it must predict.

Shapes: T time steps, B streams. Every token of the split is a target exactly once (but where sentences are cut for
training: `sentences.py`); what is beside that is padding, whose input is `<eos>` and whose mask is False. A stream is
opened by one `<eos>` as its first input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spanlm.data.config import BatchingKind
from spanlm.data.schedule import Schedule, equal_columns, whole_documents
from spanlm.data.segment import Segment, SegmentSource
from spanlm.data.sentence_rules import SentenceRules
from spanlm.data.sentences import SentenceBatcher
from spanlm.data.sizes import at_least_one, drawn_order, not_negative
from spanlm.data.stream_rules import StreamRules
from spanlm.data.streams import StreamBatcher
from spanlm.data.tokens import TokenFile
from spanlm.errors import InputError, nearest, require

__all__ = [
    "Batcher",
    "DocumentBatcher",
    "Segment",
    "SentenceBatcher",
    "SentenceRules",
    "StreamBatcher",
    "StreamRules",
    "make_batcher",
]

Positions = NDArray[np.int64]


class Batcher(Protocol):
    """What every batcher does."""

    @property
    def targets(self) -> int:
        """Number of tokens that are predicted: all of the split, unless sentences are cut."""
        ...

    def count(self, seed: int = 0) -> int:
        """Return the number of segments; only shuffled documents and drawn lengths need the seed."""
        ...

    def __len__(self) -> int:
        """Return `count(0)`."""
        ...

    def segments(self, seed: int = 0, start: int = 0) -> Iterator[Segment]:
        """Yield the segments from number `start` on; those before are not made."""
        ...


class DocumentBatcher:
    """Starts each document at a segment's start, with a reset; the last segment of a document is padded.

    A document opens with `<eos>`. Read whole, it stays in one stream, and a stream that is through takes the next one:
    what is before a word is the same whatever the batch size, but a few long documents leave the other streams
    without work (98 books in 64 streams: 61 % of all steps are padding). Otherwise the documents are laid end to end
    and cut into B streams of equal length; at most B - 1 of them are cut, and what comes after a cut begins with an
    empty state and the true word before it, as streams do.

    Args:
        tokens: The split and its documents.
        eos_id: Id of `<eos>`.
        batch_size: B, the number of streams.
        length: T, the number of steps of a segment; fewer where no stream needs them.
        shuffle: Take the documents in an order drawn with the seed of `segments`.
        whole: Keep each document in one stream.

    Raises:
        InputError: A size is below 1.
    """

    def __init__(
        self,
        tokens: TokenFile,
        eos_id: int,
        *,
        batch_size: int,
        length: int,
        shuffle: bool = False,
        whole: bool = True,
    ) -> None:
        self._source = SegmentSource(tokens, eos_id)
        self._batch_size = at_least_one("batch_size", batch_size)
        self._length = at_least_one("length", length)
        self._shuffle, self._whole = shuffle, whole
        self._begins = tokens.documents
        self._ends = np.append(tokens.documents[1:], len(tokens))

    @property
    def targets(self) -> int:
        """Number of tokens that are predicted: all of the split."""
        return len(self._source)

    def count(self, seed: int = 0) -> int:
        """Return the number of segments, which for shuffled documents depends on the seed."""
        return self._plan(drawn_order(len(self._begins), self._shuffle, seed)).total

    def __len__(self) -> int:
        return self.count()

    def segments(self, seed: int = 0, start: int = 0) -> Iterator[Segment]:
        """Yield the segments from number `start` on, in the order drawn with `seed`."""
        order = drawn_order(len(self._begins), self._shuffle, seed)
        plan = self._plan(order)
        openings, ends = self._begins[order][plan.document], self._ends[order][plan.document]
        begins = openings + plan.skipped * self._length
        ends = np.minimum(begins + plan.length * self._length, ends)
        # per stream: where its document opened, where its piece began, where it goes on and ends; at first it has none
        opening, began, position, end = np.zeros((4, self._batch_size), np.int64)
        taken = 0
        for index in range(not_negative(start), plan.total):
            # in order, so a stream's latest piece is the one that counts
            arriving = slice(taken, taken := int(np.searchsorted(plan.first, index, side="right")))
            streams = plan.stream[arriving]
            opening[streams], began[streams], end[streams] = openings[arriving], begins[arriving], ends[arriving]
            position[streams] = begins[arriving] + (index - plan.first[arriving]) * self._length
            steps = min(self._length, int((end - position).max()))
            reset = (position == began) & (position < end)
            yield self._source.segment(position, end, opening, steps, reset)
            position += self._length

    def _plan(self, order: Positions) -> Schedule:
        lengths = (self._ends - self._begins)[order]
        divide = whole_documents if self._whole else equal_columns
        return divide(-(-lengths // self._length), self._batch_size)


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
    """Make the batcher of this kind.

    Args:
        kind: "streams", "documents" or "sentences".
        tokens: The split.
        eos_id: Id of `<eos>`.
        batch_size: B, the number of streams.
        length: T, the longest segment; of sentences that of a piece of a very long one, and the usual one of streams
            whose lengths are drawn.
        shuffle: Draw the order of documents or sentences; streams have none.
        whole: Keep each document in one stream, as evaluation must.
        sentences: What becomes of sentences, and in which batches; None: whole, in the order of the text.
        streams: What is drawn for streams, in training; None: nothing.

    Raises:
        InputError: There is no such kind, a size is below 1, or streams are to be shuffled.
    """
    match kind:
        case "streams":
            require(not shuffle, "shuffle", shuffle, "false for streams, which keep the order of the text")
            return StreamBatcher(tokens, eos_id, batch_size=batch_size, length=length, rules=streams)
        case "documents":
            return DocumentBatcher(tokens, eos_id, batch_size=batch_size, length=length, shuffle=shuffle, whole=whole)
        case "sentences":
            piece = length if whole else None
            return SentenceBatcher(tokens, eos_id, batch_size=batch_size, rules=sentences, shuffle=shuffle, piece=piece)
    raise InputError(f"batches={kind}: no such kind.{nearest(kind, ('streams', 'documents', 'sentences'))}")
