"""Which files are read, and what kind they are: their first bytes say, not their names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spanlm.data.wikipedia.articles import json_problem
from spanlm.data.wikipedia.markup import require_parser
from spanlm.data.wikipedia.pieces import ARTICLE_LIMIT, OVERSIZED, Page, Record, Skipped
from spanlm.data.wikipedia.stream import ByteStream, Damage
from spanlm.data.wikipedia.xml_dump import DumpReader
from spanlm.errors import InputError
from spanlm.store.files import expanded

Kind = Literal["json", "xml"]
# of the records that a worker gets at once
CHUNK_BYTES = 1 << 19
_KNOWN = re.compile(r".*\.(?:jsonl?|xml|ndjson)(?:[.-].*)?\.?(?:gz|bz2)?|wiki_\d+(?:\.gz|\.bz2)?", re.I)
_TITLE = re.compile(rb'"title":\s*+"((?:[^"\\]|\\.)*+)"')
_BOM = b"\xef\xbb\xbf"
_XML = (b"<", b"\xff\xfe<", b"\xfe\xff\0<")  # UTF-8, or UTF-16, which XML may be in, too
_ACCEPTED = "JSON lines of WikiExtractor (.jsonl, .jsonl.gz) or a MediaWiki XML dump (.xml, .xml.bz2, .xml.gz)"


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read.

    Attributes:
        path: The file.
        kind: "json" or "xml".
    """

    path: Path
    kind: Kind


def find_sources(paths: Sequence[Path]) -> list[Source]:
    """Return the files that are meant, those of a folder in the order of their names.

    Raises:
        InputError: There is no such file, a folder has none, a file comes twice, is neither JSON lines of
            articles nor XML, or is XML and mwparserfromhell is not installed.
    """
    files = [file for path in paths for file in _files(expanded(path))]
    seen: set[Path] = set()
    for file in files:
        if file.resolve() in seen:
            raise InputError(f"--source={file}: comes twice; name each file once")
        seen.add(file.resolve())
    sources = [Source(file, _kind(file)) for file in files]
    if any(source.kind == "xml" for source in sources):
        require_parser()
    return sources


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


def _kind(path: Path) -> Kind:
    """Tell what a file is by its first record."""
    with ByteStream(path) as stream:
        try:
            start = next(stream.chunks(), b"").removeprefix(_BOM).lstrip()
        except Damage as damage:
            raise InputError(f"{path}: {damage}; nothing of it can be read: fetch it again") from damage
        if start.startswith(_XML):
            DumpReader(stream).check(start)
            return "xml"
    if not start:
        raise InputError(f"{path}: the file is empty; a source is {_ACCEPTED}")
    if not start.startswith(b"{"):
        raise InputError(f"{path}: neither JSON lines nor XML; a source is {_ACCEPTED}")
    line, end, _ = start.partition(b"\n")
    try:
        problem = json_problem(json.loads(line)) if end else None
    except (ValueError, RecursionError):
        problem = None  # damaged, which is told with its place when it is read
    if problem is not None:
        raise InputError(f"{path}, line 1: {problem}; a source is {_ACCEPTED}")
    return "json"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one source that a worker gets at once.

    Attributes:
        records: Lines or pages.
        silent: What the dump has told so far of its namespaces.
    """

    records: tuple[Record | Page | Skipped, ...]
    silent: tuple[str, ...] = ()


def read_chunks(stream: ByteStream, kind: Kind) -> Iterator[Chunk]:
    """Cut a source into chunks of whole records, in order; where they are cut depends on the source alone.

    Raises:
        InputError: The source is XML, but no dump of a wiki.
        Damage: The source is not readable any further; all that was before has been given out.
    """
    reader = DumpReader(stream) if kind == "xml" else None
    records: Iterator[Record | Page | Skipped] = read_lines(stream) if reader is None else reader.pages()
    waiting: list[Record | Page | Skipped] = []
    size = 0

    def chunk() -> Chunk:
        return Chunk(tuple(waiting), () if reader is None else tuple(sorted(reader.silent)))

    try:
        for record in records:
            waiting.append(record)
            size += len(repr(record))
            if size >= CHUNK_BYTES:
                yield chunk()
                waiting, size = [], 0
    except Damage:
        if waiting:
            yield chunk()
        raise
    if waiting:
        yield chunk()


def read_lines(stream: ByteStream) -> Iterator[Record | Skipped]:
    """Give out the lines that are not blank, unread; of one above the limit, no more than the limit is held.

    Raises:
        Damage: The file is not readable any further; the lines before have been given out.
    """
    offset, number, size = 0, 1, 0
    held: list[bytes] = []
    for chunk in stream.chunks():
        for at, part in enumerate(chunk.split(b"\n")):
            if at:
                yield from _record(offset, number, size, held)
                offset, number, size, held = offset + size + 1, number + 1, 0, []
            if size <= ARTICLE_LIMIT:
                held.append(part)
            size += len(part)
    yield from _record(offset, number, size, held)


def _record(offset: int, number: int, size: int, held: list[bytes]) -> Iterator[Record | Skipped]:
    content = b"".join(held)
    if size > ARTICLE_LIMIT:
        title = _TITLE.search(content)
        yield Skipped(OVERSIZED, title=title[1].decode("utf-8", "replace") if title else f"line {number}")
    elif content.strip():
        yield Record(offset, number, content)
