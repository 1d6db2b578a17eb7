"""Text as it streams in, cut into the pieces that are scored. A file larger than memory passes through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spanlm.data.config import Lines, Tokenizer
from spanlm.data.text import Text, pieces
from spanlm.data.tokenizer import SentenceEnds, tokenize
from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError
from spanlm.evaluation.words import Piece

WORDS = 2048
"""Words of a line scored at a time; a longer line is cut, and its state carried over."""


def lines_as_pieces(lines: Iterable[str], tokenizer: Tokenizer) -> Iterator[Piece]:
    """Tokenise lines that are in memory."""
    tokens = (word for line in lines for word in [*tokenize(line, tokenizer), EOS])
    return _cut(tokens)


def text_as_pieces(text: Text, tokenizer: Tokenizer) -> Iterator[Piece]:
    """Read and tokenise a file of any length, even one that is a single line.

    Raises:
        InputError: the file breaks a rule of `spanlm.data.text`.
    """
    found = _cut(token for piece in pieces(text) for token in _tokens(piece.decode(), tokenizer))
    first = next(found, None)
    if first is None:
        raise InputError(f"{text.path}: the text is empty; give one with at least one line")
    yield first
    yield from found


def in_lines(pieces: Iterable[Piece], lines: Lines, vocabulary: Vocabulary) -> Iterator[Piece]:
    """Cut pieces of lines as the lines of a model's own text were cut: as they are, or into sentences.

    A sentence has the number of its line, and its words count on from those before it, so that each is found in the
    text. A blank line is no sentence: it is a piece that does not close.

    Args:
        pieces: Of the lines of a text.
        lines: The model's `data.lines`.
        vocabulary: The model's.
    """
    return iter(pieces) if lines == "as-written" else _sentences(pieces, vocabulary)


def words_of(pieces: Iterable[Piece]) -> list[str]:
    """Join pieces again: their words, with <eos> where a line or a sentence ends."""
    return [word for piece in pieces for word in [*piece.words, *[EOS] * piece.closes]]


def _sentences(pieces: Iterable[Piece], vocabulary: Vocabulary) -> Iterator[Piece]:
    words: list[str] = []
    ends, start, opens = SentenceEnds(vocabulary), 1, True
    for piece in pieces:
        for word in piece.words:
            ended = ends.before(word)
            if ended or len(words) == WORDS:
                yield Piece(piece.sentence, start, words, opens=opens, closes=ended)
                words, start, opens = [], start + len(words), ended
            words.append(word)
        if piece.closes:
            yield Piece(piece.sentence, start, words, opens=opens, closes=bool(words))
            words, ends, start, opens = [], SentenceEnds(vocabulary), 1, True


def _tokens(piece: str, tokenizer: Tokenizer) -> Iterator[str]:
    """Tokenise a piece that starts and ends at the edges of words, with <eos> at each line end."""
    first, *others = piece.split("\n")
    yield from tokenize(first, tokenizer)
    for line in others:
        yield EOS
        yield from tokenize(line, tokenizer)


def _cut(tokens: Iterable[str]) -> Iterator[Piece]:
    """Cut words with <eos> after each line into pieces of at most WORDS words, each of one line."""
    words: list[str] = []
    line, start = 1, 1
    for token in tokens:
        if token == EOS:
            yield Piece(line, start, words, opens=start == 1, closes=True)
            words, line, start = [], line + 1, 1
        else:
            if len(words) == WORDS:
                yield Piece(line, start, words, opens=start == 1, closes=False)
                words, start = [], start + WORDS
            words.append(token)
