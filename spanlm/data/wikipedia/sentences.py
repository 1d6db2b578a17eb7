"""Where English sentences end, by rule: no model, no data, the same on every machine.

A sentence ends after `.`, `!`, `?` or dots in a row (with the quotes and brackets that close after them) where white
space and something other than a small letter follow. A period ends none that belongs to an abbreviation, an acronym
or an initial, unless one of the words follows that open sentences rather than names (`the U.S. The`).
A period without white space after it (`career.Three`) is taken for an end, too, between small letters and a
capitalised word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from spanlm.data.wikipedia.words import AFTER_NAMES, BEFORE_NAMES, BEFORE_NUMBERS, listed

OPENERS = listed(
    "The This That These Those It He She They We You A An In On At As After Before By For From With When While During "
    "Since Although Though Despite However But And If His Her Its Their There Then Thus Also Another Some Many Most "
    "Both Each According Following Under Until Upon Having Later Today Such All Because Among Within Throughout "
    "Through Prior Between Meanwhile Moreover Furthermore Nevertheless Instead To Not No"
)

_END = re.compile(r"(?:(?<![.!?…])[.!?…]++[\"')\]]*+\s++(?=[^\sa-z])|(?<=[a-z]{2}\.)(?=[A-Z][a-z]{2}))")
_NEXT = re.compile(r"[\"'(\[{]*([^\W\d_]+)(?![\w.-])")
_ACRONYM = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}|[^\W\d_]")
# no abbreviation is longer
_LONGEST = 16
_LAST_PART = re.compile(r"[^\s\"'(\[{/–—-]*$")


def split_sentences(paragraph: str) -> Iterator[str]:
    """Cut a normalised paragraph into its sentences, without the white space between them."""
    begin = 0
    for found in _END.finditer(paragraph):
        if _is_end(paragraph, begin, found.start(), found.end()):
            yield paragraph[begin : found.end()].strip()
            begin = found.end()
    if rest := paragraph[begin:].strip():
        yield rest


def _is_end(text: str, begin: int, mark: int, after: int) -> bool:
    """Tell whether the mark at `mark` ends a sentence; the next one would begin at `after`."""
    if text[after].islower():
        return False
    if text[mark : mark + 1] != "." or text[mark + 1 : mark + 2] in (".", "!", "?"):
        return True
    found = _LAST_PART.search(text[max(begin, mark - _LONGEST) : mark])
    word = found[0] if found else ""
    if word in BEFORE_NAMES:
        return False
    if word in BEFORE_NUMBERS:
        return not text[after].isdigit()
    if word in AFTER_NAMES or _ACRONYM.fullmatch(word):
        following = _NEXT.match(text, after)
        return following is not None and following[1] in OPENERS
    return True
