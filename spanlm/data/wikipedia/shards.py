"""The first pass: every source cut into words by all processes, and kept on the disk as a shard.

A shard is a file of articles, a JSON line each, and a manifest that is written when it is whole: its digest and what
was skipped. Its name is the SHA-256 of all that it was made from, the sources before it too, since an article that
comes twice counts once. So a build that was stopped or killed goes on from its whole shards; a source that it was
reading is read again from its start.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import multiprocessing
import platform
import unicodedata
from array import array
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from spanlm.data.wikipedia.articles import (
    ARTICLE_LIMIT,
    MALFORMED,
    OVERSIZED,
    VERSION,
    Article,
    Cutter,
    Damage,
    Entry,
    Record,
    WikipediaConfig,
)
from spanlm.data.wikipedia.sources import ByteStream, Source, read_batches
from spanlm.errors import InputError, RunError
from spanlm.store import VERSION as PACKAGE_VERSION
from spanlm.store.files import replacing
from spanlm.store.process import end_with_parent, starting

REPEATED = "repeated"
"""Skipped: an article with this id came before."""

_EXAMPLES = 5
_UNREAD = {
    OVERSIZED: f"longer than {ARTICLE_LIMIT:,} bytes",
    MALFORMED: "its markup is nested too deeply, or opened without an end too often",
}
# items under way for each process: one at work, one waiting
_AHEAD = 2

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build is, in bytes of the sources at first, then in articles; `reused` sources were read before."""

    phase: Literal["cutting", "counting", "writing"]
    done: int
    total: int
    articles: int
    words: int
    reused: int


Report = Callable[[Progress], None]
"""Called often; what it raises ends the build, and whole shards are kept."""


@dataclass
class Shard:
    """What became of a source.

    Attributes:
        source: What `corpus.json` says of it: file, bytes, sha256, damage (where it stops being readable and why),
            damaged_lines (how many were left out).
        skipped: Records that are no articles of the corpus, by reason.
        left_out: Words of its articles that are no prose, by kind.
        unread: Its first articles that could not be read, and why.
        categories: Some of those that its articles have, where none was asked for.
        digest: SHA-256 of the file of its articles.
    """

    source: dict[str, Any]
    skipped: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    unread: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    digest: str = ""


class _Batch(NamedTuple):
    """Records on their way to a worker, the number of their source, and how far that was read."""

    number: int
    position: int
    cutter: Cutter
    records: tuple[Record, ...] = ()


def _cut(batch: _Batch) -> list[Entry]:
    return list(map(batch.cutter.cut, batch.records))


class Shards:
    """All sources, cut into words.

    Args:
        config: What is asked for.
        sources: What is read.
        folder: Where shards are kept.
        report: Is told of the progress.

    Attributes:
        every: The shards, in the order of the sources.
        lots: For every article, its lot for the split.
        words: For every article, its words.
        reused: How many shards an earlier start had made.
    """

    def __init__(self, config: WikipediaConfig, sources: list[Source], folder: Path, report: Report) -> None:
        self.every: list[Shard] = []
        self.lots = array("Q")
        self.words = array("q")
        self.reused = 0
        self._config = config
        self._sources = sources
        self._files: list[Path] = []
        self._folder = folder
        self._report = report
        self._ids: set[int] = set()
        self._total = 0
        self._begins = [0]
        for source in sources:
            self._begins.append(self._begins[-1] + source.path.stat().st_size)

    def fill(self) -> None:
        """Make the shards that are not there.

        Raises:
            InputError: A source is damaged or holds something else.
            RunError: A process was ended from outside.
        """
        read = 0
        with closing(in_order(_cut, self._batches(), self._config.processes)) as results:
            for number, group in groupby(results, lambda result: result[0].number):
                self._take(number, group)
                read = number + 1
                if self._complete:
                    break
        self.every[read:] = [Shard(_described(source.path)) for source in self._sources[read:]]
        del self._files[read:]

    def articles(self, phase: Literal["counting", "writing"]) -> Iterator[tuple[str, str, str]]:
        """Give out id, title and sentences of all articles, in the order of the sources."""
        words = 0
        for number, article in enumerate(chain.from_iterable(map(_read, self._files))):
            yield article
            words += self.words[number]
            self._report(Progress(phase, number + 1, len(self.words), number + 1, words, self.reused))

    @property
    def _complete(self) -> bool:
        return self._config.articles is not None and len(self.words) >= self._config.articles

    def _batches(self) -> Iterator[_Batch]:
        """Read the sources; of one whose shard was made before there is nothing to do."""
        config = self._config
        key = repr((versions(True), config.category, config.lowercase, config.articles))
        for number, source in enumerate(self._sources):
            shard = Shard(_described(source.path))
            key = hashlib.sha256(f"{key} {shard.source}".encode()).hexdigest()
            self._files.append(self._folder / f"{key}.jsonl")
            made = _find(self._files[-1])
            self.every.append(made or shard)
            if made:
                yield _Batch(number, shard.source["bytes"], Cutter(source.path))
                continue
            stream, silent = ByteStream(source.path), set[str]()
            for records in read_batches(source, stream, silent):
                cutter = Cutter(source.path, config.category, config.lowercase, tuple(sorted(silent)))
                yield _Batch(number, stream.position, cutter, records)

    def _take(self, number: int, results: Iterable[tuple[_Batch, list[Entry]]]) -> None:
        """Make a shard of what the workers found in a source, unless it was made before."""
        shard, path = self.every[number], self._files[number]
        if shard.digest:
            self.reused += 1
            self._damaged(number, shard.source["damage"])
            for id, _, text in _read(path):
                self._count(id, text)
            self._tell(number, shard.source["bytes"])
            return
        digest = hashlib.sha256()
        with replacing(path) as file:
            for batch, entries in results:
                for entry in entries:
                    if not self._complete:
                        line = self._line(number, entry)
                        file.write(line)
                        digest.update(line)
                self._tell(number, batch.position)
                if self._complete:
                    break
        shard.digest = digest.hexdigest()
        with replacing(path.with_suffix(".json")) as file:
            file.write(json.dumps(vars(shard)).encode())

    def _line(self, number: int, entry: Entry) -> bytes:
        """Count what came of a record; return the line of an article of the corpus."""
        shard = self.every[number]
        if isinstance(entry, Article):
            if _hashed(entry.id) not in self._ids:
                shard.left_out.update(entry.left_out)
                self._count(entry.id, entry.text)
                return json.dumps([entry.id, entry.title, entry.text]).encode() + b"\n"
            shard.skipped[REPEATED] += 1
        elif isinstance(entry, Damage):
            self._damaged(number, str(entry))
            shard.source["damaged_lines"] += entry.a_line
        else:
            shard.skipped[entry.reason] += 1
            if entry.category and len(shard.categories) < _EXAMPLES and entry.category not in shard.categories:
                shard.categories.append(entry.category)
            if entry.title and len(shard.unread) < _EXAMPLES:
                title = "".join(filter(str.isprintable, entry.title[:80]))
                shard.unread.append(f"{shard.source['file']}: {title}: {_UNREAD[entry.reason]}")
        return b""

    def _count(self, id: str, text: str) -> None:
        self._ids.add(_hashed(id))
        self.lots.append(draw(self._config.seed, id))
        self.words.append(len(text.split()))
        self._total += self.words[-1]

    def _tell(self, number: int, position: int) -> None:
        done = self._begins[number] + position
        self._report(Progress("cutting", done, self._begins[-1], len(self.words), self._total, self.reused))

    def _damaged(self, number: int, damage: str | None) -> None:
        """Note damage, or refuse it."""
        if damage and not self._config.keep_partial:
            raise InputError(
                f"{self._sources[number].path}: {damage}. The {len(self.words):,} articles before it are good: fetch "
                "the file again, or give --keep-partial to do without the rest"
            )
        source = self.every[number].source
        source["damage"] = source["damage"] or damage


def draw(seed: int, id: str) -> int:
    """Return this article's lot, 64 bits: it depends on the seed and the id, not on other articles or their order."""
    return _hashed(f"{seed} {id}")


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def versions(xml: bool) -> dict[str, Any]:
    """Return the versions of all that decides what words a source gives."""
    libraries = ("sentencex", "mwparserfromhell") if xml else ("sentencex",)
    return {
        "spanlm": PACKAGE_VERSION,
        "rules": VERSION,
        "python": platform.python_version(),
        "unicode": unicodedata.unidata_version,
        **{library: importlib.metadata.version(library) for library in libraries},
    }


def _described(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": sha256, "damage": None, "damaged_lines": 0}


def _find(path: Path) -> Shard | None:
    """Return the shard whose articles are in this file, if it was made and is whole."""
    try:
        shard = Shard(**json.loads(path.with_suffix(".json").read_bytes()))
        with path.open("rb") as file:
            whole = hashlib.file_digest(file, "sha256").hexdigest() == shard.digest
    except (OSError, ValueError, TypeError):
        return None
    return shard if whole else None


def _read(path: Path) -> Iterator[tuple[str, str, str]]:
    with path.open("rb") as file:
        yield from map(json.loads, file)


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], jobs: int
) -> Generator[tuple[Item, Result], None, None]:
    """Give out each item with what the function makes of it, in the order of the items.

    Args:
        function: Can be pickled, as can its argument and its result.
        items: Taken one by one, a few ahead of what was given out.
        jobs: How many processes; 1 stays in this one.

    Raises:
        RunError: A process was ended from outside.
    """
    if jobs == 1:
        yield from ((item, function(item)) for item in items)
        return
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=end_with_parent)
    under_way: deque[tuple[Item, Future[Result]]] = deque()
    try:
        for item in items:
            with starting():  # what hands an item over starts a process, too
                under_way.append((item, pool.submit(function, item)))
            if len(under_way) > _AHEAD * jobs:
                first, result = under_way.popleft()
                yield first, result.result()
        for item, result in under_way:
            yield item, result.result()
    except BrokenProcessPool as error:
        raise RunError(
            "a process was ended from outside, perhaps for lack of memory; start again, with fewer --jobs: sources "
            "that were read to their ends are kept"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
