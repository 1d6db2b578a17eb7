"""From pieces of a text to word counts and to ids, fast and in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from spanlm.data.config import Tokenizer
from spanlm.data.counts import WordCounts
from spanlm.data.tokenizer import cut_word
from spanlm.data.vocabulary import EOS, Vocabulary

# how many written words are remembered with what they are cut into
_REMEMBERED = 1 << 18
_UNKNOWN, _UNKNOWN_EQUALS = -1, -2
_EOS = EOS.encode()

Codes = Callable[[list[bytes]], Iterable[int]]


def count_pieces(pieces: Iterable[bytes], tokenizer: Tokenizer) -> WordCounts:
    """Count the words of the pieces of a text, `<eos>` included, in order of first appearance."""
    written: Counter[bytes] = Counter()
    counts: Counter[str] = Counter()
    for piece in pieces:
        written.update(_written_words(piece))
        # words differ more as they are written than once they are cut
        if tokenizer != "whitespace" and len(written) > _REMEMBERED:
            _cut_into(counts, written, tokenizer)
            written.clear()
    if tokenizer == "whitespace":
        return WordCounts.of(written)
    _cut_into(counts, written, tokenizer)
    return WordCounts.of(counts)


class Encoder:
    """Gives ids to the words of a text.

    Args:
        vocabulary: Gives the ids.
        tokenizer: How the text is cut into words.

    Attributes:
        equals_id: What `codes` gives for the word `=`, by which headings are found.
    """

    def __init__(self, vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
        # "=" is told from other unknown words, so that headings are found with any vocabulary
        self.equals_id = vocabulary.id("=") if "=" in vocabulary else _UNKNOWN_EQUALS
        known = vocabulary, self.equals_id
        self._codes = _whole_words(*known) if tokenizer == "whitespace" else _cut_words(*known, tokenizer)

    def codes(self, piece: bytes) -> NDArray[np.int32]:
        """Return the ids of the words of a piece and of its line ends; a negative one is an unknown word."""
        return np.fromiter(self._codes(_written_words(piece)), dtype=np.int32)


def _written_words(piece: bytes) -> list[bytes]:
    # bytes.split knows ASCII white space only, and is the fastest way through a text
    return piece.replace(b"\n", b" " + _EOS + b" ").split()


def _cut_into(counts: Counter[str], written: Counter[bytes], tokenizer: Tokenizer) -> None:
    # a written word is cut the same way wherever it stands, so each is cut once for all its places
    for word, number in written.items():
        for part in _parts(word, tokenizer):
            counts[part] += number


def _parts(word: bytes, tokenizer: Tokenizer) -> tuple[str, ...]:
    if word.isalnum():
        # ASCII letters and digits, which most words are made of, need no pattern
        return (word.decode().lower(),)
    # no text has an <eos> of its own
    return (EOS,) if word == _EOS else tuple(cut_word(word.decode(), tokenizer))


def _whole_words(vocabulary: Vocabulary, equals_id: int) -> Codes:
    table = {word.encode(): id for id, word in enumerate(vocabulary.words)}
    table[b"="] = equals_id
    return lambda words: map(table.get, words, repeat(_UNKNOWN))


def _cut_words(vocabulary: Vocabulary, equals_id: int, tokenizer: Tokenizer) -> Codes:
    unknown = {"=": equals_id}

    @lru_cache(_REMEMBERED)
    def codes(word: bytes) -> tuple[int, ...]:
        parts = _parts(word, tokenizer)
        return tuple(vocabulary.id(part) if part in vocabulary else unknown.get(part, _UNKNOWN) for part in parts)

    return lambda words: chain.from_iterable(map(codes, words))
