"""What is asked of a corpus, and from a record of a source to an article cut into words, which every process can do."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from spanlm.data.wikipedia import markup
from spanlm.data.wikipedia.text import FRAGMENT, cut_sentence, prose, split_sentences
from spanlm.errors import InputError, require

PAPER_VOCABULARY = 77_000
FEWEST_WORDS = 3
VERSION = 3
"""Raised when a source would give other words: what was kept of an older rule is not used then."""
ARTICLE_LIMIT = 1 << 22
"""Bytes of a line of JSON, or characters of a page's wikitext; the longest real articles have half of it."""
ARTICLES = "0"
"""The namespace of articles."""

# why a record is no article of the corpus
NAMESPACE, REDIRECT, DISAMBIGUATION, CATEGORY, EMPTY = "namespace", "redirect", "disambiguation", "category", "empty"
MALFORMED, OVERSIZED = "malformed", "oversized"
# a longer one is no word, and would take memory wherever words are counted
_LONGEST_WORD = 1000

_FIELDS = ("id", "title", "text")
_CATEGORIES = ("category", "categories")
_MAY_REFER = re.compile(r"[^\n]*\bmay(?: also)? refer to:?\s*(?:\n|$)")


@dataclass(frozen=True, kw_only=True)
class WikipediaConfig:
    """Which articles become a corpus, and how.

    Attributes:
        sources: Files or folders: JSON lines of WikiExtractor, or MediaWiki XML dumps.
        out: The folder to make.
        vocabulary: Size of the vocabulary, `<unk>` and `<eos>` included, as a model and `data.max_size` count it.
        coverage: Choose the smallest vocabulary that has this share of the training part's words, instead.
        category: Take only articles with a category in which this regular expression is found.
        articles: Take no more than this many, the first ones.
        seed: Decides which articles are held out.
        jobs: Processes that cut text into words; None: one for each processor.
        lowercase: Write words in small letters.
        keep_partial: Keep what is good of a damaged source, instead of refusing it.
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
        """Refuse values that no corpus could have.

        Raises:
            InputError: A field is outside its limits.
        """
        least = f"at least {FEWEST_WORDS} (<eos>, <unk> and a word)"
        require(self.vocabulary >= FEWEST_WORDS, "--vocabulary", self.vocabulary, least)
        share = self.coverage is None or (math.isfinite(self.coverage) and 0 < self.coverage <= 1)
        require(share, "--coverage", self.coverage, "above 0 and at most 1, such as 0.97")
        require(self.articles is None or self.articles >= FEWEST_WORDS, "--articles", self.articles, "at least 3")
        require(self.jobs is None or self.jobs >= 1, "--jobs", self.jobs, "at least 1")
        try:
            re.compile(self.category or "")
        except re.error as error:
            raise InputError(
                f"--category={self.category}: no regular expression ({error}); put a \\ before a character that "
                "stands for itself"
            ) from error

    @property
    def processes(self) -> int:
        """How many processes cut text into words."""
        allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return self.jobs or allowed or 1


class Damage(Exception):
    """A source cannot be read any further, or (`a_line`) a line of it cannot: where, in bytes of its text, and why."""

    def __init__(self, offset: int, line: int, reason: str, a_line: bool = False) -> None:
        super().__init__(offset, line, reason, a_line)
        self.a_line = a_line

    def __str__(self) -> str:
        return "damaged at byte {} of its text (line {}): {}".format(*self.args)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of JSON lines, not looked into yet: its first byte in the text, its number from 1, its bytes."""

    offset: int
    number: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a MediaWiki dump, its fields as they are written there."""

    id: str
    title: str
    namespace: str
    redirect: bool
    text: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that is no article, or not one that was asked for.

    Attributes:
        reason: Why, in a word.
        category: One that it has, if it was skipped for having none that was asked for.
        title: Its title, if it is an article that could not be read.
    """

    reason: str
    category: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Article:
    """An article: its sentences, a line each, words parted by spaces; how many words are no prose, by kind of line."""

    id: str
    title: str
    text: str
    left_out: dict[str, int]


Record = Line | Page | Skipped | Damage
Entry = Article | Skipped | Damage


@dataclass(frozen=True, slots=True)
class Cutter:
    """Cuts the records of one source into words.

    Attributes:
        path: The source, for messages.
        category: A regular expression; articles without a category in which it is found are skipped.
        lowercase: Write words in small letters.
        silent: Names of the dump's namespaces whose links show nothing.
    """

    path: Path
    category: str | None = None
    lowercase: bool = False
    silent: tuple[str, ...] = ()

    def cut(self, record: Record) -> Entry:
        """Return what becomes of a record.

        Raises:
            InputError: A line can be read but is no article.
        """
        if isinstance(record, Line):
            return self._from_json(record)
        return self._from_page(record) if isinstance(record, Page) else record

    def _from_page(self, page: Page) -> Article | Skipped:
        if page.namespace != ARTICLES:
            return Skipped(NAMESPACE)
        if page.redirect or markup.is_redirect(page.text):
            return Skipped(REDIRECT)
        if page.title.endswith("(disambiguation)") or markup.is_disambiguation(page.text):
            return Skipped(DISAMBIGUATION)
        if self.category is not None:
            names = markup.category_names(page.text, self.silent)
            if not any(re.search(self.category, name) for name in names):
                return Skipped(CATEGORY, *names[:1])
        if markup.is_tangled(page.text):
            return Skipped(MALFORMED, title=page.title)
        return self._words(page.id, page.title, markup.plain_text(page.text, self.silent))

    def _from_json(self, line: Line) -> Entry:
        try:
            fields = json.loads(line.content)
        except (ValueError, RecursionError) as error:
            return Damage(line.offset, line.number, f"not JSON ({error})", a_line=True)
        if problem := json_problem(fields):
            raise InputError(f"{self.path}, line {line.number}: {problem}")
        title, text = fields["title"], fields["text"]
        if title.endswith("(disambiguation)") or _MAY_REFER.match(text.removeprefix(title).lstrip()):
            return Skipped(DISAMBIGUATION)
        if self.category is not None:
            found = [fields.get(name) or [] for name in _CATEGORIES]
            names = [str(name) for one in found for name in (one if isinstance(one, list) else [one])]
            if not any(re.search(self.category, name) for name in names):
                return Skipped(CATEGORY, *names[:1])
        return self._words(" ".join(str(fields["id"]).split()), title, text)

    def _words(self, id: str, title: str, text: str) -> Article | Skipped:
        left_out: Counter[str] = Counter()
        lines: list[str] = []
        for paragraph in prose(text, title, left_out):
            for sentence in split_sentences(paragraph):
                words = cut_sentence(sentence, self.lowercase)
                if any(map(str.isalnum, "".join(words))) and max(map(len, words)) <= _LONGEST_WORD:
                    lines.append(" ".join(words))
                else:  # a lone mark, where what it ended is gone, or no words
                    left_out[FRAGMENT] += len(sentence.split())
        if not lines:
            return Skipped(EMPTY)
        return Article(id, " ".join(title.split()), "\n".join(lines) + "\n", dict(left_out))


def json_problem(fields: object) -> str | None:
    """Say what keeps a line's JSON from being an article of WikiExtractor's; None if nothing does."""
    if not isinstance(fields, dict):
        return f"a JSON {type(fields).__name__} where an article is an object"
    for name in _FIELDS:
        if name not in fields:
            return f'no field "{name}"; an article of WikiExtractor --json has id, title and text'
        if not isinstance(fields[name], (str, int) if name == "id" else str):
            return f'its field "{name}" is no string; an article of WikiExtractor --json has id, title and text'
    return None
