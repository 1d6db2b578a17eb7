r"""Plain text files, read in pieces of bounded size.

The rules, the same for every corpus:

* The bytes are UTF-8 and nothing else; a byte order mark at the start is dropped. A NUL byte is refused.
* A line ends at `\n`; a `\r` before it is white space. The last line may lack its `\n`.
* Words are separated by ASCII white space only (space, `\t`, `\r`, `\v`, `\f`), as `bytes.split` does it.
  U+0085, U+00A0 and U+2028 are ordinary characters, here as in the counts of `wc -w`.
* Every line is one `<eos>` longer than its words; a blank line is a lone `<eos>`. A word `<eos>` in the text
  would be taken for a line's end and is refused. A word `<unk>` is the unknown word.
* A file whose name ends in `.gz` is decompressed while it is read.
* A file of another known format (`spanlm.data.formats`) is refused, unless `Text.as_text` is set.

A collection of books, such as the Children's Book Test, has title lines, whose first word is `_BOOK_TITLE_`. They
start a document and are not part of its text (`without_titles`).
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spanlm.data.formats import conversion, refuse_other_formats
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError, RunError
from spanlm.store.files import open_bytes

CHUNK_BYTES = 1 << 20
LONGEST_WORD = 1 << 24
TITLE = b"_BOOK_TITLE_"
_TITLE_LINE = re.compile(rb"^[ \t\r\v\f]*" + TITLE + rb"(?![^ \t\n\r\v\f])[^\n]*\n?", re.MULTILINE)
_BOM = b"\xef\xbb\xbf"
_SPACES = (b"\n", b" ", b"\t", b"\r", b"\v", b"\f")
_RESERVED = EOS.encode()
_RESERVED_WORD = re.compile(rb"(?<![^ \t\n\r\v\f])" + re.escape(_RESERVED) + rb"(?![^ \t\n\r\v\f])")


@dataclass(frozen=True, slots=True)
class Text:
    """A text file, or the lines of one between two byte offsets.

    Attributes:
        path: The file; decompressed if its name ends in `.gz`.
        start: Offset of the first byte, counted in the decompressed text; the start of a line.
        stop: Offset after the last byte; None is the end of the file.
        as_text: Read it whatever its format is.
    """

    path: Path
    start: int = 0
    stop: int | None = None
    as_text: bool = False


def fingerprint(text: Text) -> str:
    """Return the SHA-256 (hex) of the decompressed bytes; InputError: the file cannot be read, or is empty."""
    digest, empty = hashlib.sha256(), True
    for chunk in chunks(text):
        digest.update(chunk)
        empty = False
    if empty:
        raise InputError(f"{text.path}: the file is empty; give a text with at least one word")
    return digest.hexdigest()


def lines_of(pieces: Iterable[bytes]) -> Iterator[str]:
    """Give the lines of a text, without their ends, from pieces of it that end anywhere."""
    line: list[bytes] = []
    for piece in pieces:
        first, *others = piece.split(b"\n")
        line.append(first)
        for other in others:
            yield b"".join(line).decode()
            line = [other]


def pieces(text: Text, fingerprint: str | None = None) -> Iterator[bytes]:
    r"""Read the text in pieces that start and end at the edges of words.

    Joined, the pieces are the text without its byte order mark and with a `\n` at its end. A `fingerprint` is the
    SHA-256 that the text must have.

    Raises:
        InputError: The file cannot be read, or breaks a rule of this module; the message names the place.
        RunError: The file is no longer what it was; the last piece has been given out then.
    """
    digest = hashlib.sha256()
    offset, lines, last = text.start, 0, b"\n"
    for piece in _cut_at_spaces(text, digest.update):
        if offset == 0 and piece.startswith(_BOM):
            offset, piece = len(_BOM), piece[len(_BOM) :]
        if piece:
            _check(text, piece, offset, lines)
            yield piece
            offset, lines, last = offset + len(piece), lines + piece.count(b"\n"), piece
    if not last.endswith(b"\n"):
        yield b"\n"
    if fingerprint is not None and digest.hexdigest() != fingerprint:
        raise RunError(f"{text.path}: the file was changed while it was read; load it again")


def chunks(text: Text) -> Iterator[bytes]:
    """Read the decompressed bytes, `CHUNK_BYTES` at a time; InputError: no file, not readable, or no plain text."""
    unknown = text.start == 0 and not text.as_text
    try:
        with open_bytes(text.path) as file:
            size, done = text.path.stat().st_size if text.path.suffix == ".gz" else 0, text.start
            if text.start:  # a pipe can be read but not sought in
                file.seek(text.start)
            left = text.stop - text.start if text.stop is not None else None
            while chunk := file.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left)):
                if unknown:
                    refuse_other_formats(text.path, chunk)
                    unknown = False
                left, done = None if left is None else left - len(chunk), done + len(chunk)
                if size and done > max(1 << 26, 200 * size):  # prose has four times its size, a pipe none
                    what = f"inflates to over 200 times its {size:,} bytes; decompress it yourself"
                    raise InputError(f"{text.path}: {what}")
                yield chunk
                if len(chunk) < CHUNK_BYTES:  # of a terminal another end would be waited for
                    break
    except FileNotFoundError as error:
        raise InputError(f"{text.path}: no such file; check the path") from error
    except IsADirectoryError as error:
        raise InputError(f"{text.path}: a folder where a text file is needed; name a file in it") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{text.path}: damaged gzip file ({error}); fetch or compress it again") from error
    except OSError as error:
        raise InputError(f"{text.path}: cannot be read ({error.strerror or error})") from error


def without_titles(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Leave out the title lines of a text in `pieces`, and give an empty piece where each one stood."""
    # of the line that the last piece left open: whether a first word may still come, or it is a title
    fresh, inside = True, False
    for piece in pieces:
        at = 0
        if inside:
            at = piece.find(b"\n") + 1
            inside = at == 0
        if inside:
            continue
        # the search for the word is fast, the one for the lines is not
        for line in _TITLE_LINE.finditer(piece, at) if TITLE in piece else ():
            if line.start() == 0 and not fresh:
                continue
            if at < line.start():
                yield piece[at : line.start()]
            yield b""
            at, inside = line.end(), not line[0].endswith(b"\n")
        if at < len(piece):
            yield piece[at:]
        end = piece.rfind(b"\n") + 1
        fresh = (fresh or end > 0) and not piece[end:].strip()


def line_ends(text: Text) -> Iterator[NDArray[np.int64]]:
    r"""Yield the offsets at which lines end, in blocks; the last may lack its `\n`. Errors are those of `chunks`."""
    offset, last = text.start, b"\n"
    for chunk in chunks(text):
        yield offset + 1 + np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n"))
        offset, last = offset + len(chunk), chunk[-1:]
    if last != b"\n":
        yield np.array([offset])


def _cut_at_spaces(text: Text, see: Callable[[bytes], object]) -> Iterator[bytes]:
    offset, rest = text.start, b""
    for chunk in chunks(text):
        see(chunk)
        cut = 1 + max(chunk.rfind(space) for space in _SPACES)
        if cut:
            yield rest + chunk[:cut]
            offset, rest = offset + len(rest) + cut, chunk[cut:]
        else:
            rest += chunk
        if len(rest) > LONGEST_WORD:
            raise InputError(
                f"{text.path}: a word of more than {LONGEST_WORD} bytes at byte {offset}; "
                "give a text of words with white space between them"
            )
    if rest:
        yield rest


def _check(text: Text, piece: bytes, offset: int, lines: int) -> None:
    """Refuse a piece, read at byte `offset` after `lines` line ends, that breaks a rule of this module."""
    nul = piece.find(b"\0")
    if nul >= 0:
        raise InputError(f"{text.path}: a NUL byte at byte {offset + nul}; {conversion(text.path, piece, offset)}")
    try:
        piece.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"not UTF-8 at byte {offset + error.start} ({error.reason})"
        raise InputError(f"{text.path}: {what}; {conversion(text.path, piece, offset)}") from error
    # the search for a whole word is slow, the one for the letters is not
    if _RESERVED in piece and (found := _RESERVED_WORD.search(piece)):
        before = Text(text.path, 0, text.start, as_text=True)  # a pipe, which could not be read again, starts at 0
        earlier = sum(map(len, line_ends(before))) if text.start else 0
        line = 1 + earlier + lines + piece.count(b"\n", 0, found.start())
        raise InputError(
            f"{text.path}, line {line}: the word {EOS} is reserved for the end of a line; "
            "delete it or write it another way"
        )
