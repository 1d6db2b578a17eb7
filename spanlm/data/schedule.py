"""Which stream reads which document, or which piece of one, and when."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The pieces of documents in the order in which streams take them.

    Attributes:
        document: Whose piece it is.
        skipped: How many segments of that document come before it.
        length: Number of its segments.
        stream: The stream that reads it.
        first: The segment in which it begins; never decreases.
        total: Number of segments.
    """

    document: Positions
    skipped: Positions
    length: Positions
    stream: Positions
    first: Positions
    total: int


def whole_documents(segments: Positions, streams: int) -> Schedule:
    """Give each document, in order, to the stream that is free first; of equals to the one of lowest number.

    Args:
        segments: Number of segments that each document fills.
        streams: Number of streams.
    """
    free = [(0, stream) for stream in range(min(streams, len(segments)))]
    stream_of = np.empty(len(segments), np.int64)
    first = np.empty(len(segments), np.int64)
    for document, length in enumerate(segments.tolist()):
        begin, stream = free[0]
        heapq.heapreplace(free, (begin + length, stream))
        stream_of[document], first[document] = stream, begin
    count = np.arange(len(segments))
    return Schedule(count, np.zeros_like(count), segments, stream_of, first, max(end for end, _ in free))


def equal_columns(segments: Positions, streams: int) -> Schedule:
    """Lay the documents end to end and cut them into streams of equal length, whatever document a cut falls into.

    Args:
        segments: Number of segments that each document fills.
        streams: Number of streams.
    """
    ends = np.cumsum(segments)
    total = int(ends[-1])
    column = -(-total // streams)
    at = np.unique(np.concatenate([ends - segments, np.arange(0, total, column)]))
    document = np.searchsorted(ends, at, side="right")
    skipped, length = at - (ends - segments)[document], np.diff(np.append(at, total))
    stream, first = at // column, at % column
    order = np.argsort(first, kind="stable")
    return Schedule(document[order], skipped[order], length[order], stream[order], first[order], column)
