"""The first pass: every article of the sources cut into words and kept on the disk, and a few numbers for each."""

from __future__ import annotations

import hashlib
import platform
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal

from spanlm.data.wikipedia.articles import CATEGORY, MALFORMED, VERSION, Treatment, make_piece
from spanlm.data.wikipedia.config import WikipediaConfig
from spanlm.data.wikipedia.pieces import ARTICLE_LIMIT, OVERSIZED, Article, Bad, Piece, Skipped
from spanlm.data.wikipedia.sources import Chunk, Source, read_chunks
from spanlm.data.wikipedia.splitting import draw
from spanlm.data.wikipedia.stream import ByteStream, Damage
from spanlm.data.wikipedia.workers import in_order
from spanlm.data.wikipedia.workplace import Workplace
from spanlm.errors import InputError

REPEATED = "repeated"
"""Skipped: an article with this id came before."""

_EXAMPLES = 5
_UNREAD = {
    OVERSIZED: f"longer than {ARTICLE_LIMIT:,} bytes",
    MALFORMED: "its markup is nested too deeply, or opened without an end too often",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build is.

    Attributes:
        phase: "cutting" articles into words, "counting" those of the training part, "writing" the corpus.
        done: Bytes of the sources that were read, or articles.
        total: How many there are.
        articles: Articles so far.
        words: Words so far.
        reused: Pieces that an earlier start had made.
    """

    phase: Literal["cutting", "counting", "writing"]
    done: int
    total: int
    articles: int
    words: int
    reused: int = 0


Report = Callable[[Progress], None]
"""Called often; what it raises ends the build, and what is done is kept."""


@dataclass(slots=True)
class SourceRead:
    """A source as it was read.

    Attributes:
        file: Its name.
        bytes: Its size.
        sha256: Of its bytes.
        damage: Where it stops being readable and why, if it does.
        damaged_lines: Lines of JSON that were left out, since they could not be read.
    """

    file: str
    bytes: int
    sha256: str = ""
    damage: str | None = None
    damaged_lines: int = 0


@dataclass(slots=True)
class Gathered:
    """What the first pass found.

    Attributes:
        keys: Of the pieces, in order.
        taken: For every article of the pieces, 1 if it is of the corpus, else 0.
        lots: For every article of the corpus, its lot for the split.
        words: For every article of the corpus, its words.
        skipped: Pages that are not of the corpus, by reason.
        unread: The first articles that could not be read, and why.
        left_out: Words of the articles of the corpus that are no prose, by kind.
        sources: What was read.
        reused: Pieces that an earlier start had made.
    """

    keys: list[str] = field(default_factory=list)
    taken: bytearray = field(default_factory=bytearray)
    lots: array[int] = field(default_factory=lambda: array("Q"))
    words: array[int] = field(default_factory=lambda: array("q"))
    skipped: Counter[str] = field(default_factory=Counter)
    unread: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    sources: list[SourceRead] = field(default_factory=list)
    reused: int = 0


@dataclass(frozen=True, slots=True)
class _Task:
    """A chunk on its way to a worker: what becomes of it, the number of its source, and how far that was read.

    The last one of a damaged source has the damage and no records.
    """

    chunk: Chunk
    treatment: Treatment
    key: str
    source: int
    position: int
    damage: str | None = None


def _work(task: _Task) -> Piece:
    return make_piece(task.chunk.records, task.treatment)


def gather(config: WikipediaConfig, sources: list[Source], place: Workplace, report: Report) -> Gathered:
    """Cut all articles into words.

    Raises:
        InputError: A source is damaged or holds something else, or no article is left.
        RunError: A process was ended from outside.
    """
    gathering = _Gathering(config, sources, place, report)
    with closing(in_order(_work, gathering.tasks(), config.processes, gathering.known)) as results:
        for task, piece in results:
            gathering.take(task, piece)
            if gathering.complete:
                break
    gathering.finish()
    return gathering.found


class _Gathering:
    def __init__(self, config: WikipediaConfig, sources: list[Source], place: Workplace, report: Report) -> None:
        self.found = Gathered()
        self._config = config
        self._sources = sources
        self._place = place
        self._report = report
        self._ids: set[int] = set()
        self._categories: dict[str, None] = {}
        self._words = 0
        self._begins = [0]
        for source in sources:
            size = source.path.stat().st_size
            self.found.sources.append(SourceRead(source.path.name, size))
            self._begins.append(self._begins[-1] + size)

    @property
    def complete(self) -> bool:
        """Whether there are as many articles as were asked for."""
        return self._config.articles is not None and len(self.found.words) >= self._config.articles

    def tasks(self) -> Iterator[_Task]:
        """Read the sources."""
        for number, source in enumerate(self._sources):
            with ByteStream(source.path) as stream:
                try:
                    for chunk in read_chunks(stream, source.kind):
                        treatment = Treatment(self._config.category, self._config.lowercase, chunk.silent)
                        yield _Task(chunk, treatment, _key(chunk, treatment), number, stream.position)
                except Damage as damage:
                    yield _Task(Chunk(()), Treatment(), "", number, stream.position, str(damage))
                self.found.sources[number].sha256 = stream.sha256()

    def known(self, task: _Task) -> Piece | None:
        """Return what needs no work: what an earlier start has done, and damage."""
        if task.damage is not None:
            return Piece((), "")
        piece = self._place.find(task.key)
        self.found.reused += piece is not None
        return piece

    def take(self, task: _Task, piece: Piece) -> None:
        """Take the articles of a piece, in order, up to the number that was asked for."""
        if task.damage is not None:
            self._refuse_damage(task, task.damage)
            self.found.sources[task.source].damage = task.damage
            return
        self._refuse_foreign(task, piece)
        self._place.put(task.key, piece)
        self.found.keys.append(task.key)
        for entry in piece.entries:
            if isinstance(entry, Article):
                self.found.taken.append(not self.complete and self._take_article(entry))
            elif not self.complete:
                self._take_other(task, entry)
        done, total = self._begins[task.source] + task.position, self._begins[-1]
        self._report(Progress("cutting", done, total, len(self.found.words), self._words, self.found.reused))

    def _take_article(self, article: Article) -> bool:
        id_hash = int.from_bytes(hashlib.sha256(article.id.encode()).digest()[:8], "big")
        if id_hash in self._ids:
            self.found.skipped[REPEATED] += 1
            return False
        self._ids.add(id_hash)
        self.found.lots.append(draw(self._config.seed, article.id))
        self.found.words.append(article.words)
        self.found.left_out.update(article.left_out)
        self._words += article.words
        return True

    def _take_other(self, task: _Task, entry: Skipped | Bad) -> None:
        if isinstance(entry, Skipped):
            self.found.skipped[entry.reason] += 1
            if entry.category and len(self._categories) < _EXAMPLES:
                self._categories[entry.category] = None
            if entry.title and len(self.found.unread) < _EXAMPLES:
                title = "".join(filter(str.isprintable, entry.title[:80]))
                self.found.unread.append(f"{self._sources[task.source].path.name}: {title}: {_UNREAD[entry.reason]}")
            return
        damage = str(Damage(entry.offset, entry.line, entry.reason))
        self._refuse_damage(task, damage)
        source = self.found.sources[task.source]
        source.damaged_lines += 1
        source.damage = source.damage or damage

    def _refuse_foreign(self, task: _Task, piece: Piece) -> None:
        for entry in piece.entries:
            if isinstance(entry, Bad) and entry.foreign:
                raise InputError(f"{self._sources[task.source].path}, line {entry.line}: {entry.reason}")

    def _refuse_damage(self, task: _Task, damage: str) -> None:
        if not self._config.keep_partial:
            raise InputError(
                f"{self._sources[task.source].path}: {damage}. The {len(self.found.words):,} articles before it are "
                f"good: fetch the file again, or give --keep-partial to do without the rest"
            )

    def finish(self) -> None:
        """Look at what was found; hash the sources that were not needed to their ends."""
        if not self.found.words:
            self._place.discard()
            raise self._nothing()
        for source, read in zip(self._sources, self.found.sources, strict=True):
            if not read.sha256:
                with ByteStream(source.path) as stream:
                    read.sha256 = stream.sha256()

    def _nothing(self) -> InputError:
        skipped = ", ".join(f"{reason} {count:,}" for reason, count in sorted(self.found.skipped.items()))
        if self.found.skipped[CATEGORY]:
            examples = ", ".join(self._categories)
            known = f"there are, for example: {examples}" if examples else "the articles name no categories"
            return InputError(f"--category={self._config.category}: is found in no category of an article; {known}")
        files = ", ".join(str(source.path) for source in self._sources[:3])
        return InputError(f"{files}: no article in it (skipped: {skipped or 'nothing'}); give another --source")


def _key(chunk: Chunk, treatment: Treatment) -> str:
    """Return the SHA-256 of all that a piece is made from: records, what is asked for, and the rules."""
    digest = hashlib.sha256(repr((VERSION, platform.python_version(), treatment)).encode())
    for record in chunk.records:
        digest.update(repr(record).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
