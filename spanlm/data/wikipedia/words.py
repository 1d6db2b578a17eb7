"""English words as the Penn Treebank cuts them: one documented rule, the same on every machine.

* What stands between white space is cut further; nothing is joined, added or rewritten. So the words of a sentence,
  put together, are the sentence without its white space, but for the numbers.
* Punctuation marks and symbols are words of their own. Whole stay: a hyphen, an apostrophe or `&` between letters or
  digits (`well-known`, `O'Brien`, `AT&T`); `.`, `,`, `:` and `/` between digits; `.` before a small letter
  (`Last.fm`); dots in a row, dashes in a row; the period of an abbreviation (`Mr.`, `Inc.`, `U.S.`) and of an
  initial (`J.`). An abbreviation at a sentence's end keeps its period and gets no second one, as in the Treebank.
* Contractions are cut: `do n't`, `it 's`, `they 'll`, `can not`, `gon na`.
* A word that is a number is `N`: 7, 1,234.5, .308, 3/4, 10:30, 1978-79, ½. What has letters, too, is a word like
  any other (`1990s`, `19th`, `30-year-old`), as in Mikolov's Penn Treebank. A dash parts two numbers and a hyphen
  does not: `1914–18` is `N – N`. The letter `N` of a text cannot be told from a number, as in the Treebank.
* Case stays, unless asked otherwise.

Daniluk et al. (2017) do not say how they cut theirs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

NUMBER = "N"


def listed(words: str) -> frozenset[str]:
    """Return the set of the words of a line."""
    return frozenset(words.split())


# stand before what they belong to, so no sentence ends after them
BEFORE_NAMES = listed(
    "Mr Mrs Ms Messrs Dr Drs Prof Rev Revd Hon Fr Msgr Gen Lt Col Maj Capt Cpt Cmdr Sgt Cpl Pvt Adm Gov Sen Rep Pres "
    "Supt Mt Ft vs viz cf ca approx lit fl Rs arr"
)
# may end a sentence
AFTER_NAMES = listed(
    "Jr Sr Esq Inc Ltd Co Corp Bros Assn Dept Univ Govt Bldg Blvd Ave Rd Hwy St Ste Sts Jan Feb Apr Aug Sept Oct Nov "
    "Dec Tues Thurs etc al Ph eds ed vol Vol vols Vols inc ltd co corp jr sr Ala Ariz Calif Colo Conn Fla Mich Minn "
    "Neb Okla Penn Tenn Tex Wis"
)
ABBREVIATIONS = BEFORE_NAMES | AFTER_NAMES
# abbreviated before a number, words of their own elsewhere
BEFORE_NUMBERS = listed("No Nos no nos Op op Art art Fig fig Figs figs Sec sec Ch ch pp Pt pt")

# how many written words are remembered with what they are cut into
_REMEMBERED, _LONGEST_REMEMBERED = 1 << 17, 64
# beyond these lie no marks that an English text has
_SYMBOL_RANGES = ((0, 0x3100), (0xFE00, 0x10000))


def _symbols() -> Iterator[str]:
    for begin, end in _SYMBOL_RANGES:
        yield from (chr(code) for code in range(begin, end) if unicodedata.category(chr(code))[0] in "PS")


_DIGIT = r"[\d¼-¾⅐-⅞]"
# letters, digits, and the marks that belong to letters: whatever is neither symbol nor white space
_SIGN = rf"[^\s{re.escape(''.join(_symbols()))}]"
_NUMBER = rf"\.?{_DIGIT}++(?:[.,:/-]{_DIGIT}++)*+"
_PLAIN = rf"{_SIGN}+(?:[-&]{_SIGN}+|'(?=[^\W\d_]){_SIGN}+|(?<=\d)[.,:/](?={_DIGIT}){_SIGN}+|\.(?=[a-z]){_SIGN}+)*+"
_LISTED = "|".join(sorted(ABBREVIATIONS, key=len, reverse=True))
_FEW = "|".join(sorted(BEFORE_NUMBERS, key=len, reverse=True))
_ACRONYM = rf"(?:[^\W\d_]{{1,2}}\.){{2,}}(?:[^\W\d_](?!{_SIGN}))?(?:-{_SIGN}+)*"
_CLIPPED = r"'(?:em|til|tis|twas|n'|\d\ds)(?!\w)"
_ALWAYS = rf"{_ACRONYM}|(?:{_LISTED})\.(?!\w)"
_REST = rf"(?<!{_SIGN})\.{_DIGIT}+(?!{_SIGN})|{_CLIPPED}|{_PLAIN}|\.{{2,}}|-{{2,}}|."
_INSIDE = re.compile(rf"{_ALWAYS}|(?:[^\W\d_]|{_FEW})\.(?!\w)|{_REST}")
_AT_END = re.compile(rf"{_ALWAYS}|{_REST}")
_IS_NUMBER = re.compile(_NUMBER)
_CONTRACTED = re.compile(r"(.+)(n't|'(?:s|re|ve|ll|d|m))|(can)(not)|(gon|wan)(na)|(got)(ta)", re.I)


def cut_sentence(sentence: str, lowercase: bool = False) -> list[str]:
    """Cut one normalised sentence into words."""
    words: list[str] = []
    written = sentence.split()
    for number, word in enumerate(written, 1):
        cut = _cut if len(word) <= _LONGEST_REMEMBERED else _cut.__wrapped__
        words += cut(word, number == len(written))
    return [word if word == NUMBER else word.lower() for word in words] if lowercase else words


@lru_cache(_REMEMBERED)
def _cut(written: str, last: bool) -> tuple[str, ...]:
    """Cut what stands between white space; the period of an initial that ends a sentence is the sentence's own."""
    words: list[str] = []
    for word in (_AT_END if last else _INSIDE).findall(written):
        found = _CONTRACTED.fullmatch(word)
        words += [word] if found is None else filter(None, found.groups())
    return tuple(NUMBER if _IS_NUMBER.fullmatch(word) else word for word in words)
