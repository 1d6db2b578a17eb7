r"""Plain text files, read in pieces of bounded size.

The rules, the same for every corpus:

* The bytes are UTF-8 and nothing else; a byte order mark at the start is dropped. A NUL byte is refused.
* A line ends at `\n`; a `\r` before it is white space. The last line may lack its `\n`.
* Words are separated by ASCII white space only (space, `\t`, `\r`, `\v`, `\f`), as `bytes.split` does it.
  U+0085, U+00A0 and U+2028 are ordinary characters, here as in the counts of `wc -w`.
* Every line is one `<eos>` longer than its words; a blank line is a lone `<eos>`. A word `<eos>` at a line's end is
  that `<eos>`; elsewhere it would be taken for a line's end and is refused. A word `<unk>` is the unknown word.
* Where `Text.marks` is set, `<s>` and `</s>` are words; else they are left out where they stand around a line.
* A file whose name ends in `.gz` or `.bz2` is decompressed while it is read.
* A file of another known format (`spanlm.data.formats`) is refused, unless `Text.as_text` is set.

A collection of books, such as the Children's Book Test, has title lines, whose first word is `_BOOK_TITLE_`. They
start a document and are not part of its text (`without_titles`).
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spanlm.data.formats import conversion, refuse_other_formats
from spanlm.data.packed import opened
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError, RunError

_LOG = logging.getLogger(__name__)
CHUNK_BYTES = 1 << 20
LONGEST_WORD = 1 << 24
TITLE = b"_BOOK_TITLE_"
_TITLE_LINE = re.compile(rb"^[ \t\r\v\f]*" + TITLE + rb"(?![^ \t\n\r\v\f])[^\n]*\n?", re.MULTILINE)
_BOM = b"\xef\xbb\xbf"
_SPACES = (b"\n", b" ", b"\t", b"\r", b"\v", b"\f")
_RESERVED = EOS.encode()
_RESERVED_WORD = re.compile(rb"(?<![^ \t\n\r\v\f])" + re.escape(_RESERVED) + rb"(?![^ \t\n\r\v\f])")
LEFT_OUT = b"\v\f"
"""What a mark that is left out begins with: white space that no text has, so that marks can be counted."""
_AT_END = re.compile(_RESERVED_WORD.pattern + rb"(?=[ \t\r\v\f]*\n)")
_AROUND = re.compile(rb"(?<=\n)([ \t\r\v\f]*)<s>([ \t\r\v\f](?:[^\n]*[ \t\r\v\f])?)</s>(?=[ \t\r\v\f]*\n)")


@dataclass(frozen=True, slots=True)
class Text:
    """A text file, or the lines of one between two byte offsets.

    Attributes:
        path: The file; decompressed if its name ends in `.gz`.
        start: Offset of the first byte, counted in the decompressed text; the start of a line.
        stop: Offset after the last byte; None is the end of the file.
        as_text: Read it whatever its format is.
        marks: `<s>` and `</s>` around a line are words.
    """

    path: Path
    start: int = 0
    stop: int | None = None
    as_text: bool = False
    marks: bool = True


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

    Joined, the pieces are the text without its byte order mark, with white space, `LEFT_OUT` and spaces, for marks
    that are left out, and with a `\n` at its end. A `fingerprint` is the SHA-256 that the text must have.

    Raises:
        InputError: The file cannot be read, or breaks a rule of this module; the message names the place.
        RunError: The file is no longer what it was; the last piece has been given out then.
    """
    digest = hashlib.sha256()
    offset, lines, marked, last = text.start, 0, 0, b"\n"
    for piece in _cut_at_spaces(text, digest.update):
        if offset == 0 and piece.startswith(_BOM):
            offset, piece = len(_BOM), piece[len(_BOM) :]
        if piece:
            if _has_marks(piece, text.marks):
                piece = _unmarked(last[-1:] + piece, text.marks)[1:]
                marked += piece.count(LEFT_OUT)
            _check(text, piece, offset, lines)
            yield piece
            offset, lines, last = offset + len(piece), lines + piece.count(b"\n"), piece
    if not last.endswith(b"\n"):
        yield b"\n"
    if marked and fingerprint is None:  # a corpus notes it for all its parts
        _log_marks(text.path, marked)
    if fingerprint is not None and digest.hexdigest() != fingerprint:
        raise RunError(f"{text.path}: the file was changed while it was read; load it again")


def chunks(text: Text) -> Iterator[bytes]:
    """Read the decompressed bytes, `CHUNK_BYTES` at a time; InputError: no file, not readable, or no plain text."""
    unknown = text.start == 0 and not text.as_text
    with opened(text.path) as file:
        if text.start:  # a pipe can be read but not sought in
            file.seek(text.start)
        left = text.stop - text.start if text.stop is not None else None
        while chunk := file.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left)):
            if unknown:
                refuse_other_formats(text.path, chunk)
                unknown = False
            left = None if left is None else left - len(chunk)
            yield chunk
            if len(chunk) < CHUNK_BYTES:  # of a terminal another end would be waited for
                break


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
    """Cut the text at white space, but a line with a mark, unless it is very long, at its ends."""
    offset, rest = text.start, b""
    for chunk in chunks(text):
        see(chunk)
        rest += chunk
        line = 1 + rest.rfind(b"\n")
        cut = max(line, *(1 + rest.rfind(space, line) for space in _SPACES[1:]))
        if len(rest) - line <= LONGEST_WORD and (rest[line:cut].isspace() or _has_marks(rest[line:], text.marks)):
            cut = line
        if len(rest) - cut > LONGEST_WORD:
            raise InputError(
                f"{text.path}: a word of more than {LONGEST_WORD} bytes at byte {offset + cut}; "
                "give a text of words with white space between them"
            )
        if cut:
            yield rest[:cut]
        offset, rest = offset + cut, rest[cut:]
    if rest:
        yield rest + b"\n" * _has_marks(rest, text.marks)


def _has_marks(piece: bytes, kept: bool) -> bool:
    # the search for letters is fast, the one for whole words is not
    return _RESERVED in piece or (not kept and b"<s>" in piece)


def _unmarked(lines: bytes, kept: bool) -> bytes:
    r"""Put white space in place of the marks at the ends of lines; a `\n` is before the first."""
    lines = _AT_END.sub(LEFT_OUT + b"   ", lines)
    return lines if kept else _AROUND.sub(rb"\1" + LEFT_OUT + rb" \2    ", lines)


def without_marks(line: str, kept: bool) -> str:
    """Do the same in a line that is in memory, in which a line end is white space."""
    if isinstance(line, str) and _has_marks(packed := line.encode(errors="surrogatepass"), kept):
        unmarked = _unmarked(b"\n" + packed.replace(b"\n", b" ") + b"\n", kept)[1:-1]
        if LEFT_OUT in unmarked:
            _log_marks("the text", "some")
            return unmarked.decode(errors="surrogatepass")
    return line


def marks_note(name: str | Path, lines: int | str) -> str:
    """Return a note on a text of which the marks of so many lines are left out."""
    which = f"{lines if isinstance(lines, str) else format(lines, ',')} lines with {EOS} at the end, or in <s> … </s>"
    return f"{name}: {which}: these marks are left out (data.marks=keep, in training, takes <s> and </s> for words)"


@cache
def _log_marks(name: str | Path, lines: int | str) -> None:
    _LOG.info("note: %s", marks_note(name, lines))


def _check(text: Text, piece: bytes, offset: int, lines: int) -> None:
    """Refuse a piece, read at byte `offset` after `lines` line ends, that breaks a rule of this module."""
    nul = piece.find(b"\0")
    if nul >= 0:
        raise InputError(f"{text.path}: a NUL byte at byte {offset + nul}; {conversion(text.path, piece, offset)}")
    try:
        piece.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 at byte {offset + error.start} ({error.reason})"
        raise InputError(f"{text.path}: {problem}; {conversion(text.path, piece, offset)}") from error
    if _RESERVED in piece and (reserved := _RESERVED_WORD.search(piece)):
        before = Text(text.path, 0, text.start, as_text=True)  # a pipe, which could not be read again, starts at 0
        earlier = sum(map(len, line_ends(before))) if text.start else 0
        line = 1 + earlier + lines + piece.count(b"\n", 0, reserved.start())
        raise InputError(
            f"{text.path}, line {line}: the word {EOS} is reserved for the end of a line; "
            "delete it or write it another way"
        )
