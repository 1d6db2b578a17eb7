r"""Plain text files, read in pieces of bounded size.

The rules, the same for every corpus:

* The encoding is UTF-8; a byte order mark at the start is dropped. A NUL byte is refused.
* A line ends at `\n`; a `\r` before it is white space. The last line may lack its `\n`.
* Only ASCII white space separates words (space, `\t`, `\r`, `\v`, `\f`), as in `bytes.split`.
  U+0085, U+00A0 and U+2028 are ordinary characters, here as in the counts of `wc -w`.
* Every line ends in an `<eos>`; a blank line is a lone `<eos>`. A written `<eos>` at a line's end is that `<eos>`;
  elsewhere it is refused, since it would look like a line's end. A written `<unk>` is the unknown word.
* With `Text.exact`, for tokenizers below the word, nothing else is left out, words may have any length, and a written
  `<eos>` is refused at a line's end, too. With `Text.any_bytes`, bytes that are no UTF-8 stay.
* With `Text.marks`, `<s>` and `</s>` are words; otherwise they are left out around a line.
* A file whose name ends in `.gz` or `.bz2` is decompressed while it is read.
* A file of another known format (`spanlm.data.formats`) is refused, unless `Text.as_text` is set.

A collection of books, such as the Children's Book Test, has title lines, whose first word is `_BOOK_TITLE_`. A title
line starts a document and is not part of its text (`without_titles`).
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spanlm.data.formats import conversion, refuse_other_formats
from spanlm.data.packed import opened
from spanlm.data.vocabulary import EOS, UNK
from spanlm.errors import InputError, RunError, named

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
"""Takes the place of each mark that is left out, to count them: white space that texts do not use."""
_AT_END = re.compile(_RESERVED_WORD.pattern + rb"(?=[ \t\r\v\f]*\n)")
_AROUND = re.compile(rb"(?<=\n)([ \t\r\v\f]*)<s>([ \t\r\v\f](?:[^\n]*[ \t\r\v\f])?)</s>(?=[ \t\r\v\f]*\n)")


@dataclass(frozen=True, slots=True)
class Text:
    """A text file, a part of one between two byte offsets, or several files, each of which begins a document.

    Attributes:
        path: The file; decompressed if its name ends in `.gz`.
        start: Offset of the first byte, counted in the decompressed text.
        stop: Offset after the last byte; None is the end of the file.
        as_text: Read the file even in another known format.
        marks: Take `<s>` and `</s>` around a line for words.
        exact: Keep every byte but the byte order mark.
        any_bytes: Allow bytes that are no UTF-8.
        padded: Leave out the spaces at both ends of each line.
        more: Files that follow.
    """

    path: Path
    start: int = 0
    stop: int | None = None
    as_text: bool = False
    marks: bool = True
    exact: bool = False
    any_bytes: bool = False
    padded: bool = False
    more: tuple[Path, ...] = ()

    @property
    def files(self) -> list[Text]:
        return [replace(self, path=path, more=()) for path in (self.path, *self.more)]


def fingerprint(text: Text) -> str:
    """Return the SHA-256 (hex) of the decompressed bytes, for several files that of their SHA-256.

    Raises:
        InputError: a file cannot be read or is empty.
    """
    digests = []
    for file in text.files:
        digest, empty = hashlib.sha256(), True
        for chunk in chunks(file):
            digest.update(chunk)
            empty = False
        if empty:
            raise InputError(f"{file.path}: the file is empty; give a text with at least one word")
        digests.append(digest.hexdigest())
    return _joined(digests)


def _joined(digests: list[str]) -> str:
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def lines_of(pieces: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines, without line ends, of a text in pieces that end anywhere."""
    line: list[bytes] = []
    for piece in pieces:
        first, *others = piece.split(b"\n")
        line.append(first)
        for other in others:
            yield b"".join(line).decode(errors="surrogateescape")
            line = [other]


def pieces(text: Text, fingerprint: str | None = None) -> Iterator[bytes]:
    r"""Yield the text in pieces that start and end at word boundaries; with `Text.exact` a very long word is cut.

    Joined, the pieces are the text without its byte order mark and with a `\n` at its end; `LEFT_OUT` and spaces
    replace marks that are left out. An empty piece stands before each further file. A `fingerprint` is the one that
    the text must have.

    Raises:
        InputError: The file cannot be read, or breaks a rule of this module; the message names the place.
        RunError: The file does not have the fingerprint; all pieces have been yielded by then.
    """
    digests: list[str] = []
    for file in text.files:
        if digests:
            yield b""
        digest = hashlib.sha256()
        yield from _pieces_of_file(file, digest.update, noted=fingerprint is not None)
        digests.append(digest.hexdigest())
    if fingerprint is not None and _joined(digests) != fingerprint:
        raise RunError(f"{text.path}: the file was changed while it was read; load it again")


def _pieces_of_file(text: Text, see: Callable[[bytes], object], noted: bool) -> Iterator[bytes]:
    offset, lines, marked, last = text.start, 0, 0, b"\n"
    for piece in _cut_at_spaces(text, see):
        if offset == 0 and piece.startswith(_BOM):
            offset, piece = len(_BOM), piece[len(_BOM) :]
        if piece:
            if not text.exact and _has_marks(piece, text.marks):
                piece = _unmarked(last[-1:] + piece, text.marks)[1:]
                marked += piece.count(LEFT_OUT)
            _check(text, piece, offset, lines)
            yield piece
            offset, lines, last = offset + len(piece), lines + piece.count(b"\n"), piece
    if not last.endswith(b"\n"):
        yield b"\n"
    if marked and not noted:  # a corpus notes marks once for all its splits
        _log_marks(text.path, marked)


def chunks(text: Text) -> Iterator[bytes]:
    """Yield the decompressed bytes, `CHUNK_BYTES` at a time; InputError: not readable, or not plain text."""
    unknown = text.start == 0 and not text.as_text
    with opened(text.path) as file:
        if text.start:  # a pipe cannot seek, not even to 0
            file.seek(text.start)
        left = text.stop - text.start if text.stop is not None else None
        while chunk := file.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left)):
            if unknown:
                refuse_other_formats(text.path, chunk)
                unknown = False
            left = None if left is None else left - len(chunk)
            yield chunk
            if len(chunk) < CHUNK_BYTES:  # another read would wait for a terminal's second end of file
                break


def without_padding(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Leave out the spaces at both ends of each line of a text in `pieces`; empty pieces stay."""
    held, fresh = b"", True  # spaces that may end a line; whether a line begins
    for piece in pieces:
        if not piece:
            yield piece
            continue
        lines = re.sub(rb" *\n *", b"\n", held + piece)
        lines = lines.lstrip(b" ") if fresh else lines
        solid = lines.rstrip(b" ")
        held = lines[len(solid) :]
        if solid:
            yield solid
            fresh = solid.endswith(b"\n")


def without_titles(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Drop the title lines of a text in `pieces`, and yield an empty piece in place of each; empty pieces stay."""
    # state of the unfinished last line: its first word may still come (fresh), or it is a title (inside)
    fresh, inside = True, False
    for piece in pieces:
        at = 0
        if inside:
            at = piece.find(b"\n") + 1
            inside = at == 0
        if inside:
            continue
        if not piece:
            yield piece
        # searching the word first is fast; the pattern is slow
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
    r"""Yield the offsets of line ends, in blocks; the last line may lack its `\n`. Raises what `chunks` raises."""
    offset, last = text.start, b"\n"
    for chunk in chunks(text):
        yield offset + 1 + np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n"))
        offset, last = offset + len(chunk), chunk[-1:]
    if last != b"\n":
        yield np.array([offset])


def place_between_characters(text: bytes) -> int:
    """Return a place near the end of a long text where a cut leaves each character, `<unk>` and `<eos>` what it is."""
    for place in range(len(text) - 8, len(text) - 64, -1):
        inside = text[place] & 0xC0 == 0x80 or UNK.encode() in text[place - 4 : place + 4]
        beside = text[place - 6 : place], text[place : place + 6]
        if not (inside or any(map(_RESERVED_WORD.search, beside))):
            return place
    return len(text) - 32  # no UTF-8


def _cut_at_spaces(text: Text, see: Callable[[bytes], object]) -> Iterator[bytes]:
    """Cut the text at white space; a line with a mark stays whole, unless it is very long.

    With `text.exact` a very long word is cut, too.
    """
    offset, rest = text.start, b""
    for chunk in chunks(text):
        see(chunk)
        rest += chunk
        line = 1 + rest.rfind(b"\n")
        cut = max(line, *(1 + rest.rfind(space, line) for space in _SPACES[1:]))
        if len(rest) - line <= LONGEST_WORD and (rest[line:cut].isspace() or _has_marks(rest[line:], text.marks)):
            cut = line
        if len(rest) - cut > LONGEST_WORD:
            if not text.exact:
                way = f"give white space between words, or take {named('data.tokenizer=characters')} or bytes"
                raise InputError(f"{text.path}: a word of more than {LONGEST_WORD} bytes at byte {offset + cut}; {way}")
            cut = place_between_characters(rest)
        if cut:
            yield rest[:cut]
        offset, rest = offset + cut, rest[cut:]
    if rest:
        yield rest + b"\n" * _has_marks(rest, text.marks)


def _has_marks(piece: bytes, keep_marks: bool) -> bool:
    # searching a substring is fast, a pattern of whole words is slow
    return _RESERVED in piece or (not keep_marks and b"<s>" in piece)


def _unmarked(lines: bytes, keep_marks: bool) -> bytes:
    r"""Replace the marks at the ends of lines by white space; `lines` begin with a `\n`."""
    lines = _AT_END.sub(LEFT_OUT + b"   ", lines)
    return lines if keep_marks else _AROUND.sub(rb"\1" + LEFT_OUT + rb" \2    ", lines)


def without_marks(line: str, keep_marks: bool) -> str:
    """Replace the marks of a line in memory by white space; a line end in it is white space."""
    if isinstance(line, str) and _has_marks(packed := line.encode(errors="surrogatepass"), keep_marks):
        unmarked = _unmarked(b"\n" + packed.replace(b"\n", b" ") + b"\n", keep_marks)[1:-1]
        if LEFT_OUT in unmarked:
            _log_marks("the text", "some")
            return unmarked.decode(errors="surrogatepass")
    return line


def marks_note(name: str | Path, lines: int | str) -> str:
    """Return the note that the marks of so many lines of a text are left out."""
    which = f"{lines if isinstance(lines, str) else format(lines, ',')} lines with {EOS} at the end, or in <s> … </s>"
    return f"{name}: {which}: these marks are left out (data.marks=keep, in training, takes <s> and </s> for words)"


@cache
def _log_marks(name: str | Path, lines: int | str) -> None:
    _LOG.info("note: %s", marks_note(name, lines))


def _check(text: Text, piece: bytes, offset: int, lines: int) -> None:
    """Refuse a piece that breaks a rule of this module; it begins at byte `offset`, after `lines` line ends."""
    nul = piece.find(b"\0")
    if nul >= 0:
        raise InputError(f"{text.path}: a NUL byte at byte {offset + nul}; {conversion(text.path, piece, offset)}")
    try:
        if not text.any_bytes:
            piece.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 at byte {offset + error.start} ({error.reason})"
        way = conversion(text.path, piece, offset) + ", or take data.tokenizer=bytes" * text.exact
        raise InputError(f"{text.path}: {problem}; {way}") from error
    if _RESERVED in piece and (reserved := _RESERVED_WORD.search(piece)):
        before = Text(text.path, 0, text.start, as_text=True)  # not a pipe: those start at 0
        earlier = sum(map(len, line_ends(before))) if text.start else 0
        line = 1 + earlier + lines + piece.count(b"\n", 0, reserved.start())
        raise InputError(
            f"{text.path}, line {line}: the word {EOS} is reserved for the end of a line; "
            "delete it or write it another way"
        )
