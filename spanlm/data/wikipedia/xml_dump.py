"""Pages of a MediaWiki XML dump, read in bounded memory: never more than one page, up to its limit, beyond a chunk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from xml.parsers import expat

from spanlm.data.wikipedia.pieces import ARTICLE_LIMIT, OVERSIZED, Page, Skipped
from spanlm.data.wikipedia.stream import ByteStream, Damage
from spanlm.errors import InputError

ROOT = "mediawiki"
ARTICLES = "0"
# what a page's fields are called, by the names of the elements they are in
_FIELDS = {("page", "title"), ("page", "ns"), ("page", "id"), ("revision", "text")}
# namespaces whose links show no text: files and categories
_SILENT = ("6", "14")
# of elements in elements: a dump has 5
_DEEPEST = 50


class DumpReader:
    """Reads one dump.

    Args:
        stream: The dump.

    Attributes:
        silent: Names, in small letters, of the namespaces of files and categories in this dump's language.
    """

    def __init__(self, stream: ByteStream) -> None:
        self.silent: set[str] = set()
        self._stream = stream
        self._path: list[str] = []
        self._text: list[str] | None = None
        self._fields: dict[str, str] = {}
        self._redirect = False
        self._size = self._fed = 0
        self._ready: list[Page | Skipped] = []
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters

    def check(self, start: bytes) -> None:
        """Look at the first bytes alone.

        Raises:
            InputError: This is XML, but no dump of a wiki.
        """
        with contextlib.suppress(expat.ExpatError, Damage):  # told with its place when it is read
            self._parser.Parse(start, False)

    def pages(self) -> Iterator[Page | Skipped]:
        """Give out all pages in order, those that are no articles without their text.

        Raises:
            InputError: This is XML, but no dump of a wiki.
            Damage: The file is not readable any further; the pages before have been given out.
        """
        try:
            for chunk in self._stream.chunks():
                self._parser.Parse(chunk, False)
                yield from self._taken()
                self._fed += len(chunk)
                if self._fed - self._parser.CurrentByteIndex > ARTICLE_LIMIT:
                    raise self._damage(f"a tag or comment of more than {ARTICLE_LIMIT:,} bytes")
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            yield from self._taken()
            raise self._damage(f"not well-formed XML ({expat.ErrorString(error.code)})") from error

    def _damage(self, reason: str) -> Damage:
        return Damage(self._parser.CurrentByteIndex, self._parser.CurrentLineNumber, reason)

    def _taken(self) -> list[Page | Skipped]:
        pages, self._ready = self._ready, []
        return pages

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        parent = self._path[-1] if self._path else ""
        if not self._path and name != ROOT:
            raise InputError(
                f"{self._stream.path}: not a dump of a wiki; its root element is <{name}> where a MediaWiki export has "
                f"<{ROOT}>"
            )
        if len(self._path) == _DEEPEST:
            raise self._damage(f"<{name}> is inside {_DEEPEST} other elements, where a dump of a wiki has 4")
        self._path.append(name)
        if name == "page":
            self._fields, self._redirect = {}, False
        elif name == "redirect" and parent == "page":
            self._redirect = True
        elif (
            attributes.get("key") in _SILENT and len(self.silent) < len(_SILENT)
            if name == "namespace"
            else (parent, name) in _FIELDS and (name != "text" or self._wanted)
        ):
            self._text, self._size = [], 0

    @property
    def _wanted(self) -> bool:
        return self._fields.get("ns", ARTICLES) == ARTICLES and not self._redirect

    def _characters(self, text: str) -> None:
        self._size += len(text)
        if self._text is not None and self._size <= ARTICLE_LIMIT:
            self._text.append(text)

    def _end(self, name: str) -> None:
        self._path.pop()
        if self._text is not None:
            text, self._text = "".join(self._text), None
            if name == "namespace":
                self.silent.add(text.lower())
            else:
                self._fields[name] = text
                if self._size > ARTICLE_LIMIT:
                    self._fields["oversized"] = name
        if name == "page":
            page = Page(
                id=self._fields.get("id", "").strip(),
                title=self._fields.get("title", "").strip(),
                namespace=self._fields.get("ns", ARTICLES).strip(),
                redirect=self._redirect,
                text=self._fields.get("text", ""),
            )
            self._ready.append(Skipped(OVERSIZED, title=page.title[:80]) if "oversized" in self._fields else page)
            self._fields = {}
