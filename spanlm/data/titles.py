r"""The title lines of a collection of books, which start a document and are no text of it.

A title line is one whose first word is `_BOOK_TITLE_`, as in the files of the Children's Book Test:

    _BOOK_TITLE_ : Rudyard_Kipling___The_Jungle_Book.txt.out
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

TITLE = b"_BOOK_TITLE_"
_TITLE_LINE = re.compile(rb"^[ \t\r\v\f]*" + TITLE + rb"(?![^ \t\n\r\v\f])[^\n]*\n?", re.MULTILINE)


def without_titles(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Leave the title lines out of a text, and give an empty piece where each one stood.

    Args:
        pieces: The text in pieces that start and end at the edges of words.
    """
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
