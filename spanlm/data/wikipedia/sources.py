"""Which files are read, and what is in them: their bytes, decompressed while they are read, as records in batches."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal
from xml.parsers import expat

from spanlm.data.wikipedia.articles import (
    ARTICLE_LIMIT,
    ARTICLES,
    OVERSIZED,
    Damage,
    Line,
    Page,
    Record,
    Skipped,
    json_problem,
)
from spanlm.errors import InputError
from spanlm.store.files import expanded

CHUNK_BYTES = 1 << 18
# of the records that a worker gets at once
BATCH_BYTES = 1 << 19
_KNOWN = re.compile(r".*\.(?:jsonl?|xml|ndjson)(?:[.-].*)?\.?(?:gz|bz2)?|wiki_\d+(?:\.gz|\.bz2)?", re.I)
_TITLE = re.compile(rb'"title":\s*+"((?:[^"\\]|\\.)*+)"')
_BOM = b"\xef\xbb\xbf"
_XML = (b"<", b"\xff\xfe<", b"\xfe\xff\0<")  # UTF-8, or UTF-16, which XML may be in, too
_ACCEPTED = "JSON lines of WikiExtractor (.jsonl, .jsonl.gz) or a MediaWiki XML dump (.xml, .xml.bz2, .xml.gz)"
_ROOT = "mediawiki"
# what a page's fields are called, by the names of the elements they are in
_FIELDS = {("page", "title"), ("page", "ns"), ("page", "id"), ("revision", "text")}
# namespaces whose links show no text: files and categories
_SILENT = ("6", "14")
# of elements in elements: a dump has 5
_DEEPEST = 50


class ByteStream:
    """Reads a file once; whether it is gzip, bzip2 (of any number of streams) or plain, its first bytes say.

    Attributes:
        path: The file.
        position: How many of its bytes were read.
        offset: How many bytes of text were given out.
        line: The line that the next byte is in, from 1.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = self.offset = 0
        self.line = 1

    def chunks(self) -> Iterator[bytes]:
        """Give out the text in pieces of at most `CHUNK_BYTES`.

        Raises:
            InputError: The file cannot be opened.
            Damage: The compressed data is cut off or wrong; what was before it has been given out.
        """
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror or error})") from error
        with file:
            start = file.peek(3)
            blocks = iter(lambda: file.read(CHUNK_BYTES), b"")
            if start.startswith(b"\x1f\x8b"):
                unpacked = gzip.GzipFile(fileobj=file)
                blocks = iter(lambda: unpacked.read1(CHUNK_BYTES), b"")
            elif start.startswith(b"BZh"):
                blocks = _bunzip(blocks)
            try:
                for chunk in blocks:
                    self.position = file.tell()
                    yield chunk
                    self.offset += len(chunk)
                    self.line += chunk.count(b"\n")
            except (zlib.error, EOFError, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:  # the disk's, not the decompressor's
                    raise
                raise Damage(self.offset, self.line, f"the compressed data is damaged ({error})") from error


def _bunzip(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress; `bz2.BZ2File` would take a damaged stream that follows a whole one for the end."""
    member = bz2.BZ2Decompressor()
    for block in blocks:
        while block:
            if member.eof:
                member = bz2.BZ2Decompressor()
            if chunk := member.decompress(block, CHUNK_BYTES):
                yield chunk
            while not member.eof and not member.needs_input:
                yield member.decompress(b"", CHUNK_BYTES)
            block = member.unused_data if member.eof else b""
    if not member.eof:
        raise EOFError("it ends too early")


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read, and whether it holds lines of JSON or an XML dump."""

    path: Path
    kind: Literal["json", "xml"]


def find_sources(paths: Sequence[Path]) -> list[Source]:
    """Return the files that are meant, those of a folder in the order of their names.

    Raises:
        InputError: There is no such file, a folder has none, a file comes twice, or is neither JSON lines of articles
            nor a dump; or a library is not installed.
    """
    files = [file for path in paths for file in _files(expanded(path))]
    seen: set[Path] = set()
    for file in files:
        if file.resolve() in seen:
            raise InputError(f"--source={file}: comes twice; name each file once")
        seen.add(file.resolve())
    for library in ("sentencex", "mwparserfromhell"):
        if importlib.util.find_spec(library) is None:
            raise InputError(f'a corpus of Wikipedia needs {library}: pip install "spanlm[wiki]"')
    return [Source(file, _kind(file)) for file in files]


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.is_file() and _KNOWN.fullmatch(file.name))
        if not found:
            raise InputError(f"--source={path}: a folder without a file to read; a source is {_ACCEPTED}")
        return found
    if not path.exists():
        raise InputError(f"--source={path}: no such file or folder; check the path")
    if not path.is_file():
        raise InputError(f"--source={path}: not a regular file; a source is {_ACCEPTED}")
    return [path]


def _kind(path: Path) -> Literal["json", "xml"]:
    """Tell what a file is by its first record."""
    try:
        start = next(ByteStream(path).chunks(), b"").removeprefix(_BOM).lstrip()
    except Damage as damage:
        raise InputError(f"{path}: {damage}; nothing of it can be read: fetch it again") from damage
    if start.startswith(_XML):
        with suppress(Damage):  # told with its place when it is read
            next(DumpReader(path, set()).pages([start]), None)
        return "xml"
    if not start.startswith(b"{"):
        found = "neither JSON lines nor XML" if start else "the file is empty"
        raise InputError(f"{path}: {found}; a source is {_ACCEPTED}")
    line, end, _ = start.partition(b"\n")
    try:
        problem = json_problem(json.loads(line)) if end else None
    except (ValueError, RecursionError):
        problem = None  # damaged, which is told with its place when it is read
    if problem is not None:
        raise InputError(f"{path}, line 1: {problem}; a source is {_ACCEPTED}")
    return "json"


def read_batches(source: Source, stream: ByteStream, silent: set[str]) -> Iterator[tuple[Record, ...]]:
    """Give out all records of a source, in order, in one batch or more; the last says where it is damaged, if it is.

    Args:
        source: What the stream is of.
        stream: Is read.
        silent: Gets the names, in small letters, of the dump's namespaces whose links show nothing.
    """
    xml = source.kind == "xml"
    records = DumpReader(source.path, silent).pages(stream.chunks()) if xml else read_lines(stream)
    waiting: list[Record] = []
    size = 0
    try:
        for record in records:
            waiting.append(record)
            size += len(repr(record))
            if size >= BATCH_BYTES:
                yield tuple(waiting)
                waiting, size = [], 0
    except Damage as damage:
        waiting.append(damage)
    yield tuple(waiting)


def read_lines(stream: ByteStream) -> Iterator[Line | Skipped]:
    """Give out the lines that are not blank, unread; of one above the limit, no more than the limit is held.

    Raises:
        Damage: The file is not readable any further; the lines before have been given out.
    """
    offset, number, size = 0, 1, 0
    held: list[bytes] = []
    for chunk in chain(stream.chunks(), [b"\n"]):
        for at, part in enumerate(chunk.split(b"\n")):
            if at:
                content = b"".join(held)
                if size > ARTICLE_LIMIT:
                    title = _TITLE.search(content)
                    name = title[1].decode("utf-8", "replace") if title else f"line {number}"
                    yield Skipped(OVERSIZED, title=name)
                elif content.strip():
                    yield Line(offset, number, content)
                offset, number, size, held = offset + size + 1, number + 1, 0, []
            if size <= ARTICLE_LIMIT:
                held.append(part)
            size += len(part)


class DumpReader:
    """Reads pages of one dump in bounded memory: never more than one, up to its limit, beyond a chunk.

    Args:
        path: The file, for messages.
        silent: Gets the names, in small letters, of the namespaces of files and categories in this dump's language.
    """

    def __init__(self, path: Path, silent: set[str]) -> None:
        self.silent = silent
        self._file = path
        self._path: list[str] = []
        self._text: list[str] | None = None
        self._fields: dict[str, str] = {}
        self._redirect = False
        self._size = 0
        self._ready: list[Page | Skipped] = []
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters

    def pages(self, chunks: Iterable[bytes]) -> Iterator[Page | Skipped]:
        """Give out all pages in order, those that are no articles without their text.

        Raises:
            InputError: This is XML, but no dump of a wiki.
            Damage: The file is not readable any further; the pages before have been given out.
        """
        fed = 0
        try:
            for chunk in chunks:
                self._parser.Parse(chunk, False)
                yield from self._ready
                self._ready.clear()
                fed += len(chunk)
                if fed - self._parser.CurrentByteIndex > ARTICLE_LIMIT:
                    raise self._damage(f"a tag or comment of more than {ARTICLE_LIMIT:,} bytes")
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            yield from self._ready
            raise self._damage(f"not well-formed XML ({expat.ErrorString(error.code)})") from error

    def _damage(self, reason: str) -> Damage:
        return Damage(self._parser.CurrentByteIndex, self._parser.CurrentLineNumber, reason)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        parent = self._path[-1] if self._path else ""
        if not self._path and name != _ROOT:
            raise InputError(
                f"{self._file}: not a dump of a wiki; its root element is <{name}> where a MediaWiki export has "
                f"<{_ROOT}>"
            )
        if len(self._path) == _DEEPEST:
            raise self._damage(f"<{name}> is inside {_DEEPEST} other elements, where a dump of a wiki has 4")
        self._path.append(name)
        if name == "page":
            self._fields, self._redirect = {}, False
        elif name == "redirect" and parent == "page":
            self._redirect = True
        elif name == "namespace":
            if attributes.get("key") in _SILENT and len(self.silent) < len(_SILENT):
                self._text, self._size = [], 0
        elif (parent, name) in _FIELDS:
            other = self._redirect or self._fields.get("ns", ARTICLES) != ARTICLES
            if name != "text" or not other:
                self._text, self._size = [], 0

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
            id, title, text = (self._fields.get(field, "") for field in ("id", "title", "text"))
            namespace = self._fields.get("ns", ARTICLES).strip()
            page = Page(id.strip(), title.strip(), namespace, self._redirect, text)
            self._ready.append(Skipped(OVERSIZED, title=page.title[:80]) if "oversized" in self._fields else page)
            self._fields = {}
