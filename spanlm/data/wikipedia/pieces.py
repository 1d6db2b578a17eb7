"""Some articles cut into words, as a worker hands them over and as they wait on the disk for the vocabulary."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field


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


@dataclass(frozen=True, slots=True)
class Skipped:
    """A page that is no article, or not one that was asked for.

    Attributes:
        reason: Why, in a word.
        category: One that it has, if it was skipped for having none that was asked for.
    """

    reason: str
    category: str = ""


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

    @classmethod
    def of(cls, entries: Iterable[tuple[Entry, str]]) -> Piece:
        """Put entries and their texts together."""
        found = list(entries)
        return cls(tuple(entry for entry, _ in found), "".join(text for _, text in found))

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
