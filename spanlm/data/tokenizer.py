"""How a line becomes words: one rule for corpora, for text on the command line and for scoring."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import get_args

from spanlm.data.config import Tokenizer
from spanlm.data.vocabulary import EOS, UNK
from spanlm.errors import InputError, require

_SPACE = r" \t\n\r\v\f"
_WORD = re.compile(f"[^{_SPACE}]+")
# zero-width joiners shape words of Persian and of the Indian scripts; they separate nothing
_JOINERS = "\u200c\u200d"
# every combining mark of Unicode lies below this code point, or among the variation selectors above it
_MARKS_END = 0x20000


def tokenize(line: str, tokenizer: Tokenizer) -> list[str]:
    """Cut one line into words, without its end.

    "whitespace" separates at ASCII white space and changes nothing. "words" lower-cases, too, and splits
    every punctuation mark and symbol off as a word of its own. It leaves whole: what has an
    apostrophe, hyphen, full stop or comma between letters or digits (`don't`, `well-known`, `1,000`), `e.g.`
    and its like, and `<unk>`. "straight-words" reads ’ (U+2019) as ' before.

    Args:
        line: The line; a line end in it is white space.
        tokenizer: "whitespace", "words" or "straight-words".

    Returns:
        The words; none for a blank line.

    Raises:
        InputError: The tokenizer is unknown, or the line holds the reserved word `<eos>`.
    """
    require(tokenizer in get_args(Tokenizer), "tokenizer", tokenizer, "whitespace or words")
    words = _WORD.findall(line)
    if EOS in words:
        raise InputError(f"the word {EOS} is reserved for the end of a line; delete it or write it another way")
    return words if tokenizer == "whitespace" else [part for word in words for part in cut_word(word, tokenizer)]


def cut_word(word: str, tokenizer: Tokenizer) -> list[str]:
    """Cut what stands between white space as "words" or "straight-words" does."""
    return _pattern().findall((word.replace("’", "'") if tokenizer == "straight-words" else word).lower())


@cache
def _pattern() -> re.Pattern[str]:
    letter = rf"[\w{_JOINERS}{_combining_marks()}]"
    return re.compile(rf"{re.escape(UNK)}|(?:[^\W\d_]\.){{2,}}(?!{letter})|{letter}+(?:['’.,\-]{letter}+)*|[^{_SPACE}]")


def _combining_marks() -> str:
    # \w knows letters and digits but not the marks on them, which would cut words of many scripts in two
    marks = [code for code in range(0x300, _MARKS_END) if unicodedata.category(chr(code)).startswith("M")]
    runs = _runs(marks)
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in runs) + "\U000e0100-\U000e01ef"


def _runs(codes: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for code in codes:
        if runs and runs[-1][1] == code - 1:
            runs[-1] = (runs[-1][0], code)
        else:
            runs.append((code, code))
    return runs
