"""Texts as ids: made once, kept in the cache folder, read through a memory map."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from spanlm.data.cache import FileState, cache_folder, cache_key, caching, whole_file
from spanlm.data.config import Documents, Tokenizer
from spanlm.data.counts import WordCounts
from spanlm.data.documents import DocumentFinder
from spanlm.data.encoding import Encoder, count_pieces
from spanlm.data.text import Text, pieces
from spanlm.data.titles import without_titles
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError, RunError, require

# a new number makes every cached file be built anew
FORMAT = 2
HEADER_BYTES = 256
_ID = np.dtype("<i4")
_INDEX = np.dtype("<i8")


@dataclass(frozen=True, slots=True, eq=False)
class TokenFile:
    """The tokens of one split.

    Attributes:
        ids: Word ids, int32 (N,), a memory map for a corpus from files; every line ends in `<eos>`.
        documents: Index of each document's first token, int64, increasing; the first is 0.

    Raises:
        InputError: There is no token, or the documents do not start at 0 and increase.
    """

    ids: NDArray[np.int32]
    documents: NDArray[np.int64]

    def __post_init__(self) -> None:
        require(len(self.ids) > 0, "tokens", len(self.ids), "at least one")
        starts = self.documents
        fits = len(starts) > 0 and starts[0] == 0 and starts[-1] < len(self.ids)
        increasing = bool(fits and (np.diff(starts) > 0).all())
        require(increasing, "documents", starts, f"increasing from 0, below {len(self.ids)}")

    def __len__(self) -> int:
        return len(self.ids)


def count_words(text: Text, fingerprint: str, tokenizer: Tokenizer, documents: Documents = "none") -> WordCounts:
    """Count the words of a text, `<eos>` included, in order of first appearance.

    Args:
        text: The text.
        fingerprint: Its SHA-256; the counts are cached under it.
        tokenizer: How it is cut into words.
        documents: What starts a document; the title lines of books are not counted.

    Raises:
        InputError: The text cannot be read, breaks a rule of `spanlm.data.text` or holds no word.
        RunError: The cache folder cannot be written.
    """
    # every other kind of documents counts the same words
    kind = ("book-title",) if documents == "book-title" else ()
    path = cache_folder() / "counts" / f"{cache_key(FORMAT, fingerprint, tokenizer, *kind)}.counts"
    known = WordCounts.read(path) if whole_file(path) else None
    if known is not None:
        return known
    counts = count_pieces(_text_of(text, fingerprint, documents), tokenizer)
    if len(counts) <= 1:
        raise _no_word(text)
    with caching(path) as file:
        counts.write(file)
    return counts


def token_file(
    text: Text, fingerprint: str, vocabulary: Vocabulary, tokenizer: Tokenizer, documents: Documents
) -> tuple[TokenFile, int]:
    """Return the tokens of a text, from the cache if it has them.

    Args:
        text: The text.
        fingerprint: Its SHA-256.
        vocabulary: Gives the ids.
        tokenizer: How the text is cut into words.
        documents: What starts a document.

    Returns:
        The tokens, and how many of them are `<unk>` only because the vocabulary does not have the word.

    Raises:
        InputError: The text cannot be read, breaks a rule of `spanlm.data.text` or holds no word.
        RunError: The cache folder cannot be written.
    """
    key = cache_key(FORMAT, fingerprint, vocabulary.hash, tokenizer, documents)
    path = cache_folder() / "tokens" / f"{key}.tokens"
    known = _read(path)
    if known is None:
        with caching(path) as file:
            tokens = _write(file, _text_of(text, fingerprint, documents), vocabulary, tokenizer, documents)
            # an error here leaves nothing in the cache
            if tokens == 0:
                raise _no_word(text)
        known = _read(path)
    if known is None:
        raise RunError(f"{path}: gone or damaged while it was made; load the corpus again")
    return known


def _text_of(text: Text, fingerprint: str, documents: Documents) -> Iterable[bytes]:
    """Read what is text of a text: for books an empty piece stands where a title line was."""
    whole = pieces(text, fingerprint)
    return without_titles(whole) if documents == "book-title" else whole


def _no_word(text: Text) -> InputError:
    """Return the error for a text of blank lines."""
    place = f", from byte {text.start}" if text.start else ""
    return InputError(f"{text.path}{place}: no word in it; give a text with at least one word")


def _write(
    file: BinaryIO,
    pieces: Iterable[bytes],
    vocabulary: Vocabulary,
    tokenizer: Tokenizer,
    documents: Documents,
) -> int:
    """Write header, ids and document starts: a JSON object padded with spaces, then two plain arrays.

    Returns:
        The number of words, `<eos>` not counted.
    """
    encoder = Encoder(vocabulary, tokenizer)
    finder = DocumentFinder(documents, eos_id=vocabulary.eos_id, equals_id=encoder.equals_id)
    file.write(b" " * HEADER_BYTES)
    total = lines = oov = 0
    for piece in pieces:
        if not piece:
            finder.title()
        ids = encoder.codes(piece)
        finder.feed(ids)
        unknown = ids < 0
        ids[unknown] = vocabulary.unk_id
        file.write(ids.astype(_ID, copy=False).tobytes())
        total += len(ids)
        lines += int((ids == vocabulary.eos_id).sum())
        oov += int(unknown.sum())
    starts = finder.starts()
    file.write(starts.astype(_INDEX, copy=False).tobytes())
    file.seek(0)
    file.write(json.dumps({"tokens": total, "documents": len(starts), "oov": oov, "types": len(vocabulary)}).encode())
    return total - lines


def _read(path: Path) -> tuple[TokenFile, int] | None:
    """Return what `_write` wrote, or None if it is missing or damaged."""
    found = whole_file(path)
    return None if found is None else _opened(found)


@lru_cache(maxsize=64)
def _opened(file: FileState) -> tuple[TokenFile, int]:
    path = file[0]
    with path.open("rb") as content:
        header = json.loads(content.read(HEADER_BYTES))
    tokens, types = header["tokens"], header["types"]
    ids = np.memmap(path, dtype=_ID, mode="r", offset=HEADER_BYTES, shape=(tokens,))
    if ids.min() < 0 or ids.max() >= types:
        raise RunError(f"{path}: has ids outside [0, {types}); delete it, and it is made again")
    end = HEADER_BYTES + tokens * _ID.itemsize
    return TokenFile(ids, np.fromfile(path, dtype=_INDEX, offset=end, count=header["documents"])), header["oov"]
