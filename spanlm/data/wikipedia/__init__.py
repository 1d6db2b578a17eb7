"""A corpus of Wikipedia articles, made as Daniluk et al. (2017, §4) describe theirs.

The first pass cuts every source into words and keeps them as a shard; the second deals the articles out to the splits
and chooses the vocabulary. Memory grows with the numbers of articles and of different words.

    train.txt  valid.txt  test.txt    a sentence a line, words parted by spaces, a blank line after every article
    articles.tsv                      every article: split, id, title, sentences, words
    corpus.json                       counts, options, sources

A shard is a file of articles and a manifest, which is written when the file is whole. It is named after all that it was
made from, the sources before it too: an article that comes twice counts once. A build that was stopped or killed goes
on from its whole shards.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanlm.data.config import SPLITS
from spanlm.data.vocabulary import UNK, Vocabulary
from spanlm.data.wikipedia import markup
from spanlm.data.wikipedia.sources import ByteStream, Damage, Page, Record, Source, find_sources
from spanlm.data.wikipedia.text import FRAGMENT, cut_sentence, prose, split_sentences
from spanlm.errors import InputError, RunError, require
from spanlm.store import VERSION as PACKAGE_VERSION
from spanlm.store.files import UNFINISHED, expanded, hold, make_folder, remove_unfinished, replacing, sync_folder
from spanlm.store.process import workers

PAPER_VOCABULARY = 77_000
PROPORTIONS = {"train": 22.5, "valid": 1.2, "test": 1.2}
"""Millions of words (§4)."""
VERSION = 3
"""To be raised when the rules change which words a source gives: older shards are then not used."""
BATCH = 16
"""Records that a worker gets at once."""

_MAY_REFER = re.compile(r"[^\n]*\bmay(?: also)? refer to:?\s*(?:\n|$)")
# a longer one is no word, and would take memory wherever words are counted
_LONGEST_WORD = 1000


@dataclass(frozen=True, kw_only=True)
class WikipediaConfig:
    """Which articles become a corpus, and how.

    Attributes:
        sources: JSON lines of WikiExtractor --json (.jsonl, .jsonl.gz), MediaWiki XML dumps (.xml, .xml.bz2, .xml.gz),
            or folders of them
        out: the folder to make
        vocabulary: keep the most frequent words of the training part: so many, <unk> and <eos> included (default
            77000, the paper's)
        coverage: keep the fewest words that make up this share of the training part, such as 0.97, instead
        category: take only articles with a category that this regular expression matches: the page's own
            [[Category:…]] links, in JSON lines the field "category" or "categories"
        articles: take the first N articles only
        seed: decides which articles are held out
        jobs: processes (default: one a processor); changes no result
        lowercase: write words in small letters
        keep_partial: do without the rest of a damaged source, instead of refusing it

    Raises:
        InputError: a field is outside its limits.
    """

    sources: tuple[Path, ...]
    out: Path
    vocabulary: int = PAPER_VOCABULARY
    coverage: float | None = None
    category: str | None = None
    articles: int | None = None
    seed: int = 1
    jobs: int | None = None
    lowercase: bool = False
    keep_partial: bool = False

    def __post_init__(self) -> None:
        require(self.vocabulary >= 3, "vocabulary", self.vocabulary, "at least 3 (<eos>, <unk> and a word)")
        share = self.coverage is None or (math.isfinite(self.coverage) and 0 < self.coverage <= 1)
        require(share, "coverage", self.coverage, "above 0 and at most 1, such as 0.97")
        require(self.articles is None or self.articles >= 3, "articles", self.articles, "at least 3")
        require(self.jobs is None or self.jobs >= 1, "jobs", self.jobs, "at least 1")
        try:
            re.compile(self.category or "")
        except re.error as error:
            raise InputError(f"category={self.category}: no regular expression ({error}); mend it") from error


class Progress(NamedTuple):
    """Progress of a build: first in bytes of the sources, then in articles; what was found; shards used again."""

    phase: Literal["cutting", "counting", "writing"]
    done: int
    total: int
    articles: int
    words: int
    reused: int


def build_corpus(config: WikipediaConfig, report: Callable[[Progress], None] = lambda progress: None) -> dict[str, Any]:
    """Build the corpus, in a hidden folder beside it until it is whole.

    A script that calls this with `jobs` above 1 needs `if __name__ == "__main__":`. `report` is called often;
    an exception of it ends the build, and whole shards are kept.

    Returns:
        The content of `corpus.json`.

    Raises:
        InputError: A source is not what it should be or is damaged, fewer than three articles are left, `config.out`
            holds something, or the vocabulary asked for is larger than there are words.
        RunError: A process was ended from outside, another one builds the same corpus, or the disk is full.
    """
    sources = find_sources(config.sources)
    out = Path(os.path.abspath(expanded(config.out)))
    with _workplace(out) as folder:
        shards = Shards(config, report)
        shards.fill(sources, folder)
        if len(shards.articles) < len(SPLITS):
            shutil.rmtree(folder)
            raise _too_few(config, sources, shards)
        corpus = folder / "corpus"
        corpus.mkdir()
        summary = _write(config, shards, corpus)
        summary["versions"] = _versions(any(source.is_dump for source in sources))
        with replacing(corpus / "corpus.json") as file:
            file.write((json.dumps(summary, ensure_ascii=False, indent=1) + "\n").encode())
        os.rename(corpus, out)
        sync_folder(out.parent)
        shutil.rmtree(folder)
    return summary


@contextmanager
def _workplace(out: Path) -> Iterator[Path]:
    """Lock the hidden folder in which the corpus `out` is made; if the block fails, it stays with its shards."""
    if os.path.lexists(out) and not (out.is_dir() and not any(out.iterdir())):
        raise InputError(f"--out={out}: is there already, and not empty; choose another name, or delete it first")
    folder = out.parent / f".{out.name}{UNFINISHED}"
    make_folder(folder, "--out")
    try:
        lock = hold(folder / ".lock")
    except BlockingIOError:
        raise RunError(f"--out={out}: another process is making it; wait for it, or choose another folder") from None
    with lock:
        remove_unfinished(folder)
        shutil.rmtree(folder / "corpus", ignore_errors=True)
        try:
            yield folder
        except OSError as error:
            raise RunError(f"--out={out}: {error.strerror}; make room and give the same command again") from error
        finally:
            if not any(folder.glob("*.json")):
                shutil.rmtree(folder, ignore_errors=True)


def _too_few(config: WikipediaConfig, sources: Sequence[Source], shards: Shards) -> InputError:
    skipped = _summed(shard.skipped for shard in shards.every.values())
    if "category" in skipped and not shards.articles:
        records = chain.from_iterable(source.records(ByteStream(source.path)) for source in sources)
        names = chain.from_iterable(_categories(page) for page in records if isinstance(page, Page))
        examples = ", ".join(list(dict.fromkeys(islice(names, 100)))[:5]) or "none"
        what = f"is found in no category of an article; there are, for example: {examples}"
        return InputError(f"category={config.category}: {what}")
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in skipped.items()) or "nothing"
    return InputError(
        f"{', '.join(str(source.path) for source in sources[:3])}: {len(shards.articles) or 'no'} article(s) in it "
        f"(skipped: {reasons}), where train, valid and test need three; give another --source"
    )


class Article(NamedTuple):
    """An article: its sentences, a line each, with spaces between words; how many words are no prose, by line kind."""

    id: str
    title: str
    text: str
    left_out: Counter[str]


def cut_page(page: Page, category: str | None = None, lowercase: bool = False) -> Article | str:
    """Cut a page into words, or return why the corpus leaves it out; `WikipediaConfig` describes the options."""
    text, is_wikitext = page.text, page.silent is not None
    if is_wikitext:
        lists = markup.DISAMBIGUATION.search(text)
    else:
        lists = _MAY_REFER.match(text.removeprefix(page.title).lstrip())
    if lists or page.title.endswith("(disambiguation)"):
        return "disambiguation"
    if category is not None and not any(re.search(category, name) for name in _categories(page)):
        return "category"
    if is_wikitext:
        if markup.is_tangled(text):
            return "malformed"
        text = markup.plain_text(text, page.silent or ())
    left_out: Counter[str] = Counter()
    lines = []
    for sentence in chain.from_iterable(map(split_sentences, prose(text, page.title, left_out))):
        words = cut_sentence(sentence, lowercase)
        if any(map(str.isalnum, "".join(words))) and max(map(len, words)) <= _LONGEST_WORD:
            lines.append(" ".join(words))
        else:  # a lone mark, where what it ended is gone, or no words
            left_out[FRAGMENT] += len(sentence.split())
    return Article(page.id, " ".join(page.title.split()), "\n".join(lines) + "\n", left_out) if lines else "empty"


def _categories(page: Page) -> Sequence[str]:
    return page.categories if page.silent is None else markup.category_names(page.text, page.silent)


def _cut(records: Sequence[Record], category: str | None, lowercase: bool) -> list[Article | str | Damage]:
    return [cut_page(one, category, lowercase) if isinstance(one, Page) else one for one in records]


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    return iter(lambda: list(islice(records, BATCH)), [])


@dataclass
class Shard:
    """A source: its entry in `corpus.json`, counts of what was left out, and the digest of its articles once read."""

    source: dict[str, Any]
    skipped: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    digest: str = ""


class Shards:
    """All sources, cut into words.

    Attributes:
        every: The shards, by the files of their articles, in the order of the sources.
        articles: The words of every article, by its lot: 64 bits that depend on its id and the seed alone.
    """

    def __init__(self, config: WikipediaConfig, report: Callable[[Progress], None]) -> None:
        self.every: dict[Path, Shard] = {}
        self.articles: dict[int, int] = {}
        self._config, self._report, self._words, self._reused = config, report, 0, 0

    def fill(self, sources: Sequence[Source], folder: Path) -> None:
        """Cut the sources into words; a shard that is in the folder and whole is not made again."""
        config = self._config
        cut = partial(_cut, category=config.category, lowercase=config.lowercase)
        key = repr((_versions(True), config.category, config.lowercase, config.articles))
        total, done = sum(source.path.stat().st_size for source in sources), 0
        with workers(config.jobs) as in_order:
            for source in sources:
                size, sha256 = source.path.stat().st_size, _digest(source.path)
                key = hashlib.sha256(f"{key} {source.path.name} {sha256}".encode()).hexdigest()
                path, stream = folder / f"{key}.jsonl", ByteStream(source.path)
                new = {"file": source.path.name, "bytes": size, "sha256": sha256, "damage": None, "damaged_lines": 0}
                self.every[path] = shard = _whole(path) or Shard(new)
                if shard.digest:
                    self._reused += 1
                    self._refuse_damage(shard)
                    for id, _, text in _articles(path):
                        self._is_new(id, text)
                elif len(self.articles) < (config.articles or math.inf):
                    entries = chain.from_iterable(in_order(cut, _batches(source.records(stream))))
                    for _ in self._make(path, entries):
                        at = done + stream.position
                        self._report(Progress("cutting", at, total, len(self.articles), self._words, self._reused))
                done += size

    def texts(self, phase: Literal["counting", "writing"]) -> Iterator[tuple[str, str, str]]:
        """Yield id, title and sentences of all articles, in the order of the sources."""
        files = (path for path, shard in self.every.items() if shard.digest)
        for number, article in enumerate(chain.from_iterable(map(_articles, files)), 1):
            yield article
            self._report(Progress(phase, number, len(self.articles), number, self._words, self._reused))

    def _make(self, path: Path, entries: Iterable[Article | str | Damage]) -> Iterator[None]:
        """Write a shard from the workers' results for a source, an entry at a time."""
        shard, digest = self.every[path], hashlib.sha256()
        with replacing(path) as file:
            for entry in entries:
                if isinstance(entry, Damage):
                    shard.source["damage"] = shard.source["damage"] or f"{entry}"
                    shard.source["damaged_lines"] += entry.is_line
                    self._refuse_damage(shard)
                elif isinstance(entry, str):
                    shard.skipped[entry] += 1
                elif self._is_new(entry.id, entry.text):
                    shard.left_out.update(entry.left_out)
                    line = json.dumps(entry[:3]).encode() + b"\n"
                    file.write(line)
                    digest.update(line)
                else:
                    shard.skipped["repeated"] += 1
                yield
                if len(self.articles) == self._config.articles:
                    break
        shard.digest = digest.hexdigest()
        with replacing(path.with_suffix(".json")) as file:
            file.write(json.dumps(vars(shard)).encode())

    def _is_new(self, id: str, text: str) -> bool:
        """Count an article, unless one with this id came before."""
        lot = int.from_bytes(hashlib.sha256(f"{self._config.seed} {id}".encode()).digest()[:8], "big")
        if lot in self.articles:
            return False
        self.articles[lot] = len(text.split())
        self._words += self.articles[lot]
        return True

    def _refuse_damage(self, shard: Shard) -> None:
        if shard.source["damage"] and not self._config.keep_partial:
            raise InputError(
                f"{shard.source['file']}: {shard.source['damage']}. The {len(self.articles):,} articles before it are "
                "good: fetch the file again, or give --keep-partial to do without the rest"
            )


def _versions(is_dump: bool) -> dict[str, Any]:
    """Return the versions of everything that determines the words of a source."""
    own = {"spanlm": PACKAGE_VERSION, "rules": VERSION}
    python = {"python": platform.python_version(), "unicode": unicodedata.unidata_version}
    libraries = ("sentencex", "mwparserfromhell")[: 1 + is_dump]
    return {**own, **python, **{library: importlib.metadata.version(library) for library in libraries}}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _whole(path: Path) -> Shard | None:
    """Return the shard whose articles are in this file, if it was made and is whole."""
    try:
        shard = Shard(**json.loads(path.with_suffix(".json").read_bytes()))
        return shard if _digest(path) == shard.digest else None
    except (OSError, ValueError, TypeError):
        return None


def _articles(path: Path) -> Iterator[tuple[str, str, str]]:
    with path.open("rb") as file:
        yield from map(json.loads, file)


def split_articles(articles: Mapping[int, int]) -> NDArray[np.int8]:
    """Return the split (an index into `SPLITS`) of each of three or more articles, given as word counts by lot.

    In the order of their lots, articles go to valid until it has its share of all words, then to test, then to train.
    So the length of an article does not change its chance to be held out.
    """
    order = np.argsort(np.fromiter(articles, np.uint64))
    sizes = np.fromiter(articles.values(), np.int64)[order]
    splits = np.zeros(len(order), np.int8)
    begin = 0
    for split, left in ((1, 2), (2, 1)):
        share = PROPORTIONS[SPLITS[split]] / sum(PROPORTIONS.values()) * float(sizes.sum())
        reached = int(np.searchsorted(np.cumsum(sizes[begin:]), share)) + 1
        # each of the splits that are still to come needs one, too
        end = min(begin + reached, len(order) - left)
        splits[order[begin:end]] = split
        begin = end
    return splits


def choose_words(counts: Counter[str], vocabulary: int, coverage: float | None = None) -> Vocabulary:
    """Choose so many words, `<unk>` and `<eos>` included: the most frequent, and of equal ones the first in `counts`.

    A coverage asks for the fewest words that are this share of all tokens. InputError: there are fewer words.
    """
    every = len(counts) + 2
    if coverage is not None:
        reached = np.cumsum(sorted(counts.values(), reverse=True))
        vocabulary = min(3 + int(np.searchsorted(reached, coverage * int(reached[-1]))), every)
    if vocabulary > every:
        raise InputError(
            f"vocabulary={vocabulary}: the training part has only {len(counts):,} different words, {every:,} with "
            f"<unk> and <eos>. Give --vocabulary {every} for all of them, fewer, or --coverage 0.97"
        )
    return Vocabulary.from_counts(counts, max_size=vocabulary)


def _write(config: WikipediaConfig, shards: Shards, folder: Path) -> dict[str, Any]:
    """Write the texts of all splits and the list of articles; return their summary."""
    splits = [SPLITS[split] for split in split_articles(shards.articles)]
    counts: Counter[str] = Counter()
    for split, (_, _, text) in zip(splits, shards.texts("counting"), strict=True):
        if split == "train":
            counts.update(text.split())
    vocabulary = choose_words(counts, config.vocabulary, config.coverage)
    known = frozenset(vocabulary.words)
    written = {split: Counter(articles=0, sentences=0, words=0, unknown=0) for split in SPLITS}
    with ExitStack() as stack:
        files = {split: stack.enter_context(replacing(folder / f"{split}.txt")) for split in SPLITS}
        listed = stack.enter_context(replacing(folder / "articles.tsv"))
        listed.write(b"split\tid\ttitle\tsentences\twords\n")
        for split, (id, title, text) in zip(splits, shards.texts("writing"), strict=True):
            lines = [[word if word in known else UNK for word in line.split(" ")] for line in text.splitlines()]
            words, unknown = sum(map(len, lines)), sum(line.count(UNK) for line in lines)
            files[split].write(("\n".join(map(" ".join, lines)) + "\n\n").encode())
            listed.write(f"{split}\t{id}\t{title}\t{len(lines)}\t{words}\n".encode())
            written[split].update(articles=1, sentences=len(lines), words=words, unknown=unknown)
    size = {"vocabulary": config.vocabulary} if config.coverage is None else {"coverage": config.coverage}
    asked = ("category", "articles", "seed", "lowercase", "keep_partial")
    total, every = sum(written.values(), Counter[str]()), shards.every.values()
    digests = {split: _digest(folder / f"{split}.txt") for split in SPLITS}
    # what a model reads: words, an <eos> for every sentence and one for every article
    tokens = {split: found.total() - found["unknown"] for split, found in written.items()}
    covered = sum(counts[word] for word in known) / counts.total()
    return {
        "format": 1,
        "kind": "wikipedia",
        "options": {**size, **{name: getattr(config, name) for name in asked}},
        "splits": {split: {**written[split], "sha256": digests[split], "tokens": tokens[split]} for split in SPLITS},
        "vocabulary": {"size": len(vocabulary), "types": len(counts), "coverage": covered},
        "words_per_sentence": total["words"] / total["sentences"],
        "skipped": _summed(shard.skipped for shard in every),
        "left_out_words": _summed(shard.left_out for shard in every),
        "sources": [shard.source for shard in every],
    }


def _summed(counts: Iterable[Counter[str]]) -> dict[str, int]:
    return dict(sorted(sum(map(Counter[str], counts), Counter[str]()).items()))
