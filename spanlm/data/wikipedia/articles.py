"""From what a source holds to sentences of words: the part of the work that every process can do by itself."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from spanlm.data.wikipedia import markup
from spanlm.data.wikipedia.pieces import Article, Bad, Page, Piece, Record, Skipped
from spanlm.data.wikipedia.sentences import split_sentences
from spanlm.data.wikipedia.text import FRAGMENT, prose
from spanlm.data.wikipedia.words import cut_sentence

VERSION = 2
"""Raised when a source would give other words: what was kept of an older rule is not used then."""

# why a page is no article
NAMESPACE, REDIRECT, DISAMBIGUATION, CATEGORY, EMPTY = "namespace", "redirect", "disambiguation", "category", "empty"
MALFORMED = "malformed"
# a longer one is no word, and would take memory wherever words are counted
_LONGEST_WORD = 1000

_FIELDS = ("id", "title", "text")
_CATEGORIES = ("category", "categories")
_MAY_REFER = re.compile(r"[^\n]*\bmay(?: also)? refer to:?\s*(?:\n|$)")


@dataclass(frozen=True, slots=True)
class Treatment:
    """What is done with every article of a source.

    Attributes:
        category: A regular expression; articles without a category in which it is found are skipped.
        lowercase: Write words in small letters.
        silent: Names of the dump's namespaces whose links show nothing.
    """

    category: str | None = None
    lowercase: bool = False
    silent: tuple[str, ...] = ()


def make_piece(records: Collection[Record | Page | Skipped], treatment: Treatment) -> Piece:
    """Cut some articles into words."""
    found = [_entry(record, treatment) for record in records]
    return Piece(tuple(entry for entry, _ in found), "".join(text for _, text in found))


def _entry(record: Record | Page | Skipped, treatment: Treatment) -> tuple[Article | Skipped | Bad, str]:
    if isinstance(record, Skipped):
        return record, ""
    if isinstance(record, Page):
        return _from_page(record, treatment)
    return _from_json(record, treatment)


def _from_page(page: Page, treatment: Treatment) -> tuple[Article | Skipped, str]:
    if page.namespace != "0":
        return Skipped(NAMESPACE), ""
    if page.redirect or markup.is_redirect(page.text):
        return Skipped(REDIRECT), ""
    if page.title.endswith("(disambiguation)") or markup.is_disambiguation(page.text):
        return Skipped(DISAMBIGUATION), ""
    if treatment.category is not None:
        categories = markup.category_names(page.text, treatment.silent)
        if not _matches(treatment.category, categories):
            return Skipped(CATEGORY, categories[0] if categories else ""), ""
    if markup.is_tangled(page.text):
        return Skipped(MALFORMED, title=page.title), ""
    return _cut(page.id, page.title, markup.plain_text(page.text, treatment.silent), treatment.lowercase)


def _from_json(record: Record, treatment: Treatment) -> tuple[Article | Skipped | Bad, str]:
    try:
        fields = json.loads(record.content)
    except (ValueError, RecursionError) as error:
        return Bad(record.offset, record.line, f"not JSON ({error})", foreign=False), ""
    if problem := json_problem(fields):
        return Bad(record.offset, record.line, problem, foreign=True), ""
    title, text = fields["title"], fields["text"]
    if title.endswith("(disambiguation)") or _MAY_REFER.match(text.removeprefix(title).lstrip()):
        return Skipped(DISAMBIGUATION), ""
    if treatment.category is not None:
        categories = [name for field in _CATEGORIES for name in _names(fields.get(field))]
        if not _matches(treatment.category, categories):
            return Skipped(CATEGORY, categories[0] if categories else ""), ""
    return _cut(" ".join(str(fields["id"]).split()), title, text, treatment.lowercase)


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


def _cut(id: str, title: str, text: str, lowercase: bool) -> tuple[Article | Skipped, str]:
    left_out: Counter[str] = Counter()
    lines: list[str] = []
    words = 0
    for paragraph in prose(text, title, left_out):
        for sentence in split_sentences(paragraph):
            cut = cut_sentence(sentence, lowercase)
            if any(map(str.isalnum, "".join(cut))) and max(map(len, cut)) <= _LONGEST_WORD:
                lines.append(" ".join(cut))
                words += len(cut)
            else:  # a lone mark, where what it ended is gone, or no words
                left_out[FRAGMENT] += len(sentence.split())
    if not lines:
        return Skipped(EMPTY), ""
    return Article(id, " ".join(title.split()), len(lines), words, dict(left_out)), "\n".join(lines) + "\n"


def _names(field: object) -> list[str]:
    if isinstance(field, list):
        return [str(name) for name in field]
    return [field] if isinstance(field, str) else []


def _matches(category: str, names: Collection[str]) -> bool:
    return any(re.search(category, name) for name in names)
