"""From an article's text to paragraphs of prose, to sentences, to words: English, the same on every machine.

**Prose.** Left out, and counted: the title line; headings (WikiExtractor writes one as a line of few words with a full
stop); items of lists and lines of tables; and lines that do not end as a sentence does, which are items of lists whose
marks were lost, verse, and captions.

**Sentences** are cut by `sentencex`. It leaves quotations and brackets whole, however many sentences they hold.

**Words** are cut as in the Penn Treebank; Daniluk et al. (2017) do not say how they cut theirs.

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
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

NUMBER = "N"
# the kinds of lines that are left out
TITLE, HEADING, LIST, TABLE, FRAGMENT = "title", "heading", "list", "table", "fragment"

_REPLACED = {
    "‘’‚‛′`´": "'",
    "“”„‟″": '"',
    "…": "...",
    "\u2010\u2011": "-",
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000\t": " ",
    "\r\v\f\u0085\u2028\u2029": "\n",
}
_TRANSLATED = {letter: target for letters, target in _REPLACED.items() for letter in letters}
_DROPPED = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]+"
)

# sentencex looks for the end of a quotation from every mark that opens one: it gets no more at once
_BLOCK = re.compile(r".{1,10000}(?!\S)|.{1,10000}", re.S)
# Every pattern takes a time in proportion to the text, whatever the text is: what a mark without an end has to read
# is not read again from the next one.
_REFERENCE = re.compile(r"<(ref)\b[^<>]*>", re.I)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_LINK = re.compile(r"\[(?:https?:)?//[^\s\]]*+\s*+([^\]]*+)(\]?)")
_WIKILINK = re.compile(r"\[\[([^\]]*+)((?:\]\])?)")
_ADDRESS = re.compile(r"(?:https?://|www\.)[^\s<>\"\[\]]+[^\s<>\"\[\].,;:!?')]")
_TEMPLATE = re.compile(r"\{\{[^{}]*\}\}")
_HUGE_NUMBER = re.compile(r"&#\d{9,}")  # no character, and Python refuses to read it
_STACKED = re.compile(r"[^\x00-\u02ff\w\s]{31,}")
_EMPTY = re.compile(r"\([\s,;:]*\)|\[[\s,;:]*\]")
_OPENED = re.compile(r"(?<=\()[\s,;:]+")
_CLOSED = re.compile(r"(?<=[^\s,;:])[\s,;:]+(?=\))")

_TABLE_STARTS = ("{|", "|", "!")
_TABLE_MARKS = ("||", "{{", "}}", "[[", "]]", " style=", " colspan=", " rowspan=", "thumb|")
_LIST_LINE = re.compile(r"[•·*#;:\-–—▪►●]")
_ENDED = re.compile(r"[.!?…][\"')\]]*$")
_ENDS_INSIDE = re.compile(r"[a-z0-9)][.!?][\"')\]]* +[\"'(]*[A-Z]")
# a line that stops in mid-sentence is kept from this length on, if a sentence ends in it
_LONG = 12
# what stands before a colon is a label below this length
_LABEL = 4
# a heading has no more words, and a sentence that has no more nearly always has one of the words of _PROSE
_HEADING = 10
_PROSE = re.compile(
    r"(?:^|\s)(?:[Hh]e|[Ss]he|[Ii]t|[Tt]hey|[Tt]here|I|[Ww]e|is|was|are|were|be|been|has|have|had|does?|did|can|could|"
    r"will|would|may|might|must|should|became|began|made|took|won|went|wrote|left|lives?|led|held|gave|came|ran|sold|got|"
    r"met|said|told|found|built|sang|taught|fought|lost|paid|spent|[a-z]{3,}ed)(?=[\s.,])(?!\s+by\b)"
)


def listed(words: str) -> frozenset[str]:
    """Return the set of the words of a line."""
    return frozenset(words.split())


def normalise(text: str) -> str:
    """Return the text with plain quotes and spaces, composed letters, and nothing invisible in it but line ends."""
    for letter, target in _TRANSLATED.items():
        if letter in text:
            text = text.replace(letter, target)
    # marks over one letter are put in order by a sort that is quadratic in their number; Unicode's own limit is 30
    text = _STACKED.sub(
        lambda run: "".join(sign for sign in run[0] if unicodedata.category(sign)[0] != "M"), _DROPPED.sub("", text)
    )
    return unicodedata.normalize("NFC", text)


def drop_elements(opening: re.Pattern[str], text: str) -> str:
    """Drop comments and elements with all that is in them; the group of `opening` is a name, or None for a comment."""
    kept: list[str] = []
    begin, endless = 0, set()  # what has no end from here on has none later; all of it stays
    for found in opening.finditer(text):
        name = (found[1] or "").lower()
        if found.start() < begin:
            continue
        end: re.Match[str] | None = found
        if not found[0].endswith("/>"):
            closing = rf"</{name}\s*>" if name else "-->"
            end = None if name in endless else re.compile(closing, re.I).search(text, found.end())
        if end is None:
            endless.add(name)
        else:
            kept.append(text[begin : found.start()])
            begin = end.end()
    return "".join(kept) + text[begin:]


def prose(text: str, title: str, left_out: Counter[str]) -> Iterator[str]:
    """Give out the paragraphs of an article, normalised.

    Args:
        text: The text, a paragraph a line.
        title: The article's title; its line is no prose.
        left_out: Gets the words of each kind of line that is not given out.
    """
    title = normalise(title)
    lines = [clean(line) for line in normalise(text).split("\n")]
    for number, line in enumerate(lines):
        if not line:
            continue
        # an extractor's heading stands right on its text, where blank lines part paragraphs there is none
        on_text = number + 1 < len(lines) and bool(lines[number + 1])
        kind = TITLE if line == title else _kind(line, on_text)
        if kind is None:
            yield line
        else:
            left_out[kind] += len(line.split())


def clean(line: str) -> str:
    """Return a normalised line without tags, notes, addresses, and brackets that hold nothing any more."""
    if "&" in line:
        line = html.unescape(_HUGE_NUMBER.sub("", html.unescape(_HUGE_NUMBER.sub("", line))))
        line = normalise(line).replace("\n", " ")
    if "<" in line:
        line = _TAG.sub(" ", drop_elements(_REFERENCE, line))
    if "[" in line:
        line = _LINK.sub(lambda link: link[1] if link[2] else link[0], line)
        line = _WIKILINK.sub(lambda link: link[1].rpartition("|")[2] if link[2] else link[0], line)
    if "{{" in line:
        line = _TEMPLATE.sub("", line)
    if "http" in line or "www." in line:
        line = _ADDRESS.sub("", line)
    if "(" in line or "[" in line:
        line = _EMPTY.sub("", _CLOSED.sub("", _OPENED.sub("", line)))
    return line.strip()


def _kind(line: str, on_text: bool) -> str | None:
    """Name what the line is instead of prose; None is prose."""
    if line.startswith(_TABLE_STARTS) or any(mark in line for mark in _TABLE_MARKS):
        return TABLE
    if _LIST_LINE.match(line):
        return LIST
    words = line.count(" ") + 1
    if line.endswith(":"):
        return FRAGMENT if words < _LABEL else None
    if not _ENDED.search(line):
        return None if words >= _LONG and _ENDS_INSIDE.search(line) else FRAGMENT
    if (
        on_text
        and words <= _HEADING
        and line.endswith(".")
        and not _ENDS_INSIDE.search(line)
        and not _PROSE.search(line)
    ):
        return HEADING
    return None


def split_sentences(paragraph: str) -> Iterator[str]:
    """Cut a normalised paragraph into its sentences, without the white space between them."""
    from sentencex import segment

    for block in _BLOCK.findall(paragraph):
        for sentence in map(str.strip, segment("en", block)):
            if sentence:
                yield sentence


_ABBREVIATIONS = listed(
    "Mr Mrs Ms Messrs Dr Drs Prof Rev Revd Hon Fr Msgr Gen Lt Col Maj Capt Cpt Cmdr Sgt Cpl Pvt Adm Gov Sen Rep Pres "
    "Supt Mt Ft vs viz cf ca approx lit fl Rs arr Jr Sr Esq Inc Ltd Co Corp Bros Assn Dept Univ Govt Bldg Blvd Ave Rd "
    "Hwy St Ste Sts Jan Feb Apr Aug Sept Oct Nov Dec Tues Thurs etc al Ph eds ed vol Vol vols Vols inc ltd co corp jr "
    "sr Ala Ariz Calif Colo Conn Fla Mich Minn Neb Okla Penn Tenn Tex Wis"
)
# abbreviated before a number, words of their own elsewhere
_BEFORE_NUMBERS = listed("No Nos no nos Op op Art art Fig fig Figs figs Sec sec Ch ch pp Pt pt")

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
_LISTED = "|".join(sorted(_ABBREVIATIONS, key=len, reverse=True))
_FEW = "|".join(sorted(_BEFORE_NUMBERS, key=len, reverse=True))
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
