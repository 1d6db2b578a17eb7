"""Users' files, plain or compressed (`.gz`, `.bz2`), for reading and writing."""

from __future__ import annotations

import bz2
import errno
import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from spanlm.errors import InputError
from spanlm.store.files import replacing

BLOCK = 1 << 18
"""Bytes to decompress at a time."""


@contextmanager
def replacing_packed(path: Path) -> Iterator[BinaryIO]:
    """Like `replacing`, but compress if the name ends in `.gz` or `.bz2`; equal content gives equal bytes."""
    with replacing(path) as file:
        packed: Any = nullcontext(file)
        if path.suffix.lower() == ".bz2":
            packed = bz2.BZ2File(file, "wb")
        elif path.suffix.lower() == ".gz":
            packed = gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)
        with packed as writer:
            yield writer


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read its bytes, decompressed if its name ends in `.gz` or `.bz2`.

    A compressed file is first decompressed whole, to verify its checksum even if the caller stops early.

    Raises:
        InputError: the file cannot be read, is damaged, or is far larger than its compressed bytes.
    """
    unpack: Callable[[Path], Any] | None = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix.lower())  # type: ignore[assignment]
    try:
        if unpack is not None:
            _check_packed(path, os.stat(path).st_size, os.stat(path).st_mtime_ns)
        with path.open("rb") if unpack is None else cast(BinaryIO, unpack(path)) as file:
            yield file
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a folder where a file is needed; name a file in it") from None
    except (OSError, EOFError, zlib.error) as error:
        damaged = f"{error}; the file is damaged or cut short: copy it again"
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or damaged})") from None


@cache
def _check_packed(path: Path, size: int, changed: int) -> None:
    """Decompress a whole file once, and refuse bytes after its last stream, which `bz2.open` ignores."""
    if not path.is_file():
        raise OSError(errno.EINVAL, "is compressed, and no regular file: decompress it before")
    done = 0
    with path.open("rb") as file:
        for chunk in unpacked(file, path.suffix.lower()):
            done += len(chunk)
            if done > max(1 << 26, 200 * file.tell()):  # prose inflates to four times its bytes
                raise InputError(f"{path}: inflates to over 200 times its bytes; decompress it yourself")


def unpacked(file: BinaryIO, suffix: str) -> Iterator[bytes]:
    """Yield a file in blocks, decompressed if the suffix is `.gz` or `.bz2`."""
    if suffix != ".bz2":
        read = gzip.GzipFile(fileobj=file).read1 if suffix == ".gz" else file.read
        yield from iter(lambda: read(BLOCK), b"")
        return
    # `bz2.BZ2File` would ignore a damaged stream after a whole one
    stream = bz2.BZ2Decompressor()
    for block in iter(lambda: file.read(BLOCK), b""):
        while block:
            if stream.eof:
                stream = bz2.BZ2Decompressor()
            if chunk := stream.decompress(block, BLOCK):
                yield chunk
            while not stream.eof and not stream.needs_input:
                yield stream.decompress(b"", BLOCK)
            block = stream.unused_data
    if not stream.eof:
        raise EOFError("it ends too early")
