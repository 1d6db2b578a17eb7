"""Texts as ids: encoded once, kept in the cache folder, read through a memory map.

Every cached file can be rebuilt. Its name is a hash of its sources, and it ends in the SHA-256 of its content.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from spanlm.data.config import CACHE_VARIABLE, Documents, WordRule
from spanlm.data.text import LEFT_OUT, Text, pieces, without_padding, without_titles
from spanlm.data.tokenizer import UNKNOWN_EQUALS, Flags, Ids, Positions, Tokenizer, Words, cut_word, words_and_ends
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError, RunError
from spanlm.store.files import UNFINISHED, expanded, replacing

# raise it to rebuild every cached file
FORMAT = 3
HEADER_BYTES, DIGEST_BYTES = 256, 32
STALE_SECONDS = 24 * 3600
_ID, _INDEX = np.dtype("<i4"), np.dtype("<i8")
_CHUNK_BYTES, _BLOCK = 1 << 20, 1 << 16
_NO_MARKS, _NO_PADDING = ("without marks",), ("without padding",)


@dataclass(frozen=True, slots=True, eq=False)
class TokenFile:
    """The tokens of one split.

    Attributes:
        ids: Word ids, int32 (N,), memory-mapped if the corpus comes from files; every line ends in `<eos>`.
        documents: Index of each document's first token, int64, increasing, from 0.
    """

    ids: Ids
    documents: Positions

    def __len__(self) -> int:
        return len(self.ids)

    def blocks(self) -> Iterator[Ids]:
        return (self.ids[start : start + _BLOCK] for start in range(0, len(self.ids), _BLOCK))


def count_words(text: Text, fingerprint: str, rule: WordRule, documents: Documents = "none") -> dict[str, int]:
    """Count the words of a text, `<eos>` included, in order of first appearance; title lines do not count.

    `fingerprint` is the text's SHA-256, under which the counts are cached.

    Raises:
        InputError: The text cannot be read, breaks a rule of `spanlm.data.text` or holds no word.
        RunError: The cache folder cannot be written.
    """
    # only title lines change the counts
    kind = ("book-title",) if documents == "book-title" else ()
    path = cached("counts", FORMAT, fingerprint, Words(rule).rule, *kind, *_NO_MARKS[text.marks :])
    if not is_whole(path):
        counts = counted(text_pieces(text, fingerprint, documents), rule)
        if len(counts) <= 1:
            raise _no_word(text)
        with caching(path) as file:
            file.write(json.dumps(counts).encode())
    counts_by_word: dict[str, int] = json.loads(path.read_bytes()[:-DIGEST_BYTES])
    return counts_by_word


def counted(pieces: Iterable[bytes], rule: WordRule) -> Counter[str]:
    """Count the words of a text in pieces, `<eos>` included, in order of first appearance."""
    written, counts = Counter(chain.from_iterable(map(words_and_ends, pieces))), Counter[str]()
    # a written word is cut the same way everywhere, so each is cut once
    for word, number in written.items():
        for part in cut_word(word.decode(errors="surrogateescape"), rule):
            counts[part] += number
    return counts


def token_file(
    text: Text, fingerprint: str, vocabulary: Vocabulary, tokenizer: Tokenizer, documents: Documents
) -> tuple[TokenFile, int, int]:
    """Return the tokens of a text with SHA-256 `fingerprint`, from the cache if possible.

    Returns:
        The tokens; the number of tokens that are `<unk>` because the vocabulary lacks the word; the number of lines
        with marks that are left out.

    Raises what `count_words` raises.
    """
    ways = *_NO_MARKS[text.marks :], *_NO_PADDING[not text.padded :]
    path = cached("tokens", FORMAT, fingerprint, vocabulary.hash, tokenizer.rule, documents, *ways)
    if not is_whole(path):
        with caching(path) as file:
            if not _write_tokens(file, text_pieces(text, fingerprint, documents), vocabulary, tokenizer, documents):
                raise _no_word(text)
    return _read_tokens(path)


def text_pieces(text: Text, fingerprint: str, documents: Documents) -> Iterable[bytes]:
    """Yield a text in pieces that end between words; an empty one stands for a title line or before a further file."""
    whole = pieces(text, fingerprint)
    whole = without_padding(whole) if text.padded else whole
    return without_titles(whole) if documents == "book-title" else whole


def _no_word(text: Text) -> InputError:
    if text.start or text.stop is not None:
        problem = f"no word in the part of its lines from byte {text.start}, of train, valid and test"
        return InputError(f"{text.path}: {problem}; give a folder with train.txt, valid.txt and test.txt, or more text")
    return InputError(f"{text.path}: no word in it; give a text with at least one word")


def document_starts(documents: Documents, ends: Positions, blank: Flags, framed: Flags, titles: Positions) -> Positions:
    """Return the index of the first token of each document; the text has a word.

    Marks of a new document: for "blank-line", a line after blank lines; for "heading", a line `= Title =` with one `=`
    at each end; for "book-title", the line after a title line, which is not among the tokens. Tables and formulas have
    lines like headings, too (WikiText-2: 31). So if the first such line is between blank lines, as WikiText's titles
    are, only lines between blank lines count. The edges of the text count as blank lines.

    A mark starts a document only after a word: blank lines and marks at the start of a text belong to its first
    document. A further file of the text starts one, too.

    Args:
        documents: The kind of mark.
        ends: Index of each line's `<eos>`.
        blank: Whether each line is blank.
        framed: Whether each line is like a heading.
        titles: Indices of the tokens after title lines, and of the first of each further file.
    """
    marks, begins = np.empty(0, _INDEX), np.append(0, ends[:-1] + 1)
    after_blank, before_blank = np.append(True, blank[:-1]), np.append(blank[1:], True)
    if documents == "blank-line":
        marks = begins[after_blank & ~blank]
    elif documents == "heading":
        between = framed & after_blank & before_blank
        marks = begins[between if between[np.argmax(framed)] else framed]
    marks = np.union1d(marks, titles)
    first_word = np.append(begins[~blank], ends[-1])[0]
    return np.append(0, marks[(marks > first_word) & (marks <= ends[-1])])


def _kinds_of_lines(ends: Positions, equals: Positions) -> tuple[Flags, Flags]:
    """Return which lines are blank, and which are like headings, given the indices of the words `=`."""
    begins = np.append(0, ends[:-1] + 1)
    opened = np.isin(begins, equals) & ~np.isin(begins + 1, equals)
    closed = np.isin(ends - 1, equals) & ~np.isin(ends - 2, equals)
    return begins == ends, opened & closed & (ends - begins > 2)


class _Lines:
    """The kinds of the lines of a text, found in its bytes."""

    def __init__(self) -> None:
        self._blank, self._framed, self._begun = bytearray(), bytearray(), False

    def read(self, chunk: bytes) -> None:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            words = line.split() if line.lstrip()[:1] == b"=" else []
            framed = len(words) > 2 and words[0] == words[-1] == b"=" and b"=" not in (words[1], words[-2])
            self._framed.append(framed and not self._begun)
            self._blank.append(not (self._begun or line.strip()))
            self._begun = False
        self._begun = self._begun or bool(rest.strip())  # a part of a very long line

    def kinds(self) -> tuple[Flags, Flags]:
        blank, framed = (np.frombuffer(kind, np.bool_) for kind in (self._blank, self._framed))
        return blank, framed


def cache_folder() -> Path:
    """Return $SPANLM_CACHE, else `~/.cache/spanlm`; the folder may not exist yet."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return expanded(chosen) if chosen else Path.home() / ".cache" / "spanlm"


def cached(kind: str, *parts: object) -> Path:
    return cache_folder() / kind / f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:40]}.{kind}"


@contextmanager
def caching(path: Path) -> Iterator[BinaryIO]:
    """Like `replacing`, for a file of the cache, whose folder is created; RunError: it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f"*{UNFINISHED}"):  # a file a day old is left from a killed build
            with suppress(FileNotFoundError):  # another process removed it first
                if left.stat().st_mtime < time.time() - STALE_SECONDS:
                    left.unlink()
        with replacing(path) as file:
            yield file
            file.seek(0)
            file.write(hashlib.file_digest(file, "sha256").digest())  # type: ignore[arg-type]  # it can be read
    except OSError as error:
        way = f"set {CACHE_VARIABLE} to a folder that can be written and has room"
        raise RunError(f"cannot write the cache {path.parent} ({error.strerror or error}); {way}") from error


def is_whole(path: Path) -> bool:
    """Return whether a cached file exists and matches its SHA-256; log a damaged one."""
    try:
        state = path.stat()
        _check_digest(path, state.st_ino, state.st_mtime_ns, state.st_size)
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        logging.getLogger(__name__).info("note: %s: damaged (%s); made again from the text", path, error)
        return False
    return True


@cache
def _check_digest(path: Path, *state: int) -> None:
    """Raise ValueError unless a file matches its SHA-256; `state` keys the cache, so unchanged files are read once."""
    digest, left = hashlib.sha256(), path.stat().st_size - DIGEST_BYTES
    with path.open("rb") as file:  # the whole of a memory map would count as this process's memory
        while chunk := file.read(min(_CHUNK_BYTES, max(left, 0))):
            digest.update(chunk)
            left -= len(chunk)
        if left or digest.digest() != file.read():
            raise ValueError("it does not have its SHA-256")


def _write_tokens(
    file: BinaryIO, pieces: Iterable[bytes], vocabulary: Vocabulary, tokenizer: Tokenizer, documents: Documents
) -> bool:
    """Write a JSON header padded with spaces, ids and document starts; return False for a text without words."""
    eos_id, lines_seen = vocabulary.eos_id, _Lines()
    equals_id = vocabulary.id("=") if "=" in vocabulary else UNKNOWN_EQUALS
    ends, equals, titles = ([np.empty(0, _INDEX)] for _ in range(3))
    file.write(b" " * HEADER_BYTES)
    total = lines = oov = marked = 0
    for piece in tokenizer.chunks(pieces):
        if not piece:
            titles.append(np.array([total]))
        marked += 0 if tokenizer.exact else piece.count(LEFT_OUT)
        ids = tokenizer.encode(piece)
        if documents != "none":
            ends.append(total + np.flatnonzero(ids == eos_id))
            if tokenizer.exact:
                lines_seen.read(piece)
        if documents == "heading" and not tokenizer.exact:
            equals.append(total + np.flatnonzero(ids == equals_id))
        unknown = ids < 0
        ids[unknown] = vocabulary.unk_id
        file.write(ids.astype(_ID, copy=False).tobytes())
        total, lines, oov = total + len(ids), lines + int((ids == eos_id).sum()), oov + int(unknown.sum())
    if total == lines:
        return False
    starts = np.zeros(1, _INDEX)
    if documents != "none":
        line_ends, equals_at, titles_at = map(np.concatenate, (ends, equals, titles))
        kinds = lines_seen.kinds() if tokenizer.exact else _kinds_of_lines(line_ends, equals_at)
        starts = document_starts(documents, line_ends, *kinds, titles_at)
    file.write(starts.astype(_INDEX, copy=False).tobytes())
    file.seek(0)
    header = {"tokens": total, "documents": len(starts), "oov": oov, "types": len(vocabulary), "marked": marked}
    file.write(json.dumps(header).encode())
    return True


def _read_tokens(path: Path) -> tuple[TokenFile, int, int]:
    with path.open("rb") as file:
        header = json.loads(file.read(HEADER_BYTES))
    tokens = header["tokens"]
    ids = np.memmap(path, _ID, "r", HEADER_BYTES, (tokens,))
    starts = np.fromfile(path, _INDEX, header["documents"], offset=HEADER_BYTES + tokens * _ID.itemsize)
    return TokenFile(ids, starts), header["oov"], header["marked"]
