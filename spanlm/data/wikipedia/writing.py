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
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import numpy as np

from spanlm.data.config import SPLITS
from spanlm.data.vocabulary import UNK
from spanlm.data.wikipedia.config import WikipediaConfig
from spanlm.data.wikipedia.gathering import Gathered, Progress, Report
from spanlm.data.wikipedia.pieces import Article
from spanlm.data.wikipedia.splitting import TRAIN
from spanlm.data.wikipedia.summary import SplitSummary, VocabularySummary
from spanlm.data.wikipedia.workplace import SUMMARY, Workplace
from spanlm.errors import InputError
from spanlm.store.files import write_synced

ARTICLES = "articles.tsv"
SPECIALS = 2
"""`<unk>` and `<eos>`, which every vocabulary has."""


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


def most_frequent(counts: Counter[str], size: int) -> list[str]:
    """Return the words of a vocabulary of `size`, `<unk>` and `<eos>` included but not among them.

    Of words that occur equally often, those seen first stay, as everywhere in this package.

    Raises:
        InputError: There are not so many words.
    """
    if size > len(counts) + SPECIALS:
        every = len(counts) + SPECIALS
        raise InputError(
            f"--vocabulary={size}: the training part has only {len(counts):,} different words, {every:,} with <unk> "
            f"and <eos>. Give --vocabulary {every} for all of them, fewer, or --coverage 0.97"
        )
    return [word for word, _ in counts.most_common(size - SPECIALS)]


def covering(counts: Counter[str], share: float) -> list[str]:
    """Return the fewest words that together are this share of the training part's words."""
    ordered = counts.most_common()
    reached = np.fromiter(accumulate(count for _, count in ordered), np.int64, len(ordered))
    needed = int(np.searchsorted(reached, share * int(reached[-1]))) + 1
    return [word for word, _ in ordered[:needed]]


def write_splits(
    gathered: Gathered, splits: Sequence[int], known: Collection[str], place: Workplace, report: Report
) -> list[SplitSummary]:
    """Write the texts of all splits and the list of articles."""
    place.corpus.mkdir()
    words = 0
    with ExitStack() as stack:
        files = [stack.enter_context((place.corpus / f"{split}.txt").open("wb")) for split in SPLITS]
        writers = [_SplitWriter(file, split) for file, split in zip(files, SPLITS, strict=True)]
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
    def __init__(self, file: BinaryIO, split: str) -> None:
        self._split = split
        self._file = file
        self._digest = hashlib.sha256()
        self._articles = self._sentences = self._words = self._unknown = 0

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
