"""What goes to workers, and what they make of it: articles cut into words, kept on the disk for the vocabulary."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

ARTICLE_LIMIT = 1 << 22
"""Bytes of a line of JSON, or characters of a page's wikitext; the longest real articles have half of it."""


@dataclass(frozen=True, slots=True)
class Record:
    """A line of JSON lines, not looked into yet.

    Attributes:
        offset: Its first byte in the text of its source.
        line: Its number, from 1.
        content: Its bytes.
    """

    offset: int
    line: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a MediaWiki dump.

    Attributes:
        id: The page's number, as it is written.
        title: Its title.
        namespace: The number of its namespace; that of articles is 0.
        redirect: Whether it only points to another page.
        text: Its wikitext.
    """

    id: str
    title: str
    namespace: str
    redirect: bool
    text: str


@dataclass(frozen=True, slots=True)
class Article:
    """An article that was cut into words.

    Attributes:
        id: What the source calls it.
        title: Its title.
        sentences: How many it has.
        words: How many it has.
        left_out: Words of its text that are no prose, by kind of line, as white space separates them.
    """

    id: str
    title: str
    sentences: int
    words: int
    left_out: dict[str, int] = field(default_factory=dict)


OVERSIZED = "oversized"
"""Skipped: it is longer than any article."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A page that is no article, or not one that was asked for.

    Attributes:
        reason: Why, in a word.
        category: One that it has, if it was skipped for having none that was asked for.
        title: Its title, if it is an article that could not be read.
    """

    reason: str
    category: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Bad:
    """A line that could not be read.

    Attributes:
        offset: Its first byte in the text of its source.
        line: Its number.
        reason: What is wrong.
        foreign: Whether it can be read but is something else than an article.
    """

    offset: int
    line: int
    reason: str
    foreign: bool


Entry = Article | Skipped | Bad
_KINDS: dict[str, type[Entry]] = {"article": Article, "skipped": Skipped, "bad": Bad}
_NAMES = {kind: name for name, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class Piece:
    """Entries in the order of their source, and the sentences of those that are articles, one a line.

    Attributes:
        entries: What was found.
        text: The sentences of all articles, one after the other.
    """

    entries: tuple[Entry, ...]
    text: str

    def texts(self) -> Iterator[tuple[Article, str]]:
        """Give out every article with its own sentences."""
        begin = 0
        for entry in self.entries:
            if isinstance(entry, Article):
                end = begin
                for _ in range(entry.sentences):
                    end = self.text.index("\n", end) + 1
                yield entry, self.text[begin:end]
                begin = end

    def encode(self) -> bytes:
        """Return a line of JSON and the text."""
        header = {
            "bytes": len(text := self.text.encode()),
            "entries": [{"kind": _NAMES[type(entry)], **asdict(entry)} for entry in self.entries],
        }
        return json.dumps(header, ensure_ascii=False).encode() + b"\n" + text

    @classmethod
    def decode(cls, content: bytes) -> Piece | None:
        """Return what `encode` wrote; None if it is not whole."""
        line, _, text = content.partition(b"\n")
        try:
            header = json.loads(line)
            entries = tuple(_KINDS[entry.pop("kind")](**entry) for entry in header["entries"])
        except (ValueError, KeyError, TypeError):
            return None
        return cls(entries, text.decode()) if header["bytes"] == len(text) else None
