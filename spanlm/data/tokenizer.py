"""From lines to words and sentences: one rule for corpora, the command line and scoring.

Sentences. In tokenised text (WikiText) a line is a paragraph, and a mark that ends a sentence is a separate word, so
a rule over words is enough. A sentence ends after `.`, `!` or `?` and the brackets and quotes that close after it, if
the line goes on with anything but a small letter or another mark. A `"` closes if an odd number of them precede it in
the line. Each sentence gets an `<eos>`, so the text becomes longer: a perplexity by sentences is not comparable
with one by lines. Blank lines are left out: predicting their lone `<eos>` would tell nothing.

Salton et al. (2017) split WikiText-2 with NLTK's trained tokeniser; their code then ends the last sentence of each
line, and each blank line, with two `<eos>`, the second of which is free. This module does neither.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, lru_cache
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from spanlm.data.config import WordRule
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError

MARKS, QUOTE = (".", "!", "?"), '"'
CLOSERS = (")", "]", "'", "''", "”", "’")
_SENTENCE_MARKS = frozenset((*MARKS, *CLOSERS, QUOTE))
_BLOCK = 1 << 18
# closing marks of one sentence: a quote after a bracket, or a bracket after a quote
MOST_CLOSERS = 2

# tokens that occur only in texts of that corpus
_OF_PTB, _OF_WIKITEXT = {UNK, "N", "n't"}, {UNK, "@-@", "@,@", "@.@"}

Flags = NDArray[np.bool_]
Ids = NDArray[np.int32]
Positions = NDArray[np.int64]

UNKNOWN, UNKNOWN_EQUALS = -1, -2
"""Ids of words outside the vocabulary, of which `=` marks headings."""
# size of the cache from written words to their tokens
_REMEMBERED = 1 << 18

WHITE_SPACE = " \t\n\r\v\f"
"""Of ASCII, which separates words."""
_SPACE = r" \t\n\r\v\f"
_WORD = re.compile(f"[^{_SPACE}]+")
# zero-width joiners shape words of Persian and of Indian scripts; they do not separate words
_JOINERS = "\u200c\u200d"
OTHER_SPACE = re.compile("[\u0085\u00a0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000]")
"""Spaces beyond ASCII; the zero-width space separates words, too."""
UNSEEN = re.compile("[\u00ad\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
"""Soft hyphens, word joiners, marks of direction and byte order."""
# every combining mark of Unicode is below this code point, or a variation selector
_MARKS_END = 0x20000


class Tokenizer(ABC):
    """How a line becomes tokens, all of them strings without white space, and tokens become text.

    Attributes:
        exact: tokens keep every byte of a line; otherwise white space separates words.
        rule: identifies the rule in names of cached files.
    """

    exact: bool

    @property
    @abstractmethod
    def rule(self) -> str: ...

    @abstractmethod
    def tokens(self, line: str) -> list[str]:
        """Cut one line, without an `<eos>`; a line end in it is white space. InputError: it has the word `<eos>`."""

    @abstractmethod
    def by_word(self, line: str) -> list[list[str]]:
        """Return the tokens of each written word of a line, and last those of the white space at its end."""

    @abstractmethod
    def chunks(self, pieces: Iterable[bytes]) -> Iterable[bytes]:
        """Cut a text anew where `encode` may cut it; an empty piece, for a title line, stays one."""

    @abstractmethod
    def encode(self, chunk: bytes) -> Ids:
        """Return the ids of a chunk; a line end is `<eos>`, and words without an id get negative numbers."""

    @abstractmethod
    def spelled(self, tokens: Iterable[str], at_line_start: bool = True) -> Iterator[bytes]:
        """Yield the text of each token; `<eos>` is a line end."""

    @property
    @abstractmethod
    def word_ends(self) -> list[int] | None:
        """The ids of tokens that end the word before them, as white space and `<eos>` do; None: all tokens do."""

    @abstractmethod
    def is_space(self, tokens: Sequence[str]) -> bool:
        """Whether tokens are white space alone."""

    def text(self, tokens: Iterable[str]) -> str:
        """Return the text of tokens; bytes that are no UTF-8 are lone surrogates, as `surrogateescape` has them."""
        return b"".join(self.spelled(tokens)).decode("utf-8", "surrogateescape")

    def readable(self, tokens: Iterable[str], at_line_start: bool = True) -> Iterator[str]:
        """Yield the text of each token, a character when its last byte is there; U+FFFD for bytes that are no UTF-8.

        Bytes of a character that the tokens do not end are left out.
        """
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        return map(decode, self.spelled(tokens, at_line_start))


class Words(Tokenizer):
    """A rule over words; see `tokenize`."""

    exact = False

    def __init__(self, name: WordRule, vocabulary: Vocabulary | None = None) -> None:
        self.name, self._vocabulary = name, vocabulary

    @property
    def rule(self) -> str:
        # letters differ between versions of Unicode, and so of Python
        return self.name if self.name == "whitespace" else f"{self.name} 2, Unicode {unicodedata.unidata_version}"

    def tokens(self, line: str) -> list[str]:
        return tokenize(line, self.name)

    def by_word(self, line: str) -> list[list[str]]:
        return [*(cut_word(word, self.name) for word in refuse_reserved(line)), []]

    def chunks(self, pieces: Iterable[bytes]) -> Iterable[bytes]:
        return pieces

    def encode(self, chunk: bytes) -> Ids:
        return self._encode(chunk)

    @cached_property
    def _encode(self) -> Callable[[bytes], Ids]:
        table = {word.encode(): id for id, word in enumerate(self._vocabulary.words if self._vocabulary else ())}
        # "=" keeps an id of its own, to find headings with any vocabulary
        table.setdefault(b"=", UNKNOWN_EQUALS)
        if self.name == "whitespace":
            return lambda chunk: np.fromiter(map(table.get, words_and_ends(chunk), repeat(UNKNOWN)), np.int32)

        @lru_cache(_REMEMBERED)
        def codes(word: bytes) -> tuple[int, ...]:
            return tuple(table.get(part.encode(), UNKNOWN) for part in cut_word(word.decode(), self.name))

        return lambda chunk: np.fromiter(chain.from_iterable(map(codes, words_and_ends(chunk))), np.int32)

    def spelled(self, tokens: Iterable[str], at_line_start: bool = True) -> Iterator[bytes]:
        for token in tokens:
            yield b"\n" if token == EOS else token.encode() if at_line_start else b" " + token.encode()
            at_line_start = token == EOS

    @property
    def word_ends(self) -> None:
        return None

    def is_space(self, tokens: Sequence[str]) -> bool:
        return not tokens


def words_and_ends(chunk: bytes) -> list[bytes]:
    # bytes.split knows only ASCII white space, and is the fastest tokenizer
    return chunk.replace(b"\n", b" " + EOS.encode() + b" ").split()


def tokenize(line: str, tokenizer: WordRule) -> list[str]:
    """Cut one line into words, without an `<eos>`; a line end in it is white space.

    "whitespace" cuts at ASCII white space and changes nothing. "words" also lower-cases, and makes every punctuation
    mark and symbol a separate word. An apostrophe, hyphen, full stop or comma between letters or digits does not cut
    (`don't`, `well-known`, `1,000`); `<unk>` and abbreviations such as `e.g.` stay whole. "straight-words" first reads
    ’ (U+2019) as ' and spaces beyond ASCII, such as no-break spaces, as spaces, and drops invisible characters, such as
    soft hyphens, unless the word has no others.

    Raises:
        InputError: The line holds the reserved word `<eos>`.
    """
    words = refuse_reserved(line)
    return words if tokenizer == "whitespace" else [part for word in words for part in cut_word(word, tokenizer)]


def refuse_reserved(line: str) -> list[str]:
    """Return the written words of a line; InputError: one is `<eos>`."""
    words = _WORD.findall(line)
    if EOS in words:
        raise InputError(f"the word {EOS} is reserved for the end of a line; delete it or write it another way")
    return words


def written_words(line: str) -> list[str]:
    return _WORD.findall(line)


def written_spans(line: str) -> list[tuple[int, int]]:
    """Return the start and end of each of `written_words`."""
    return [match.span() for match in _WORD.finditer(line)]


def cut_word(word: str, tokenizer: WordRule) -> list[str]:
    """Cut a string without white space into tokens; `<eos>` stays whole."""
    if tokenizer == "whitespace" or word == EOS:
        return [word]
    if word.isascii() and word.isalnum():  # a short cut for most words
        return [word.lower()]
    if tokenizer == "straight-words" and not word.isascii():
        seen = UNSEEN.sub("", OTHER_SPACE.sub(" ", word.replace("’", "'")))
        word = seen if seen.strip() else word  # every written word has a token
    word = word.lower()
    return _pattern(plain=word.isascii()).findall(word)


def as_in_corpus(words: Sequence[str], corpus: str, vocabulary: Vocabulary) -> list[list[str]]:
    """Return the tokens of each written word of a line, in the conventions of "ptb" or of a "wikitext".

    A line is unchanged if it has a token typical of that corpus (and for PTB no capital but N), or if the vocabulary
    has all its words. In other lines, known words stay, except one with a full stop, which may end the sentence
    (`The man was ill.`: not Illinois).
    """
    fits = corpus != "ptb" or all(word in ("N", word.lower()) for word in words)
    typical = _OF_PTB if corpus == "ptb" else _OF_WIKITEXT
    if (fits and not typical.isdisjoint(words)) or all(word in vocabulary for word in words):
        return [[word] for word in words]
    tokens_by_word = []
    for word in words:
        tokens = [word]
        if word not in vocabulary or (word.endswith(".") and len(word) > 1):
            tokens = _as_ptb(word, vocabulary) if corpus == "ptb" else _as_wikitext(word, vocabulary)
        # an abbreviation that the corpus lacks becomes a word and a full stop
        stops = [t[-1] == "." and t not in vocabulary and t[:-1] in vocabulary for t in tokens]
        cut = [[t[:-1], "."] if stop else [t] for t, stop in zip(tokens, stops, strict=True)]
        tokens_by_word.append([t for part in cut for t in part if t != "." or "." in vocabulary])
    return tokens_by_word if any(tokens_by_word) else [[word] for word in words]  # every line has a token


def _as_ptb(word: str, vocabulary: Vocabulary) -> list[str]:
    """Cut as PTB does: small letters, `does n't`, N for numbers and %, no marks but $, # (£), & and a plural's '."""
    from spanlm.data.wikipedia.text import NUMBER, cut_word

    tokens: list[str] = []
    for part in cut_word(word.replace("%", f" {NUMBER} ").replace("£", "#")):
        is_quote = part == "'" and (word[0] == "'" or not tokens or not tokens[-1].endswith("s"))
        if any(map(str.isalnum, part)) or (part in vocabulary and not is_quote):
            tokens.append(part if part == NUMBER else part.lower())
    return tokens


def _as_wikitext(word: str, vocabulary: Vocabulary) -> list[str]:
    """Cut as WikiText does: separate marks, `well @-@ known`, `1 @,@ 000`, `3 @.@ 5`, `don 't`."""
    from spanlm.data.wikipedia.text import ALONE, normalise

    parts = " ".join(ALONE.findall(normalise(word)))
    parts = re.sub(r"(?<=\d)[.,](?=\d)|(?<=[\w.])-(?=\w)", r" @\g<0>@ ", parts)
    parts = re.sub(r"(?<=\w)('[^\W\d_]+)", lambda end: " " * (end[1] in vocabulary) + end[1], parts)
    return written_words(re.sub(r"[&:/]", r" \g<0> ", parts))


@cache
def _pattern(plain: bool) -> re.Pattern[str]:
    """Compile the pattern of words; `plain`: for ASCII, which is quick, since the other scans all of Unicode."""
    # \w lacks combining marks, so it alone would cut words of many scripts in two
    others = map(chr, () if plain else range(0x300, _MARKS_END))
    marks = "".join(sign for sign in others if unicodedata.category(sign).startswith("M"))
    letter = r"\w" if plain else rf"[\w{_JOINERS}{marks}\U000e0100-\U000e01ef]"
    return re.compile(rf"{re.escape(UNK)}|(?:[^\W\d_]\.){{2,}}(?!{letter})|{letter}+(?:['’.,\-]{letter}+)*|[^{_SPACE}]")


def into_sentences(ids: Ids, documents: Positions, vocabulary: Vocabulary) -> tuple[Ids, Positions]:
    """Insert an `<eos>` after each sentence; return the new ids and the new starts of documents with words."""
    eos, words, line = vocabulary.eos_id, vocabulary.words, SentenceEnds(vocabulary)
    inserted = list[int]()
    for begin in range(0, len(ids), _BLOCK):  # Python integers take memory: only a block at a time
        for place, id in enumerate(ids[begin : begin + _BLOCK].tolist(), begin):
            if id == eos:
                line = SentenceEnds(vocabulary)
            elif line.ends_before(words[id]):
                inserted.append(place)
    longer = np.insert(ids, inserted, eos)
    starts = documents + np.searchsorted(inserted, documents)
    ends = longer == eos
    needed = ~(ends & np.append(True, ends[:-1]))
    starts = np.unique((np.cumsum(needed) - needed)[starts])
    shorter = longer[needed]
    return shorter, starts[starts < len(shorter)]


class SentenceEnds:
    """Finds word by word where the sentences of one line end.

    A word outside the vocabulary counts as `<unk>`, which is no mark, and may begin a sentence.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._quotes = 0
        # closing marks since the last sentence mark; None after any other word
        self._closers: int | None = None

    def ends_before(self, word: str) -> bool:
        """Read the line's next word; return whether a sentence ended before it."""
        if self._closers is None and word not in _SENTENCE_MARKS:  # most words
            return False
        word = word if word in self._vocabulary else UNK
        mark = word in MARKS
        closes = word in CLOSERS or (word == QUOTE and self._quotes % 2 == 1)
        ended = self._closers is not None and not (mark or closes or word[:1].islower())
        if mark:
            self._closers = 0
        elif closes and self._closers is not None and self._closers < MOST_CLOSERS:
            self._closers += 1
        else:
            self._closers = None
        self._quotes += word == QUOTE
        return ended
