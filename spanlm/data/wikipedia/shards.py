"""Shards: each source of a corpus, cut into words.

A shard is a file of a source's articles in order, with a reason in place of each page that is not an article. Its name
is a hash of its inputs, and it appears when it is complete. Any process can make a shard; the process that builds the
corpus reads shards in the order of the sources, so the number of processes changes nothing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import multiprocessing
import os
import platform
import re
import signal
import sys
import threading
import unicodedata
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from spanlm.data.wikipedia import markup
from spanlm.data.wikipedia.sources import Page, Record, Source
from spanlm.data.wikipedia.text import FRAGMENT, cut_sentence, prose, split_sentences
from spanlm.errors import InputError, RunError, require
from spanlm.jobs import Engine
from spanlm.store import VERSION as PACKAGE_VERSION
from spanlm.store.files import replacing

if TYPE_CHECKING:
    from spanlm.data.wikipedia import WikipediaConfig

VERSION = 4
"""Raise it when the rules change the words of a source, so that older shards are not used."""
_FORMAT = 5
BATCH, ROUND = 16, 256
"""Records per task of a process; tasks of a round."""
SURPLUS = "surplus"
"""Reason to leave out an article whose category has its share."""

_MAY_REFER = re.compile(r"[^\n]*\bmay(?: also)? refer to:?\s*(?:\n|$)")
# letters; a longer string is not a word, and would take memory wherever words are counted
_LONGEST_WORD = 1000


class Progress(NamedTuple):
    """Progress of a build, in bytes of the sources while cutting, then in articles; `reused` counts shards."""

    phase: Literal["cutting", "counting", "writing"]
    done: int
    total: int
    articles: int
    words: int
    reused: int


class Article(NamedTuple):
    """An article: its sentences, one a line; counts of words outside prose by kind of line, of dropped templates.

    `category` is the one of `WikipediaConfig.categories` that it was chosen for.
    """

    id: str
    title: str
    text: str
    left_out: Counter[str]
    templates: Counter[str]
    category: str


def cut_page(
    page: Page, categories: Mapping[str, str], lowercase: bool = False, full: Collection[str] = ()
) -> Article | str:
    """Cut a page into words, or return the reason to leave it out; `WikipediaConfig` describes the options.

    Pages of categories that are `full` are left out.
    """
    text, is_wikitext = page.text, page.silent is not None
    if is_wikitext:
        lists = markup.DISAMBIGUATION.search(text)
    else:
        lists = _MAY_REFER.match(text.removeprefix(page.title).lstrip())
    if lists or page.title.endswith("(disambiguation)"):
        return "disambiguation"
    category = ""
    if categories:
        names = markup.category_names(text, page.silent) if page.silent is not None else page.categories
        matching = (name for name, pattern in categories.items() if any(re.search(pattern, x) for x in names))
        if (match := next(matching, None)) is None:
            return "category" if names else "no category"
        if match in full:
            return SURPLUS
        category = match
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
        else:  # a lone mark whose sentence was dropped, or no words
            left_out[FRAGMENT] += len(sentence.split())
    title, text = " ".join(page.title.split()), "\n".join(lines) + "\n"
    return Article(page.id, title, text, left_out, templates, category) if lines else "empty"


def _cut_pages(
    batch: tuple[Sequence[Record], Collection[str]], categories: Mapping[str, str], lowercase: bool
) -> list[Article | str | InputError]:
    records, full = batch
    return [cut_page(record, categories, lowercase, full) if isinstance(record, Page) else record for record in records]


@contextmanager
def _workers(jobs: int | None) -> Iterator[Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]]:
    """Start processes and yield a `map` that calls its function in them, a few items ahead of the results.

    `jobs` None: one process for each available processor; 1: no other process.

    Raises:
        RunError: a process was killed.
    """
    jobs = jobs or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()) or 1
    if jobs == 1:
        yield map
        return

    def in_order(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        under_way: deque[Future[Any]] = deque()
        for item in items:
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # new processes inherit the mask
            try:
                under_way.append(pool.submit(function, item))
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if len(under_way) > 2 * jobs:  # per process, one task runs and one waits
                yield under_way.popleft().result()
        yield from (future.result() for future in under_way)

    # spawn: a fork would inherit locks
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent)
    try:
        yield in_order
    except BrokenProcessPool as error:
        problem = "a process was ended from outside, perhaps for lack of memory; start again, with fewer jobs"
        raise RunError(problem) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """End this process when its parent ends, for whatever reason."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


class Shards:
    """All sources, cut into words.

    Attributes:
        sources: The entry of each read source in `corpus.json`.
        shares: How many articles of each category to take.
        chosen: How many were taken.
        articles: Word count of every article by its lot: 64 bits that depend only on its id and the seed.
        skipped: Counts of pages that are not articles, by reason.
        left_out: Counts of words outside prose, by kind of line.
        templates: Counts of dropped templates, by name.
    """

    def __init__(self, config: WikipediaConfig, folder: Path, report: Callable[[Progress], None]) -> None:
        self.sources: list[dict[str, Any]] = []
        self.articles: dict[int, int] = {}
        self.skipped: Counter[str] = Counter[str]()
        self.left_out: Counter[str] = Counter[str]()
        self.templates: Counter[str] = Counter[str]()
        self._config, self._folder, self._report = config, folder, report
        self.shares: Mapping[str, float] = config.shares
        self.chosen: Counter[str] = Counter[str]()
        self._paths: list[Path] = []
        self._words = self._reused = 0

    def fill(self, sources: Sequence[Source], *, take: bool = True) -> None:
        """Cut the sources into words, reusing existing shards, and `take` their articles.

        Raises:
            InputError: a source is damaged.
        """
        total, done = sum(source.size for source in sources), 0

        def tell(position: int = 0, articles: int = 0, words: int = 0) -> None:
            counts = len(self.articles) + articles, self._words + words
            self._report(Progress("cutting", done + position, total, *counts, self._reused))

        with _workers(self._config.jobs) as in_order:
            for source in sources:
                self.sources.append({"file": source.path.name, "bytes": source.size, "sha256": source.sha256})
                if not self._has_all:
                    path = self._path(source)
                    if path.exists():
                        self._reused += 1
                    else:
                        self._cut(source, path, in_order, tell)
                    if take:
                        self._take(path)
                done += source.size
                tell()

    def fill_by(self, engine: Engine, sources: Sequence[Source]) -> None:
        """Make the missing shards, one command per source.

        Raises:
            InputError: a source is damaged, or there is only one; or as `Engine.run`.
        """
        if len(sources) == 1:
            files = "the dump that comes in many files, enwiki-DATE-pages-articles1.xml-p1p41242.bz2 and so on"
            require(False, "on", engine.on, f"left out with one source, which one process reads; or give {files}")
        commands = {source: self._command(source) for source in sources if not self._path(source).exists()}
        with closing(engine.run(commands, 1, below=self._folder)) as ended:  # no task outlives an error
            for number, (_, error) in enumerate(ended, 1):
                if error:
                    raise InputError(error)
                self._report(Progress("cutting", number, len(commands), 0, 0, 0))

    def _command(self, source: Source) -> list[str]:
        config = self._config
        words = ["data", "wikipedia", f"--source={source.path}", f"--out={config.out}", "--jobs=1", "--cut-only"]
        for name in ("category", "like", "articles"):
            if (value := getattr(config, name)) is not None:
                words.append(f"--{name}={value}")
        return [sys.executable, "-m", "spanlm", *words, *["--lowercase"] * config.lowercase]

    def read(self, phase: Literal["counting", "writing"]) -> Iterator[Article]:
        """Yield the articles that were taken, in the order of the sources."""
        waiting = enumerate(self.articles, 1)  # the same order, without repeated articles
        number, lot = next(waiting)
        for entry in chain.from_iterable(map(_entries, self._paths)):
            if isinstance(entry, Article) and self._lot(entry) == lot:
                yield entry
                self._report(Progress(phase, number, len(self.articles), number, self._words, self._reused))
                number, lot = next(waiting, (0, -1))

    def _path(self, source: Source) -> Path:
        config = self._config
        settings = versions(True), config.categories, config.lowercase, config.shares, _FORMAT
        name = hashlib.sha256(repr((*settings, source.path.name, source.sha256)).encode()).hexdigest()
        return self._folder / f"{name}.jsonl"

    def _cut(
        self, source: Source, path: Path, in_order: Callable[..., Iterator[Any]], tell: Callable[[int, int, int], None]
    ) -> None:
        """Make a shard, with at most the share of each category in different articles."""
        records = source.records()
        lists = iter(lambda: list(islice(records, BATCH)), [])
        cut = partial(_cut_pages, categories=self._config.categories, lowercase=self._config.lowercase)
        articles, words, ids, counts = 0, 0, set[str](), Counter[str]()

        def entries() -> Iterator[Article | str | InputError]:
            for first in lists:
                full = self._full(counts)  # once a round, or it would depend on how many tasks are under way
                batches = ((batch, full) for batch in chain([first], islice(lists, ROUND - 1)))
                yield from chain.from_iterable(in_order(cut, batches))

        with replacing(path) as file:
            for entry in entries():
                if isinstance(entry, InputError):
                    raise entry
                if isinstance(entry, Article) and entry.category in self._full(counts):
                    entry = SURPLUS
                file.write(json.dumps(entry).encode() + b"\n")
                if isinstance(entry, Article):
                    articles, words = articles + 1, words + len(entry.text.split())
                    # the ids of a whole dump would fill the memory
                    if self.shares[entry.category] < math.inf and entry.id not in ids:
                        ids.add(entry.id)
                        counts[entry.category] += 1
                tell(source.position, articles, words)
                if len(self._full(counts)) == len(self.shares):
                    break

    def _take(self, path: Path) -> None:
        """Count a shard's pages; an article whose id came before counts as repeated."""
        self._paths.append(path)
        for entry in _entries(path):
            if isinstance(entry, str):
                self.skipped[entry] += 1
            elif (lot := self._lot(entry)) in self.articles:
                self.skipped["repeated"] += 1
            elif entry.category in self._full(self.chosen):
                self.skipped[SURPLUS] += 1
            else:
                self.chosen[entry.category] += 1
                self.articles[lot] = len(entry.text.split())
                self._words += self.articles[lot]
                self.left_out.update(entry.left_out)
                self.templates.update(entry.templates)
            if self._has_all:
                break

    def _full(self, counts: Mapping[str, int]) -> frozenset[str]:
        """Return the categories that have their shares."""
        return frozenset(name for name, share in self.shares.items() if counts[name] >= share)

    @property
    def _has_all(self) -> bool:
        return len(self._full(self.chosen)) == len(self.shares)

    def _lot(self, article: Article) -> int:
        return int.from_bytes(hashlib.sha256(f"{self._config.seed} {article.id}".encode()).digest()[:8], "big")


def versions(is_dump: bool) -> dict[str, Any]:
    """Return the versions of everything that determines the words of a source."""
    package = {"spanlm": PACKAGE_VERSION, "rules": VERSION}
    python = {"python": platform.python_version(), "unicode": unicodedata.unidata_version}
    libraries = ("sentencex", "mwparserfromhell")[: 1 + is_dump]
    return {**package, **python, **{library: importlib.metadata.version(library) for library in libraries}}


def _entries(path: Path) -> Iterator[Article | str]:
    with path.open("rb") as file:
        for entry in map(json.loads, file):
            yield entry if isinstance(entry, str) else Article(*entry)
