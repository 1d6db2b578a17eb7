"""A text of any length as pieces: words of a line or sentence, marked where it begins and ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from spanlm.data.config import Lines
from spanlm.data.text import Text, pieces
from spanlm.data.tokenizer import SentenceEnds, Tokenizer
from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError, require

WORDS = 2048
"""Most words of a piece; a longer line is cut, and the model's state carried over."""


@dataclass(frozen=True)
class Piece:
    """Consecutive words of one line: usually a whole line or sentence, a part of a very long one.

    `sentence` is the number of the line and `start` that of the piece's first word in it, both from 1. The piece
    `opens` if its line or sentence begins with it, and `closes` if it ends with it. `spaces`: its words, if any, are
    white space, which tokenizers below the word keep.
    """

    sentence: int
    start: int
    words: list[str]
    opens: bool
    closes: bool
    spaces: bool = False

    @property
    def blank(self) -> bool:
        """Whether the line has no words; in a text of sentences such a piece does not close and is not scored."""
        return self.opens and (self.spaces or not self.words)


def refuse_one_string(name: str, several: Iterable[object]) -> None:
    """Refuse a single string where a list is meant, since its characters would count as items."""
    if isinstance(several, str):
        raise InputError(name, f"{several[:20]!r}", "is one string; give a list of them")
    require(isinstance(several, Iterable), name, several, "a list of strings")
    refuse_table(name, several)


def refuse_table(name: str, several: object) -> None:
    """Refuse a table or a mapping where texts are meant, since iteration yields its column names."""
    if hasattr(several, "columns") or isinstance(several, Mapping):
        raise InputError(f"{name}: is a table ({type(several).__name__}); give the column that holds the texts")


def require_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts unchanged; InputError: one is not a string, such as a missing value of a table."""
    for number, text in enumerate(texts, 1):
        require(isinstance(text, str), f"text {number}", text, "a string. Leave missing values out")
        yield text


def lines_as_pieces(lines: Iterable[str], tokenizer: Tokenizer) -> Iterator[Piece]:
    """Tokenise lines in memory; InputError: one is not a string."""
    return _cut((word for line in require_texts(lines) for word in [*tokenizer.tokens(line), EOS]), tokenizer)


def text_as_pieces(text: Text, tokenizer: Tokenizer) -> Iterator[Piece]:
    """Tokenise a file of any length, even of one long line; InputError: it breaks a rule of `spanlm.data.text`."""
    chunks = (chunk.decode(errors="surrogateescape") for chunk in tokenizer.chunks(pieces(text)))
    cut = _cut((token for chunk in chunks for token in _tokens(chunk, tokenizer)), tokenizer)
    if (first := next(cut, None)) is None:
        raise InputError(f"{text.path}: the text is empty; give one with at least one line")
    yield first
    yield from cut


def in_lines(pieces: Iterable[Piece], lines: Lines, vocabulary: Vocabulary) -> Iterator[Piece]:
    """Cut pieces of lines as the model's training text was cut (`data.lines`): not at all, or into sentences.

    A sentence has the number of its line, and word numbers count through the line, so that each word can be found in
    the text. A blank line becomes a piece that does not close.
    """
    if lines == "as-written":
        yield from pieces
        return
    words: list[str] = []
    ends, start, opens = SentenceEnds(vocabulary), 1, True
    for piece in pieces:
        for word in piece.words:
            ended = ends.ends_before(word)
            if ended or len(words) == WORDS:
                yield Piece(piece.sentence, start, words, opens=opens, closes=ended)
                words, start, opens = [], start + len(words), ended
            words.append(word)
        if piece.closes:
            yield Piece(piece.sentence, start, words, opens=opens, closes=bool(words))
            words, ends, start, opens = [], SentenceEnds(vocabulary), 1, True


def whole_lines(pieces: Iterable[Piece]) -> Iterator[Piece]:
    words: list[str] = []
    for piece in pieces:
        words += piece.words
        if piece.closes:
            yield replace(piece, words=words)
            words = []


def words_of(pieces: Iterable[Piece]) -> list[str]:
    """Return the words of all pieces, with <eos> at each end of a line or sentence."""
    return [word for piece in pieces for word in [*piece.words, *[EOS] * piece.closes]]


def _tokens(piece: str, tokenizer: Tokenizer) -> Iterator[str]:
    """Tokenise text that starts and ends at word boundaries; line ends become <eos>."""
    first, *others = piece.split("\n")
    yield from tokenizer.tokens(first)
    for line in others:
        yield EOS
        yield from tokenizer.tokens(line)


def _cut(tokens: Iterable[str], tokenizer: Tokenizer) -> Iterator[Piece]:
    """Cut tokens with an <eos> after each line into pieces of at most WORDS words of one line."""
    words: list[str] = []
    line, start = 1, 1
    for token in tokens:
        if token == EOS:
            yield Piece(line, start, words, opens=start == 1, closes=True, spaces=tokenizer.is_space(words))
            words, line, start = [], line + 1, 1
        else:
            if len(words) == WORDS:
                yield Piece(line, start, words, opens=start == 1, closes=False)
                words, start = [], start + WORDS
            words.append(token)
