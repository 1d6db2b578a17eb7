"""From an article's text to paragraphs of prose, sentences and words: English, the same on every machine.

**Prose.** These lines are dropped and counted: the title; headings (WikiExtractor writes them as lines of few words
with a full stop); list items and table lines; and lines that do not end like a sentence: captions, verse, and list
items whose marks were lost.

**Sentences** come from `sentencex`, which keeps quotations and brackets whole, even with several sentences.

**Words** are cut as in the Penn Treebank; Daniluk et al. (2017) do not describe their tokeniser.

* Punctuation marks and symbols are separate words. These do not cut a word: a hyphen, an apostrophe or `&` between
  letters or digits (`well-known`, `O'Brien`, `AT&T`); `.`, `,`, `:` and `/` between digits; `.` before a small letter
  (`Last.fm`); dots in a row, dashes in a row; the period of an abbreviation (`Mr.`, `U.S.`) and of an initial (`J.`).
  An abbreviation at a sentence's end keeps its period and gets no second one.
* Contractions are cut: `do n't`, `it 's`, `they 'll`, `can not`, `gon na`.
* A number becomes `N`: 7, 1,234.5, .308, 3/4, 10:30, 1978-79, ½; not `1990s`, `19th`, `30-year-old`. A dash separates
  two numbers, a hyphen does not: `1914–18` is `N – N`.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

NUMBER = "N"
# kinds of dropped lines
TITLE, HEADING, LIST, TABLE, FRAGMENT = "title", "heading", "list", "table", "fragment"

_REPLACED = {
    "‘’‚‛′`´": "'",
    "“”„‟″": '"',
    "…": "...",
    "\u2010\u2011": "-",
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000\t": " ",
    "\r\v\f\u0085\u2028\u2029": "\n",
}
_DROPPED = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]+"
)
# normalisation sorts the marks over a letter in quadratic time; Unicode's own limit is 30 marks
_STACKED = re.compile(r"[^\x00-\u02ff\w\s]{31,}")

# Every pattern takes linear time on every text: after a mark without an end, the next match does not read the same
# characters again.
_REFERENCE = re.compile(r"<(ref)\b[^<>]*>", re.I)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_LINK = re.compile(r"\[(?:https?:)?//[^\s\]]*+\s*+([^\]]*+)(\]?)")
_WIKILINK = re.compile(r"\[\[([^\]]*+)((?:\]\])?)")
_ADDRESS = re.compile(r"(?:https?://|www\.)[^\s<>\"\[\]]+[^\s<>\"\[\].,;:!?')]")
_TEMPLATE = re.compile(r"\{\{[^{}]*\}\}")
_HUGE_NUMBER = re.compile(r"&#\d{9,}")  # not a character, and Python refuses the number
# emptied brackets, and marks beside a bracket
_EMPTY = re.compile(r"\([\s,;:]*\)|\[[\s,;:]*\]")
_OPENED = re.compile(r"(?<=\()[\s,;:]+")
_CLOSED = re.compile(r"(?<=[^\s,;:])[\s,;:]+(?=\))")

_TABLE_STARTS = ("{|", "|", "!")
_TABLE_MARKS = ("||", "{{", "}}", "[[", "]]", " style=", " colspan=", " rowspan=", "thumb|")
_LIST_LINE = re.compile(r"[•·*#;:\-–—▪►●]")
_ENDED = re.compile(r"[.!?…][\"')\]]*$")
_ENDS_INSIDE = re.compile(r"[a-z0-9)][.!?][\"')\]]* +[\"'(]*[A-Z]")
# numbers of words: a line that stops in mid-sentence is kept from _LONG on if a sentence ends in it; a line before a
# colon is a label below _LABEL; a heading has at most _HEADING, and a sentence that short usually a word of _PROSE
_LONG, _LABEL, _HEADING = 12, 4, 10
_PROSE = re.compile(
    r"(?:^|\s)(?:[Hh]e|[Ss]he|[Ii]t|[Tt]hey|[Tt]here|I|[Ww]e|is|was|are|were|be|been|has|have|had|does?|did|can|could|"
    r"will|would|may|might|must|should|became|began|made|took|won|went|wrote|left|lives?|led|held|gave|came|ran|sold|got|"
    r"met|said|told|found|built|sang|taught|fought|lost|paid|spent|[a-z]{3,}ed)(?=[\s.,])(?!\s+by\b)"
)
# sentencex takes quadratic time in the number of opening quotation marks: it gets a block at a time
_BLOCK = re.compile(r".{1,10000}(?!\S)|.{1,10000}", re.S)


def normalise(text: str) -> str:
    """Return the text with plain quotes and spaces and composed letters, without invisible characters but line ends."""
    for letters, target in _REPLACED.items():
        for letter in letters:
            text = text.replace(letter, target)
    text = _STACKED.sub(
        lambda run: "".join(sign for sign in run[0] if unicodedata.category(sign)[0] != "M"), _DROPPED.sub("", text)
    )
    return unicodedata.normalize("NFC", text)


def drop_elements(opening: re.Pattern[str], text: str) -> str:
    """Drop comments and elements with their contents; the group of `opening` is a name, or None for a comment."""
    parts: list[str] = []
    begin, endless = 0, set()  # names without a closing tag from here on, so not later either; those elements stay
    for mark in opening.finditer(text):
        name = (mark[1] or "").lower()
        if mark.start() < begin:
            continue
        end: re.Match[str] | None = mark
        if not mark[0].endswith("/>"):
            closing = rf"</{name}\s*>" if name else "-->"
            end = None if name in endless else re.compile(closing, re.I).search(text, mark.end())
        if end is None:
            endless.add(name)
        else:
            parts.append(text[begin : mark.start()])
            begin = end.end()
    return "".join(parts) + text[begin:]


def prose(text: str, title: str, left_out: Counter[str]) -> Iterator[str]:
    """Yield the normalised paragraphs of a text; count the words of other lines in `left_out`, by kind."""
    title = normalise(title)
    lines = [clean(line) for line in normalise(text).split("\n")]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        # an extractor's heading is directly above its text; a line before a blank line is no heading
        kind = TITLE if line == title else _kind(line, on_text=bool(following))
        if line and kind is None:
            yield line
        elif line and kind:
            left_out[kind] += len(line.split())


def clean(line: str) -> str:
    """Return a normalised line without tags, notes, addresses and emptied brackets."""
    if "&" in line:
        line = html.unescape(_HUGE_NUMBER.sub("", html.unescape(_HUGE_NUMBER.sub("", line))))
        line = normalise(line).replace("\n", " ")
    line = _TAG.sub(" ", drop_elements(_REFERENCE, line)) if "<" in line else line
    if "[" in line:
        line = _LINK.sub(lambda link: link[1] if link[2] else link[0], line)
        line = _WIKILINK.sub(lambda link: link[1].rpartition("|")[2] if link[2] else link[0], line)
    line = _TEMPLATE.sub("", line) if "{{" in line else line
    line = _ADDRESS.sub("", line) if "http" in line or "www." in line else line
    if "(" in line or "[" in line:
        line = _EMPTY.sub("", _CLOSED.sub("", _OPENED.sub("", line)))
    return line.strip()


def _kind(line: str, on_text: bool) -> str | None:
    """Return the kind of a line that is not prose; None for prose."""
    if line.startswith(_TABLE_STARTS) or any(mark in line for mark in _TABLE_MARKS):
        return TABLE
    if _LIST_LINE.match(line):
        return LIST
    words, ends_inside = line.count(" ") + 1, _ENDS_INSIDE.search(line)
    if line.endswith(":"):
        return FRAGMENT if words < _LABEL else None
    if not _ENDED.search(line):
        return None if words >= _LONG and ends_inside else FRAGMENT
    short = on_text and words <= _HEADING and line.endswith(".")
    return HEADING if short and not ends_inside and not _PROSE.search(line) else None


def split_sentences(paragraph: str) -> Iterator[str]:
    """Yield the sentences of a normalised paragraph, without the white space between them."""
    from sentencex import segment

    for block in _BLOCK.findall(paragraph):
        yield from filter(None, map(str.strip, segment("en", block)))


_ABBREVIATIONS = (
    "Mr Mrs Ms Messrs Dr Drs Prof Rev Revd Hon Fr Msgr Gen Lt Col Maj Capt Cpt Cmdr Sgt Cpl Pvt Adm Gov Sen Rep Pres "
    "Supt Mt Ft vs viz cf ca approx lit fl Rs arr Jr Sr Esq Inc Ltd Co Corp Bros Assn Dept Univ Govt Bldg Blvd Ave Rd "
    "Hwy St Ste Sts Jan Feb Apr Aug Sept Oct Nov Dec Tues Thurs etc al Ph eds ed vol Vol vols Vols inc ltd co corp jr "
    "sr Ala Ariz Calif Colo Conn Fla Mich Minn Neb Okla Penn Tenn Tex Wis"
)
# abbreviations before a number, plain words elsewhere
_BEFORE_NUMBERS = "No Nos no nos Op op Art art Fig fig Figs figs Sec sec Ch ch pp Pt pt"
# size of the cache from written words to tokens; letters of the longest word in it
_REMEMBERED, _LONGEST_REMEMBERED = 1 << 17, 64

_DIGIT = r"[\d¼-¾⅐-⅞]"
_CHARACTERS = [chr(code) for code in (*range(0x3100), *range(0xFE00, 0x10000))]  # beyond are no marks of English text
_SYMBOLS = "".join(sign for sign in _CHARACTERS if unicodedata.category(sign)[0] in "PS")
# letters, digits, and the marks on letters
_SIGN = rf"[^\s{re.escape(_SYMBOLS)}]"
# no group is possessive: Python 3.11.2 loses its place if the last repetition does not match
_NUMBER = re.compile(rf"\.?{_DIGIT}++(?:[.,:/-]{_DIGIT}++)*")
_PLAIN = rf"{_SIGN}+(?:[-&]{_SIGN}+|'(?=[^\W\d_]){_SIGN}+|(?<=\d)[.,:/](?={_DIGIT}){_SIGN}+|\.(?=[a-z]){_SIGN}+)*"
_LISTED = "|".join(sorted(_ABBREVIATIONS.split(), key=len, reverse=True))
_FEW = "|".join(sorted(_BEFORE_NUMBERS.split(), key=len, reverse=True))
_ACRONYM = rf"(?:[^\W\d_]{{1,2}}\.){{2,}}(?:[^\W\d_](?!{_SIGN}))?(?:-{_SIGN}+)*"
_CLIPPED = r"'(?:em|til|tis|twas|n'|\d\ds)(?!\w)"
_ALWAYS = rf"{_ACRONYM}|(?:{_LISTED})\.(?!\w)"
_REST = rf"(?<!{_SIGN})\.{_DIGIT}+(?!{_SIGN})|{_CLIPPED}|{_PLAIN}|\.{{2,}}|-{{2,}}|."
_INSIDE = re.compile(rf"{_ALWAYS}|(?:[^\W\d_]|{_FEW})\.(?!\w)|{_REST}")
_AT_END = re.compile(rf"{_ALWAYS}|{_REST}")
ALONE = re.compile(rf"(?i:{_ALWAYS}|[a-hj-z]\.(?!\w))|{_REST}")
"""Parts of a written word whose neighbours are unknown: abbreviations, initials except I, the rest."""
_CONTRACTED = re.compile(r"(.+)(n't|'(?:s|re|ve|ll|d|m))|(can)(not)|(gon|wan)(na)|(got)(ta)", re.I)


def cut_sentence(sentence: str, lowercase: bool = False) -> list[str]:
    words: list[str] = []
    written = sentence.split()
    for number, word in enumerate(written, 1):
        cut = _cut if len(word) <= _LONGEST_REMEMBERED else _cut.__wrapped__
        words += cut(word, _AT_END if number == len(written) else _INSIDE)
    return [word if word == NUMBER else word.lower() for word in words] if lowercase else words


def cut_word(written: str) -> list[str]:
    """Cut a written word whose neighbours are unknown."""
    return [word for part in normalise(written).split() for word in _cut.__wrapped__(part, ALONE)]


@lru_cache(_REMEMBERED)
def _cut(written: str, pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Cut a written word; `pattern` decides whether an initial keeps its period, which at the end is the sentence's."""
    words: list[str] = []
    for word in pattern.findall(written):
        contraction = _CONTRACTED.fullmatch(word)
        words += [word] if contraction is None else filter(None, contraction.groups())
    return tuple(NUMBER if _NUMBER.fullmatch(word) else word for word in words)
