"""The second pass: the words of the training part counted, and the corpus written.

train.txt  valid.txt  test.txt    a sentence a line, words parted by spaces, a blank line after every article
articles.tsv                      every article: split, id, title, sentences, words
corpus.json                       counts, options, sources
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from spanlm.data.config import SPLITS
from spanlm.data.vocabulary import UNK
from spanlm.data.wikipedia.choosing import SPECIALS, covering, most_frequent
from spanlm.data.wikipedia.config import WikipediaConfig
from spanlm.data.wikipedia.gathering import Gathered
from spanlm.data.wikipedia.pieces import Article
from spanlm.data.wikipedia.progress import Progress, Report
from spanlm.data.wikipedia.splitting import TRAIN
from spanlm.data.wikipedia.summary import SplitSummary, VocabularySummary
from spanlm.data.wikipedia.workplace import SUMMARY, Workplace
from spanlm.files import write_synced

ARTICLES = "articles.tsv"


def kept_articles(gathered: Gathered, place: Workplace) -> Iterator[tuple[Article, str]]:
    """Give out the articles of the corpus with their sentences, in the order of the sources."""
    taken = iter(gathered.taken)
    for key in gathered.keys:
        for article, text in place.get(key).texts():
            if next(taken):
                yield article, text


def count_training_words(gathered: Gathered, splits: Sequence[int], place: Workplace, report: Report) -> Counter[str]:
    """Count the words of the training part, in the order in which they come up."""
    counts: Counter[str] = Counter()
    words = 0
    for number, (article, text) in enumerate(kept_articles(gathered, place)):
        if splits[number] == TRAIN:
            counts.update(text.split())
            words += article.words
        report(Progress("counting", number + 1, len(splits), number + 1, words))
    return counts


def choose_vocabulary(config: WikipediaConfig, counts: Counter[str]) -> frozenset[str]:
    """Choose the words that stay.

    Raises:
        InputError: More are asked for than there are.
    """
    if config.coverage is not None:
        return frozenset(covering(counts, config.coverage))
    return frozenset(most_frequent(counts, config.vocabulary))


def write_splits(
    gathered: Gathered, splits: Sequence[int], known: Collection[str], place: Workplace, report: Report
) -> list[SplitSummary]:
    """Write the texts of all splits and the list of articles."""
    place.corpus.mkdir()
    words = 0
    with ExitStack() as stack:
        writers = [stack.enter_context(_SplitWriter(place.corpus, split)) for split in SPLITS]
        listed = stack.enter_context((place.corpus / ARTICLES).open("w", encoding="utf-8", newline="\n"))
        listed.write("split\tid\ttitle\tsentences\twords\n")
        for number, (article, text) in enumerate(kept_articles(gathered, place)):
            split = splits[number]
            writers[split].write(article, text, known)
            listed.write(f"{SPLITS[split]}\t{article.id}\t{article.title}\t{article.sentences}\t{article.words}\n")
            words += article.words
            report(Progress("writing", number + 1, len(splits), number + 1, words))
        listed.flush()
        os.fsync(listed.fileno())
        return [writer.summary() for writer in writers]


class _SplitWriter:
    def __init__(self, folder: Path, split: str) -> None:
        self._split = split
        self._file = (folder / f"{split}.txt").open("wb")
        self._digest = hashlib.sha256()
        self._articles = self._sentences = self._words = self._unknown = 0

    def __enter__(self) -> _SplitWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, article: Article, text: str, known: Collection[str]) -> None:
        lines = []
        for line in text[:-1].split("\n"):
            words = [word if word in known else UNK for word in line.split(" ")]
            self._unknown += words.count(UNK)
            lines.append(" ".join(words))
        content = ("\n".join(lines) + "\n\n").encode()
        self._file.write(content)
        self._digest.update(content)
        self._articles += 1
        self._sentences += article.sentences
        self._words += article.words

    def summary(self) -> SplitSummary:
        self._file.flush()
        os.fsync(self._file.fileno())
        return SplitSummary(
            split=self._split,
            articles=self._articles,
            sentences=self._sentences,
            words=self._words,
            unknown=self._unknown,
            sha256=self._digest.hexdigest(),
        )


def write_summary(folder: Path, content: dict[str, object]) -> None:
    """Write `corpus.json`."""
    write_synced(folder / SUMMARY, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())


def summarise_vocabulary(counts: Counter[str], known: Collection[str]) -> VocabularySummary:
    """Say how large the vocabulary is and what it covers."""
    covered = sum(counts[word] for word in known)
    return VocabularySummary(size=len(known) + SPECIALS, types=len(counts), coverage=covered / counts.total())
