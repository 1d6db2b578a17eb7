"""What is read from sources and sent to workers."""

from __future__ import annotations

from dataclasses import dataclass


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

    @property
    def size(self) -> int:
        """Bytes, as chunks count them."""
        return len(self.content)


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

    @property
    def size(self) -> int:
        """Bytes, as chunks count them; about so many."""
        return len(self.text)
