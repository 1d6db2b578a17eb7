"""Where documents start, read from the ids of a text while they are made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spanlm.data.config import Documents

Ids = NDArray[np.int32]
Positions = NDArray[np.int64]
Flags = NDArray[np.bool_]


class DocumentFinder:
    """Finds the first token of each document, whatever pieces the ids come in.

    "blank-line": a line after blank lines is a mark. "heading": a line `= Title =` with one `=` at each end
    is. Tables and formulas have such lines, too (WikiText-2: 31); so where the first one of the text stands
    between blank lines, as the titles of WikiText do, only those between blank lines count.

    "book-title": what follows a title line is; those lines are not among the ids, `title` says where they stood.

    A mark starts a document if a word stands before it: what opens a text, blank lines included, belongs to
    its first document.

    Args:
        documents: What starts a document.
        eos_id: Id that ends a line.
        equals_id: Id of the word `=`, which frames a heading.
    """

    def __init__(self, documents: Documents, *, eos_id: int, equals_id: int) -> None:
        self._documents = documents
        self._eos_id = eos_id
        self._equals_id = equals_id
        self._marks: list[_Marks] = []
        self._last_line = 0
        self._length = 0
        # the line that the last piece left open: its first token's index, and what is needed of its ids
        self._open_at = 0
        self._open: Ids = np.empty(0, np.int32)
        self._seen_word = False
        # the edges of the text are as good as blank lines
        self._after_blank = True
        self._after_title = False

    def title(self) -> None:
        """Note that a title line stood here."""
        self._after_title = True

    def feed(self, ids: Ids) -> None:
        """Read the next ids of the text."""
        if self._documents == "none" or not len(ids):
            return
        if self._documents == "book-title":
            self._read_book(ids)
            return
        joined = np.concatenate([self._open, ids])
        shift = self._length - len(self._open)
        self._length += len(ids)
        ends = np.flatnonzero(joined == self._eos_id)
        if len(ends):
            starts = np.append(0, ends[:-1] + 1)
            at = starts + shift
            at[0] = self._open_at
            self._read_lines(joined, starts, ends, at)
            self._open_at = int(ends[-1]) + 1 + shift
            joined = joined[ends[-1] + 1 :]
        # a heading shows in the first two and the last two words of its line, however long that is
        self._open = joined if len(joined) <= 4 else joined[[0, 1, -2, -1]]

    def starts(self) -> Positions:
        """Return the index of each document's first token; the first is 0."""
        at = np.concatenate([np.empty(0, np.int64), *(marks.at for marks in self._marks)])
        counts = np.concatenate([np.empty(0, np.bool_), *(marks.after_word for marks in self._marks)])
        between = np.concatenate([np.empty(0, np.bool_), *(marks.between_blanks for marks in self._marks)])
        if len(at) and self._documents == "heading" and between[0]:
            counts &= between
        return np.append(0, at[counts])

    def _read_book(self, ids: Ids) -> None:
        if self._after_title and self._seen_word:
            self._marks.append(_Marks(np.array([self._length]), np.array([True]), np.array([True])))
        self._after_title = False
        self._length += len(ids)
        self._seen_word = self._seen_word or bool((ids != self._eos_id).any())

    def _read_lines(self, ids: Ids, starts: Positions, ends: Positions, at: Positions) -> None:
        """Read whole lines: `starts` and `ends` are places in `ids`, `at` those of the starts in the text."""
        blank = starts == ends
        after_word = np.logical_or.accumulate(np.append(self._seen_word, ~blank))
        after_blank = np.append(self._after_blank, blank)
        if self._documents == "heading":
            chosen = np.flatnonzero(_framed(ids, starts, ends, self._equals_id))
        else:
            chosen = np.flatnonzero(~blank & after_blank[:-1])
        if self._marks and not blank[0]:
            self._marks[-1].not_before_blank(self._last_line)
        before_blank = np.append(blank[1:], True)
        self._marks.append(_Marks(at[chosen], after_word[chosen], (after_blank[:-1] & before_blank)[chosen]))
        self._last_line = int(at[-1])
        self._seen_word, self._after_blank = bool(after_word[-1]), bool(blank[-1])


@dataclass(frozen=True, slots=True, eq=False)
class _Marks:
    """Lines that may start a document: where they are, and what is around them."""

    at: Positions
    after_word: Flags
    between_blanks: Flags

    def not_before_blank(self, line: int) -> None:
        """Correct the guess that the text or a blank line follows the line at `line`."""
        self.between_blanks[self.at == line] = False


def _framed(ids: Ids, starts: Positions, ends: Positions, equals_id: int) -> Flags:
    # "= Title =", not "= = Section = ="; shorter lines read beside themselves and drop out at the end
    equals = np.append(ids == equals_id, False)
    opens = equals[starts] & ~equals[starts + 1]
    closes = equals[ends - 1] & ~equals[ends - 2]
    framed: Flags = opens & closes & (ends - starts >= 3)
    return framed
