"""Bytes of a file, decompressed while they are read, with the place at which they stop being any good."""

from __future__ import annotations

import bz2
import hashlib
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from spanlm.errors import InputError

CHUNK_BYTES = 1 << 18
_GZIP, _BZIP2 = b"\x1f\x8b", b"BZh"
_HEADER_OR_TRAILER = 31  # tells zlib to expect those of gzip


class Damage(Exception):
    """A source is not readable any further.

    Attributes:
        offset: Where, in bytes of the (decompressed) text.
        line: The line that this is in, from 1.
        reason: What is wrong, in words.
    """

    def __init__(self, offset: int, line: int, reason: str) -> None:
        super().__init__(f"damaged at byte {offset} of its text (line {line}): {reason}")
        self.offset = offset
        self.line = line
        self.reason = reason


class ByteStream:
    """Reads a file once; whether it is gzip, bzip2 (of any number of streams) or plain, its first bytes say.

    Args:
        path: The file.

    Attributes:
        path: The file.
        size: Its bytes.
        position: How many of them were read.
        offset: How many bytes of text were given out.
        line: The line that the next byte is in.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb")
            self.size = path.stat().st_size
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
        self.position = 0
        self.offset = 0
        self.line = 1
        self._digest = hashlib.sha256()

    def __enter__(self) -> ByteStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def chunks(self) -> Iterator[bytes]:
        """Give out the text in pieces of at most `CHUNK_BYTES`.

        Raises:
            Damage: The compressed data is cut off or wrong; what was before it has been given out.
        """
        blocks = self._blocks()
        first = next(blocks, b"")
        reader = _gunzip if first.startswith(_GZIP) else _bunzip2 if first.startswith(_BZIP2) else iter
        try:
            for chunk in reader(chain([first], blocks)):
                yield chunk
                self.offset += len(chunk)
                self.line += chunk.count(b"\n")
        except (zlib.error, EOFError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # the disk's, not the decompressor's
                raise
            raise Damage(self.offset, self.line, f"the compressed data is damaged ({error})") from error

    def sha256(self) -> str:
        """Read the file to its end; return the SHA-256 (hex) of its bytes as they are on the disk."""
        for _ in self._blocks():
            pass
        return self._digest.hexdigest()

    def _blocks(self) -> Iterator[bytes]:
        while block := self._file.read(CHUNK_BYTES):
            self._digest.update(block)
            self.position += len(block)
            yield block


def _gunzip(blocks: Iterator[bytes]) -> Iterator[bytes]:
    member = zlib.decompressobj(_HEADER_OR_TRAILER)
    between = False
    for block in blocks:
        while block:
            if between:
                block = block.lstrip(b"\0")  # tapes pad a file with them
                if not block:
                    break
                member, between = zlib.decompressobj(_HEADER_OR_TRAILER), False
            if chunk := member.decompress(block, CHUNK_BYTES):
                yield chunk
            between = member.eof
            block = member.unused_data if between else member.unconsumed_tail
    while not between and not member.eof and (chunk := member.decompress(b"", CHUNK_BYTES)):
        yield chunk
    if not between and not member.eof:
        raise EOFError("it ends too early")


def _bunzip2(blocks: Iterator[bytes]) -> Iterator[bytes]:
    member = bz2.BZ2Decompressor()
    for block in blocks:
        while block:
            if member.eof:
                member = bz2.BZ2Decompressor()
            if chunk := member.decompress(block, CHUNK_BYTES):
                yield chunk
            while not member.eof and not member.needs_input:
                yield member.decompress(b"", CHUNK_BYTES)
            block = member.unused_data if member.eof else b""
    if not member.eof:
        raise EOFError("it ends too early")
