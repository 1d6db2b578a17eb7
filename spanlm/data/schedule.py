"""Which stream reads which document, and when."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The documents in the order in which streams take them.

    Attributes:
        stream: The stream that reads each document.
        first: The segment in which it begins; never decreases.
        total: Number of segments.
    """

    stream: Positions
    first: Positions
    total: int


def schedule(segments: Positions, streams: int) -> Schedule:
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
    return Schedule(stream_of, first, max(end for end, _ in free))
