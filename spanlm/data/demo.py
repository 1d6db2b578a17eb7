"""A small English corpus that ships with every Python: the prose of its language reference.

`pydoc_data.topics` holds the text of `help("assert")` and some eighty other topics, with markup. The demo keeps the
English sentences and drops headings, grammar, code, tables, signatures and lists of fragments.
The text differs between versions of Python, so numbers on it compare only within one version.
"""

from __future__ import annotations

import hashlib
import platform
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from spanlm.data.config import SPLITS, Split
from spanlm.data.text import TITLE
from spanlm.data.tokenizer import tokenize
from spanlm.errors import InputError, named

VERSION = 1
"""Version of the rules below; raise it when they change."""
DEMO_NOTE = (
    f"demo: the English of Python {platform.python_version()}'s own documentation, lower-cased; "
    "the text differs between versions of Python"
)
# share of all tokens in each held-out split; fewest words of a sentence
_HELD_OUT_SHARE, _FEWEST_WORDS = 0.1, 3

# heading underlines; list markers; lines whose block is not prose
_RULE = re.compile(r"[=\-*~^\"'#.+]{3,}")
_ITEM = re.compile(r"(?:[*•]|\d+\.|\[\d+\]) +")
_VERSION_NOTE = r"(?:New|Added|Changed|Deprecated|Removed) (?:in|since) version"
_NOT_PROSE = re.compile(rf">>>|\.\.\. |::=|[+|]|{_VERSION_NOTE}|See also|Source code")

_BOUNDARY = re.compile(
    r"(?:(?<=[.?!:])|(?<=[.?!]\)))(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!vs\.) +(?=[\"“`*(]*[A-Z]|[\"`])"
)
# labels and notes before a colon, which are no sentences
_LABEL = re.compile(rf"[A-Z][\w’]*(?: [\w’]+){{0,2}}:|PEP .*:|{_VERSION_NOTE}.*")
_FOOTNOTE = re.compile(r" *\[\d+\]")
_EMPHASIS = re.compile(r"(\*{1,2})(?=\S)([^*]+)(?<=\S)\1")
_CODE = re.compile(r"([\"`]+)'?(-?\d+|[A-Za-z_][\w.]*)(?:\(\))?'?\1")
_STARTS = re.compile(r"[\"“`*(]*[A-Z]|[\"`]")
_PLAIN = re.compile(r"[A-Za-z_(“][A-Za-z0-9_ ,;:.'’()“”…é–—-]*(?:[.?!]\)?|:)")
# two sentences without a space between them, and calls
_SPOILED = re.compile(r"[a-z)][.?!][A-Z][a-z]+ [a-z]|\(\)")


@dataclass(frozen=True, slots=True)
class Topic:
    """One document of the demo: its name in `help`, and its sentences as words."""

    name: str
    sentences: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        """Return the number of tokens, including one `<eos>` per sentence."""
        return sum(len(sentence) + 1 for sentence in self.sentences)


def demo_version() -> str:
    """Hash the rules and the text."""
    return hashlib.sha256(f"{VERSION} {_texts()!r}".encode()).hexdigest()


def demo_bytes(split: Split) -> Iterator[bytes]:
    """Yield a split: for each topic a title line, then one line per sentence."""
    for topic in demo_topics()[split]:
        yield TITLE + f" : {topic.name}\n".encode()
        yield from (f"{' '.join(sentence)}\n".encode() for sentence in topic.sentences)


def _texts() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        problem = "data.corpus=demo: this Python comes without pydoc_data.topics, whose text the demo is"
        raise InputError(f"{problem}; use a text of your own: {named('corpus=…')}") from error
    return topics


@cache
def demo_topics() -> Mapping[Split, Sequence[Topic]]:
    """Return the topics of each split, about 80, 10 and 10 % of the tokens, assigned in an order of their names alone.

    Raises:
        InputError: This Python lacks the text.
    """
    topics = extract_topics(_texts())
    share = _HELD_OUT_SHARE * sum(map(len, topics))
    chosen: dict[Split, list[Topic]] = {split: [] for split in SPLITS}
    for topic in sorted(topics, key=lambda topic: hashlib.sha256(topic.name.encode()).digest()):
        held_out: tuple[Split, ...] = ("valid", "test")
        fits = (split for split in held_out if sum(map(len, chosen[split])) + len(topic) <= share)
        chosen[next(fits, "train")].append(topic)
    return {split: sorted(members, key=lambda topic: topic.name) for split, members in chosen.items()}


def extract_topics(texts: Mapping[str, str]) -> list[Topic]:
    """Return the sentences of each topic, in the order of the topics' names.

    Topics repeat each other. A sentence stays in the smallest topic that has it, so that no sentence is in two splits.
    """
    seen: set[tuple[str, ...]] = set()
    topics = []
    for name in sorted(texts, key=lambda name: (len(texts[name]), name)):
        sentences = []
        for sentence in (tuple(tokenize(text, "words")) for text in _sentences(texts[name])):
            if sum(map(str.isalpha, sentence)) >= _FEWEST_WORDS and sentence not in seen:
                seen.add(sentence)
                sentences.append(sentence)
        if sentences:
            topics.append(Topic(name, tuple(sentences)))
    return sorted(topics, key=lambda topic: topic.name)


def _sentences(text: str) -> Iterator[str]:
    for block in re.split(r"\n[ \t]*\n", text):
        for sentence in _BOUNDARY.split(_paragraph(block)):
            plain = _EMPHASIS.sub(r"\2", sentence)
            plain = "" if _LABEL.fullmatch(plain) else _CODE.sub(r"\2", plain)
            if _STARTS.match(sentence) and _PLAIN.fullmatch(plain) and not _SPOILED.search(plain):
                yield plain


def _paragraph(block: str) -> str:
    """Join the lines of a block into running text; empty if the block is not prose."""
    lines = textwrap.dedent(block.strip("\n")).splitlines()
    while len(lines) > 1 and lines[1].startswith(" ") and not _ITEM.match(lines[0]):
        # skip a term above its indented definition
        lines = textwrap.dedent("\n".join(lines[1:])).splitlines()
    if any(_RULE.fullmatch(line.strip()) or _NOT_PROSE.match(line.strip()) for line in lines):
        return ""
    marker = _ITEM.match(lines[0]) if lines else None
    unwrapped = " ".join(line.strip() for line in lines)[marker.end() if marker else 0 :]
    return _FOOTNOTE.sub("", re.sub(r"(?<=\w)- (?=\w)", "-", unwrapped))
