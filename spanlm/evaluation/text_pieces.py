"""Text as it streams in, cut into the pieces that are scored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spanlm.data.config import Tokenizer
from spanlm.data.tokenizer import tokenize
from spanlm.evaluation.words import Piece

WORDS = 2048
"""Words of a line scored at a time; a longer line is cut, and its state carried over."""


def lines_as_pieces(lines: Iterable[str], tokenizer: Tokenizer) -> Iterator[Piece]:
    """Tokenise lines that are in memory."""
    for number, line in enumerate(lines, start=1):
        yield from line_pieces(number, tokenize(line, tokenizer))


def line_pieces(number: int, words: list[str]) -> Iterator[Piece]:
    """Cut one line into pieces of at most WORDS words."""
    starts = range(0, max(1, len(words)), WORDS)
    for start in starts:
        yield Piece(
            sentence=number,
            start=start + 1,
            words=words[start : start + WORDS],
            opens=start == 0,
            closes=start == starts[-1],
        )
