"""The pages of a source: JSON lines of WikiExtractor or a MediaWiki dump, decompressed and read as a stream.

Memory is bounded for every file. A damaged source yields its pages up to the damage, then an error that names the
byte in the decompressed text.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from spanlm.data.packed import unpacked
from spanlm.errors import InputError, installation
from spanlm.store.files import expanded

PAGE_LIMIT = 1 << 22
"""Bytes of a JSON line, or characters of a page's wikitext; the longest real articles have half of it."""

_KNOWN = re.compile(r".*\.(?:jsonl?|xml|ndjson)(?:[.-].*)?\.?(?:gz|bz2)?|wiki_\d+(?:\.gz|\.bz2)?", re.I)
_ACCEPTED = "a source is JSON lines of WikiExtractor (.jsonl, .jsonl.gz) or a MediaWiki dump (.xml, .xml.bz2, .xml.gz)"
_BOM = b"\xef\xbb\xbf"
_XML = (b"<", b"\xff\xfe<", b"\xfe\xff\0<")  # in UTF-8, or in UTF-16
_FIELDS = {"id": str | int, "title": str, "text": str}
# pairs of parent and element with a page's fields; keys of the namespaces whose links show nothing
_ELEMENTS = {("page", "title"), ("page", "ns"), ("page", "id"), ("revision", "text")}
_SILENT = ("6", "14")
# limit of nested elements; a dump has 5
_DEEPEST = 50


class Page(NamedTuple):
    """An article: plain text with its categories or, with `silent`, wikitext, which contains its categories.

    `silent` has the names, in small letters, of the dump's namespaces whose links show nothing.
    """

    id: str
    title: str
    text: str
    categories: tuple[str, ...] = ()
    silent: tuple[str, ...] | None = None


Record = Page | str | InputError
"""A page, the reason why a page is not an article, or, last, why the rest of the source cannot be read."""


def _damaged(path: Path, offset: int, line: int, reason: str) -> InputError:
    return InputError(f"{path}: damaged at byte {offset} of its text (line {line}): {reason}. Fetch it again")


@dataclass(eq=False)
class Source:
    """A file, either an XML dump or JSON lines; `position` counts the bytes read."""

    path: Path
    is_dump: bool
    position: int = 0

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    @cached_property
    def sha256(self) -> str:
        return digest_of(self.path)

    def records(self) -> Iterator[Record]:
        try:
            yield from DumpReader(self.path).pages(self.chunks()) if self.is_dump else self._lines(self.chunks())
        except InputError as error:
            yield error

    def chunks(self) -> Iterator[bytes]:
        """Yield the decompressed text in blocks; InputError: it is cut off or damaged, and where.

        The first bytes of the file show whether it is gzip, bzip2 (any number of streams) or plain.
        """
        offset, line = 0, 1
        with self.path.open("rb") as file:
            start = file.peek(3)
            suffix = ".gz" if start.startswith(b"\x1f\x8b") else ".bz2" if start.startswith(b"BZh") else ""
            try:
                for chunk in unpacked(file, suffix):
                    self.position = file.tell()
                    yield chunk
                    offset, line = offset + len(chunk), line + chunk.count(b"\n")
            except (zlib.error, EOFError, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:  # the disk's, not the decompressor's
                    raise
                raise _damaged(self.path, offset, line, f"the compressed data is damaged ({error})") from error

    def _lines(self, chunks: Iterable[bytes]) -> Iterator[Record]:
        """Yield the lines that are not blank; a line above the limit is never held whole."""
        offset, number, dropped, rest = 0, 1, 0, b""
        for chunk in chain(chunks, [b"\n"]):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if dropped + len(line) > PAGE_LIMIT:
                    yield "oversized"
                elif line.strip():
                    yield self._article(line, offset, number)
                offset, number, dropped = offset + dropped + len(line) + 1, number + 1, 0
            if dropped + len(rest) > PAGE_LIMIT:
                dropped, rest = dropped + len(rest), b""

    def _article(self, line: bytes, offset: int, number: int) -> Record:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _damaged(self.path, offset, number, f"not JSON ({error})") from error
        if not isinstance(fields, dict) or not all(isinstance(fields.get(x), kind) for x, kind in _FIELDS.items()):
            if number > 1:  # after others that are articles
                return "incomplete"
            raise InputError(f"{self.path}, line {number}: no object with an id, a title and a text; {_ACCEPTED}")
        values = [fields.get(name) or [] for name in ("category", "categories")]
        names = (str(name) for value in values for name in (value if isinstance(value, list) else [value]))
        # JSON can hold halves of surrogate pairs, which no file can
        id, title = (str(fields[name]).encode(errors="ignore").decode() for name in ("id", "title"))
        return Page(" ".join(id.split()), title, fields["text"], tuple(names))


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_sources(paths: Sequence[Path]) -> list[Source]:
    """Return the sources at these paths; files of a folder come in the order of their names.

    Raises:
        InputError: A file is missing, named twice or of another format, or a library is not installed.
    """
    for library in ("sentencex", "mwparserfromhell"):
        if importlib.util.find_spec(library) is None:
            raise InputError(f"a corpus of Wikipedia needs {library}: {installation('wiki')}")
    files: dict[Path, Path] = {}
    for path in map(expanded, paths):
        inside = sorted(file for file in path.rglob("*") if file.is_file() and _KNOWN.fullmatch(file.name))
        if not inside and not path.is_file():
            problem = "a folder without a file to read" if path.is_dir() else "no such file or folder"
            raise InputError("sources", path, f"{problem}; {_ACCEPTED}")
        for file in inside or [path]:
            if file.resolve() in files:
                raise InputError("sources", file, "comes twice; name each file once")
            files[file.resolve()] = file
    return [_source(file) for file in files.values()]


def _source(path: Path) -> Source:
    """Recognise a source by its first bytes; refuse other files at once."""
    try:
        start = next(Source(path, is_dump=False).chunks(), b"").removeprefix(_BOM).lstrip()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if not start.startswith((b"{", *_XML)):
        problem = "neither JSON lines nor XML" if start else "the file is empty"
        raise InputError(f"{path}: {problem}; {_ACCEPTED}")
    source = Source(path, start.startswith(_XML))
    first = next(source.records(), None)
    if isinstance(first, InputError):
        raise first
    return source


class DumpReader:
    """Reads the pages of one dump; holds at most a chunk and one page, up to the limit."""

    def __init__(self, path: Path) -> None:
        self._file = path
        self._path: list[str] = []
        self._fields: dict[str, str] = {}
        self._silent: tuple[str, ...] = ()
        self._text: list[str] | None = None
        self._size = 0
        self._ready: list[Page | str] = []
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters

    def pages(self, chunks: Iterable[bytes]) -> Iterator[Page | str]:
        """Yield each page in order, or the reason why it is not an article; InputError: the XML is broken."""
        fed = 0
        try:
            for chunk in chunks:
                self._parser.Parse(chunk, False)
                yield from self._ready
                self._ready.clear()
                fed += len(chunk)
                if fed - self._parser.CurrentByteIndex > PAGE_LIMIT:
                    raise self._damage(f"a tag or comment of more than {PAGE_LIMIT:,} bytes")
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            yield from self._ready
            raise self._damage(f"not well-formed XML ({expat.ErrorString(error.code)})") from error

    def _damage(self, reason: str) -> InputError:
        return _damaged(self._file, self._parser.CurrentByteIndex, self._parser.CurrentLineNumber, reason)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        parent = self._path[-1] if self._path else ""
        if not self._path and name != "mediawiki":
            raise InputError(f"{self._file}: not a dump of a wiki: its root is <{name}>, not <mediawiki>; {_ACCEPTED}")
        if len(self._path) == _DEEPEST:
            raise self._damage(f"<{name}> is inside {_DEEPEST} other elements, where a dump of a wiki has 4")
        self._path.append(name)
        if name == "redirect":
            self._fields[name] = parent
        elif name == "namespace":
            silent = attributes.get("key") in _SILENT and len(self._silent) < len(_SILENT)
            self._text, self._size = [] if silent else None, 0
        elif (parent, name) in _ELEMENTS and not (name == "text" and self._reason):
            self._text, self._size = [], 0

    def _characters(self, text: str) -> None:
        self._size += len(text)
        if self._text is not None and self._size <= PAGE_LIMIT:
            self._text.append(text)

    def _end(self, name: str) -> None:
        self._path.pop()
        if self._text is not None:
            text, self._text = "".join(self._text), None
            if name == "namespace":
                self._silent = tuple(sorted({*self._silent, text.lower()}))
            else:
                self._fields["oversized" if self._size > PAGE_LIMIT else name] = text
        if name == "page":
            id, title, text = (self._fields.get(field, "") for field in ("id", "title", "text"))
            self._ready.append(self._reason or Page(id.strip(), title.strip(), text, silent=self._silent))
            self._fields = {}

    @property
    def _reason(self) -> str | None:
        """Why the page, as far as it was read, is not an article."""
        if self._fields.get("ns", "0").strip() != "0":
            return "namespace"
        return next((reason for reason in ("oversized", "redirect") if reason in self._fields), None)
