"""What was built: the content of `corpus.json`."""

from __future__ import annotations

import importlib.metadata
import platform
import unicodedata
from dataclasses import asdict, dataclass
from typing import Any

import spanlm
from spanlm.data.wikipedia.articles import VERSION
from spanlm.data.wikipedia.config import WikipediaConfig
from spanlm.data.wikipedia.gathering import SourceRead

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSummary:
    """The counts of a split.

    Attributes:
        split: Its name.
        articles: Its articles.
        sentences: Its sentences, each a line.
        words: Its words, `<unk>` and `N` included.
        unknown: How many of them are `<unk>`.
        sha256: Of its file.
    """

    split: str
    articles: int
    sentences: int
    words: int
    unknown: int
    sha256: str

    @property
    def tokens(self) -> int:
        """What a model reads: words, and one `<eos>` for every sentence and for the blank line after an article."""
        return self.words + self.sentences + self.articles


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularySummary:
    """The counts of the vocabulary.

    Attributes:
        size: Its words, `<unk>` and `<eos>` included.
        types: Different words of the training part before rare ones became `<unk>`, without `<unk>` and `<eos>`.
        coverage: Which share of the training part's words it has.
    """

    size: int
    types: int
    coverage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A corpus that was built.

    Attributes:
        splits: Train, valid and test.
        vocabulary: Its vocabulary.
        skipped: Pages that are not in it, by reason.
        unread: The first articles that could not be read, and why; not in the file.
        left_out: Words of its articles that are no prose, by kind of line.
        sources: What it was made from.
        reused: Pieces that an earlier start had made; not in the file.
    """

    splits: list[SplitSummary]
    vocabulary: VocabularySummary
    skipped: dict[str, int]
    unread: list[str]
    left_out: dict[str, int]
    sources: list[SourceRead]
    reused: int

    @property
    def words_per_sentence(self) -> float:
        """Mean length of a sentence, without its `<eos>`."""
        return sum(split.words for split in self.splits) / sum(split.sentences for split in self.splits)


def to_json(summary: Summary, config: WikipediaConfig, xml: bool) -> dict[str, Any]:
    """Return the content of `corpus.json`: the same for the same sources and options, whatever the machine did."""
    versions = {"spanlm": spanlm.__version__, "rules": VERSION, "python": platform.python_version()}
    versions["unicode"] = unicodedata.unidata_version
    if xml:
        versions["mwparserfromhell"] = importlib.metadata.version("mwparserfromhell")
    size = {"vocabulary": config.vocabulary} if config.coverage is None else {"coverage": config.coverage}
    return {
        "format": FORMAT,
        "kind": "wikipedia",
        "options": {
            **size,
            "category": config.category,
            "articles": config.articles,
            "seed": config.seed,
            "lowercase": config.lowercase,
            "keep_partial": config.keep_partial,
        },
        "splits": {
            split.split: {
                **{name: value for name, value in asdict(split).items() if name != "split"},
                "tokens": split.tokens,
            }
            for split in summary.splits
        },
        "vocabulary": asdict(summary.vocabulary),
        "words_per_sentence": summary.words_per_sentence,
        "skipped": summary.skipped,
        "left_out_words": summary.left_out,
        "sources": [asdict(source) for source in summary.sources],
        "versions": versions,
    }
