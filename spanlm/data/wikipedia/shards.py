"""The sources of a corpus, each cut into words by itself: its shard.

A shard is a file of a source's entries in their order, articles, what is left out and damage, and a manifest with its
SHA-256, which is written when the file is whole. It is named after all that it was made from. Any process can make one;
the one that makes the corpus reads them in the order of the sources, so that how many made them changes nothing: an
article that comes twice counts once.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import platform
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from spanlm.data.wikipedia import markup
from spanlm.data.wikipedia.sources import ByteStream, Damage, Page, Record, Source
from spanlm.data.wikipedia.text import FRAGMENT, cut_sentence, prose, split_sentences
from spanlm.errors import InputError, require
from spanlm.store import VERSION as PACKAGE_VERSION
from spanlm.store.engine import Engine
from spanlm.store.files import replacing
from spanlm.store.process import workers

if TYPE_CHECKING:
    from spanlm.data.wikipedia import WikipediaConfig

VERSION = 4
"""To be raised when the rules change which words a source gives: older shards are then not used."""
_FORMAT = 3
BATCH = 16
"""Records that a worker gets at once."""

_MAY_REFER = re.compile(r"[^\n]*\bmay(?: also)? refer to:?\s*(?:\n|$)")
# a longer one is no word, and would take memory wherever words are counted
_LONGEST_WORD = 1000


class Progress(NamedTuple):
    """Progress of a build: first in bytes of the sources, then in articles; what was found; shards used again."""

    phase: Literal["cutting", "counting", "writing"]
    done: int
    total: int
    articles: int
    words: int
    reused: int


class Article(NamedTuple):
    """An article: its sentences, a line each; words that are no prose, by line kind; dropped templates, by name."""

    id: str
    title: str
    text: str
    left_out: Counter[str]
    templates: Counter[str]


Entry = Article | str | Damage
"""An article; or in a word why it is none; or where its source is damaged."""


def cut_page(page: Page, category: str | None = None, lowercase: bool = False) -> Article | str:
    """Cut a page into words, or return why the corpus leaves it out; `WikipediaConfig` describes the options."""
    text, is_wikitext = page.text, page.silent is not None
    if is_wikitext:
        lists = markup.DISAMBIGUATION.search(text)
    else:
        lists = _MAY_REFER.match(text.removeprefix(page.title).lstrip())
    if lists or page.title.endswith("(disambiguation)"):
        return "disambiguation"
    if category is not None and not any(re.search(category, name) for name in categories(page)):
        return "category"
    left_out, templates = Counter[str](), Counter[str]()
    if is_wikitext:
        if markup.is_tangled(text):
            return "malformed"
        text = markup.plain_text(text, page.silent or (), templates)
    lines = []
    for sentence in chain.from_iterable(map(split_sentences, prose(text, page.title, left_out))):
        words = cut_sentence(sentence, lowercase)
        if any(map(str.isalnum, "".join(words))) and max(map(len, words)) <= _LONGEST_WORD:
            lines.append(" ".join(words))
        else:  # a lone mark, where what it ended is gone, or no words
            left_out[FRAGMENT] += len(sentence.split())
    title, text = " ".join(page.title.split()), "\n".join(lines) + "\n"
    return Article(page.id, title, text, left_out, templates) if lines else "empty"


def categories(page: Page) -> Sequence[str]:
    """Return the categories of an article."""
    return page.categories if page.silent is None else markup.category_names(page.text, page.silent)


def _cut(records: Sequence[Record], category: str | None, lowercase: bool) -> list[Entry]:
    return [cut_page(one, category, lowercase) if isinstance(one, Page) else one for one in records]


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    return iter(lambda: list(islice(records, BATCH)), [])


@dataclass
class Shard:
    """A source: its entry in `corpus.json`, what was left out, and which of its entries are articles of the corpus."""

    source: dict[str, Any]
    path: Path
    skipped: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    templates: Counter[str] = field(default_factory=Counter)
    taken: bytearray = field(default_factory=bytearray)


class Shards:
    """All sources, cut into words.

    Attributes:
        every: The shards, in the order of the sources.
        articles: The words of every article, by its lot: 64 bits that depend on its id and the seed alone.
    """

    def __init__(self, config: WikipediaConfig, folder: Path, report: Callable[[Progress], None]) -> None:
        self.every: list[Shard] = []
        self.articles: dict[int, int] = {}
        self._digests: dict[Path, str] = {}
        self._config, self._folder, self._report, self._words, self._reused = config, folder, report, 0, 0

    def fill(self, sources: Sequence[Source], *, take: bool = True) -> None:
        """Cut the sources into words, and take their articles; a shard that is there and whole is not made again."""
        most, total, done = self._config.articles or math.inf, sum(map(_size, sources)), 0
        with workers(self._config.jobs) as in_order:
            for source in sources:
                shard, stream = self._shard(source), ByteStream(source.path)
                if _whole(shard.path):
                    self._reused += shard.path not in [one.path for one in self.every]
                elif len(self.articles) < most:
                    cut = partial(_cut, category=self._config.category, lowercase=self._config.lowercase)
                    entries = chain.from_iterable(in_order(cut, _batches(source.records(stream))))
                    for articles, words in self._make(shard, entries):
                        counts = len(self.articles) + articles, self._words + words
                        self._report(Progress("cutting", done + stream.position, total, *counts, self._reused))
                if take and len(self.articles) < most:
                    self._take(shard)
                self.every.append(shard)
                done += _size(source)
                self._report(Progress("cutting", done, total, len(self.articles), self._words, self._reused))

    def fill_by(self, engine: Engine, sources: Sequence[Source]) -> None:
        """Cut those sources whose shards are not there, each by a command of its own.

        Raises:
            InputError: a source is damaged, or the only one; or as `Engine.run`.
        """
        if len(sources) == 1:
            files = "the dump that comes in many files, enwiki-DATE-pages-articles1.xml-p1p41242.bz2 and so on"
            require(False, "on", engine.on, f"left out with one source, which one process reads; or give {files}")
        left = [source for source in sources if not _whole(self._shard(source).path)]
        total = sum(map(_size, left))
        done = 0
        commands = {source: self._config.cutting(source.path) for source in left}
        with closing(engine.run(commands, 1, below=self._folder)) as ended:  # no task outlives an error
            for source, error in ended:
                if error:
                    raise InputError(error)
                done += _size(source)
                self._report(Progress("cutting", done, total, 0, 0, 0))

    def texts(self, phase: Literal["counting", "writing"]) -> Iterator[tuple[str, str, str]]:
        """Yield id, title and sentences of all articles, in the order of the sources."""
        articles = (
            entry
            for shard in self.every
            for taken, entry in zip(shard.taken, _entries(shard.path) if shard.taken else (), strict=False)
            if taken
        )
        for number, (id, title, text, *_) in enumerate(articles, 1):
            yield id, title, text
            self._report(Progress(phase, number, len(self.articles), number, self._words, self._reused))

    def _shard(self, source: Source) -> Shard:
        config = self._config
        sha256 = self._digests[source.path] = self._digests.get(source.path) or digest_of(source.path)
        how = versions(True), config.category, config.lowercase, config.articles, _FORMAT
        name = hashlib.sha256(repr((*how, source.path.name, sha256)).encode()).hexdigest()
        new = {"file": source.path.name, "bytes": _size(source), "sha256": sha256, "damage": None, "damaged_lines": 0}
        return Shard(new, self._folder / f"{name}.jsonl")

    def _make(self, shard: Shard, entries: Iterable[Entry]) -> Iterator[tuple[int, int]]:
        """Write a shard from the workers' results for a source; yield its articles and words after every entry."""
        digest, articles, words, ids, most = hashlib.sha256(), 0, 0, set[str](), self._config.articles or math.inf
        with replacing(shard.path) as file:
            for entry in entries:
                if isinstance(entry, Damage):
                    shown: Any = {"damage": str(entry), "is_line": entry.is_line}
                    if most == math.inf:  # else all that is wanted may stand before it
                        self._refuse_damage(shard, shown, len(self.articles) + articles)
                else:
                    shown = entry
                line = json.dumps(shown).encode() + b"\n"
                file.write(line)
                digest.update(line)
                if isinstance(entry, Article):
                    articles, words = articles + 1, words + len(entry.text.split())
                    if most < math.inf:  # of a whole dump they would fill the memory
                        ids.add(entry.id)
                yield articles, words
                if len(ids) == most:
                    break
        with replacing(shard.path.with_suffix(".json")) as file:
            file.write(json.dumps(digest.hexdigest()).encode())

    def _take(self, shard: Shard) -> None:
        """Count a shard's entries, of articles those whose id did not come before."""
        for entry in _entries(shard.path):
            shard.taken.append(0)
            if isinstance(entry, dict):
                self._refuse_damage(shard, entry, len(self.articles))
                shard.source["damage"] = shard.source["damage"] or entry["damage"]
                shard.source["damaged_lines"] += entry["is_line"]
            elif isinstance(entry, str):
                shard.skipped[entry] += 1
            elif self._is_new(entry[0], entry[2]):
                shard.taken[-1] = 1
                shard.left_out.update(entry[3])
                shard.templates.update(entry[4])
            else:
                shard.skipped["repeated"] += 1
            if len(self.articles) == self._config.articles:
                break

    def _is_new(self, id: str, text: str) -> bool:
        """Count an article, unless one with this id came before."""
        lot = int.from_bytes(hashlib.sha256(f"{self._config.seed} {id}".encode()).digest()[:8], "big")
        if lot in self.articles:
            return False
        self.articles[lot] = len(text.split())
        self._words += self.articles[lot]
        return True

    def _refuse_damage(self, shard: Shard, damage: dict[str, Any], articles: int) -> None:
        if not self._config.keep_partial:
            raise InputError(
                f"{shard.source['file']}: {damage['damage']}. The {articles:,} articles before it are "
                "good: fetch the file again, or give --keep-partial to do without the rest"
            )


def _size(source: Source) -> int:
    return source.path.stat().st_size


def versions(is_dump: bool) -> dict[str, Any]:
    """Return the versions of everything that determines the words of a source."""
    own = {"spanlm": PACKAGE_VERSION, "rules": VERSION}
    python = {"python": platform.python_version(), "unicode": unicodedata.unidata_version}
    libraries = ("sentencex", "mwparserfromhell")[: 1 + is_dump]
    return {**own, **python, **{library: importlib.metadata.version(library) for library in libraries}}


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _whole(path: Path) -> bool:
    """Whether the entries of a shard are in this file, all and as they were made."""
    try:
        return bool(json.loads(path.with_suffix(".json").read_bytes()) == digest_of(path))
    except (OSError, ValueError):
        return False


def _entries(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        yield from map(json.loads, file)
