"""Articles as WikiExtractor's `--json` writes them: one JSON object a line."""

from __future__ import annotations

from collections.abc import Iterator

from spanlm.data.wikipedia.records import Record
from spanlm.data.wikipedia.stream import ByteStream, Damage

LONGEST_LINE = 1 << 27


def read_lines(stream: ByteStream) -> Iterator[Record]:
    """Give out the lines that are not blank, unread.

    Raises:
        Damage: The file is not readable any further; the lines before have been given out.
    """
    offset, number = 0, 1
    rest: list[bytes] = []
    for chunk in stream.chunks():
        *lines, last = chunk.split(b"\n")
        for line in lines:
            whole = b"".join([*rest, line])
            rest = []
            if whole.strip():
                yield Record(offset, number, whole)
            offset, number = offset + len(whole) + 1, number + 1
        rest.append(last)
        if sum(map(len, rest)) > LONGEST_LINE:
            raise Damage(offset, number, f"a line of more than {LONGEST_LINE:,} bytes")
    if (whole := b"".join(rest)).strip():
        yield Record(offset, number, whole)
