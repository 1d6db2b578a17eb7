"""A corpus of Wikipedia articles, as Daniluk et al. (2017, §4) describe theirs.

The first pass cuts every source into words and saves them as a shard; the second assigns the articles to splits and
chooses the vocabulary. Memory grows with the numbers of articles and of different words.

    train.txt  valid.txt  test.txt    a sentence a line, words separated by spaces, a blank line after every article
    articles.tsv                      every article: split, id, title, sentences, words
    corpus.json                       counts, options, sources

A build that was stopped or killed resumes from its complete shards (`shards`).
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spanlm.data.config import BUILT, SPLITS
from spanlm.data.vocabulary import UNK, Vocabulary
from spanlm.data.wikipedia.shards import Progress, Shards, versions
from spanlm.data.wikipedia.sources import Source, digest_of, find_sources
from spanlm.errors import InputError, RunError, named, require
from spanlm.jobs import Engine
from spanlm.options import at_least, option, options
from spanlm.store.files import UNFINISHED, expanded, hold, make_folder, remove_unfinished, replacing, sync_folder

PROPORTIONS = {"train": 22.5, "valid": 1.2, "test": 1.2}
"""Millions of words (§4)."""


Like = Literal["daniluk2017"]

CATEGORIES: Mapping[str, str] = {
    "People": r"^People$|^Living people$|\b(births|deaths)$",
    "Cities": r"^([\w-]+ )?[Cc]ities\b.* (in|of|on) |^Cities$",
    "Countries": r"^Countries( in .*)?$|^Member states of the United Nations$",
    "Universities": r"^([\w-]+ )?[Uu]niversities( and colleges)? (in|of) |^Universities$",
    "Novels": r"^(\d{4} (.* )?|Debut )novels$|^Novels( by .*)?$",
}
"""Those of Daniluk et al. (2017, §4.1), as regular expressions for names of categories: the plain name, or categories
of English Wikipedia that only its articles have. An article belongs to the first one that matches. How articles were
assigned and chosen the paper does not say; here each category has an equal share."""

PAPER: Mapping[str, Any] = {"source": "English Wikipedia of 6 February 2015", "articles": 7_500, "words": 24_900_000}


@options()
class WikipediaConfig:
    """Options of a corpus of articles."""

    sources: tuple[Path, ...] = option(
        "JSON lines of WikiExtractor --json (.jsonl, .jsonl.gz), MediaWiki XML dumps (.xml, .xml.bz2, .xml.gz), "
        "or folders of them"
    )
    out: Path = option("the folder to make")
    vocabulary: int = option(
        "size of the vocabulary, the most frequent words of the training part, including <unk> and <eos> (default "
        "77000, the paper's)",
        default=77_000,
        limit=at_least(3, "at least 3 (<eos>, <unk> and a word)"),
    )
    category: str | None = option(
        "take only articles with a category that this regular expression matches, in the page's [[Category:…]] "
        'links or, in JSON lines, in the field "category" or "categories"',
        default=None,
    )
    like: Like | None = option(
        "take articles of the categories of this paper, in equal shares of the number that it has, or of "
        f"{named('articles')}",
        default=None,
    )
    articles: int | None = option("take the first N articles only", default=None, limit=at_least(3))
    seed: int = option("decides which articles are held out", default=1)
    jobs: int | None = option("processes (default: one per processor); does not change results", default=None)
    on: str | None = option(
        f"read each source in a Ray task, at most {named('jobs')} at a time on a machine: ray starts Ray here; "
        "ray:ADDRESS connects to a cluster whose machines share the disk. Does not change results",
        default=None,
    )
    lowercase: bool = option("write words in small letters", default=False)

    def __post_init__(self) -> None:
        try:
            re.compile(self.category or "")
        except re.error as error:
            raise InputError("category", self.category, f"no regular expression ({error}); mend it") from error
        limit = f"left out beside {named('like')}, which chooses the categories"
        require(self.category is None or self.like is None, "category", self.category, limit)
        _ = self.engine

    @property
    def categories(self) -> Mapping[str, str]:
        """For each category the articles' regular expression; empty: any article will do."""
        if self.like is not None:
            return CATEGORIES
        return {} if self.category is None else {"": self.category}

    @property
    def shares(self) -> Mapping[str, float]:
        """How many articles of each category to take; without `like` "" stands for all."""
        if self.like is None:
            return {"": self.articles or math.inf}
        count, total = len(CATEGORIES), self.articles or PAPER["articles"]
        return {name: (n + 1) * total // count - n * total // count for n, name in enumerate(CATEGORIES)}

    @property
    def engine(self) -> Engine:
        """The engine that cuts the sources if `on` is given."""
        return Engine(on=self.on, jobs=os.cpu_count() or 1 if self.jobs is None else self.jobs)


def build_corpus(config: WikipediaConfig, report: Callable[[Progress], None] = lambda progress: None) -> dict[str, Any]:
    """Build the corpus in a hidden folder beside `config.out`, then rename the folder.

    A script that calls this with `jobs` above 1 needs `if __name__ == "__main__":`. `report` is called often;
    if it raises, the build ends and keeps its complete shards.

    Returns:
        The content of `corpus.json`.

    Raises:
        InputError: A source is damaged or of another format, fewer than three articles are left, `config.out` is not
            empty, or the vocabulary is larger than the number of different words.
        RunError: A process was killed, another one builds the same corpus, or the disk is full.
    """
    sources = find_sources(config.sources)
    out = Path(os.path.realpath(expanded(config.out)))
    with _workplace(out) as folder:
        shards = Shards(config, folder, report)
        if config.on is not None:
            shards.fill_by(config.engine, sources)
        shards.fill(sources)
        if len(shards.articles) < len(SPLITS):
            shutil.rmtree(folder)
            raise _too_few(sources, shards)
        corpus = folder / "corpus"
        corpus.mkdir()
        summary = _write(config, shards, corpus)
        summary["versions"] = versions(any(source.is_dump for source in sources))
        with replacing(corpus / BUILT) as file:
            file.write((json.dumps(summary, ensure_ascii=False, indent=1) + "\n").encode(errors="backslashreplace"))
        os.rename(corpus, out)
        sync_folder(out.parent)
        shutil.rmtree(folder)
    return summary


def cut_sources(config: WikipediaConfig, report: Callable[[Progress], None] = lambda progress: None) -> None:
    """Make the shards of some sources for a `build_corpus` of another process, which reports the errors."""
    folder = _unfinished(Path(os.path.realpath(expanded(config.out))))
    make_folder(folder, "out")
    Shards(config, folder, report).fill(find_sources(config.sources), take=False)


def _unfinished(out: Path) -> Path:
    return out.parent / f".{out.name}{UNFINISHED}"


@contextmanager
def _workplace(out: Path) -> Iterator[Path]:
    """Lock the hidden folder in which the corpus `out` is built; if the block fails, the shards stay there."""
    if os.path.lexists(out) and not (out.is_dir() and not any(out.iterdir())):
        raise InputError("out", out, "is there already, and not empty; choose another name, or delete it first")
    folder = _unfinished(out)
    make_folder(folder, "out")
    try:
        lock = hold(folder / ".lock")
    except BlockingIOError:
        raise RunError("out", out, "another process is making it; wait for it, or choose another folder") from None
    with lock:
        remove_unfinished(folder)
        shutil.rmtree(folder / "corpus", ignore_errors=True)
        try:
            yield folder
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            way = "see that it can be written and has room, and give the same command again"
            raise RunError("out", out, f"{where}{error.strerror}; {way}") from error
        finally:
            if not any(folder.glob("*.jsonl")):
                shutil.rmtree(folder, ignore_errors=True)


def _too_few(sources: Sequence[Source], shards: Shards) -> InputError:
    way_out = f"; give other {named('sources')}"
    if "no category" in shards.skipped:
        way_out += ", whose articles have categories: a dump, or JSON lines with the field category"
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(shards.skipped.items())) or "nothing"
    return InputError(
        f"{', '.join(str(source.path) for source in sources[:3])}: {len(shards.articles) or 'no'} article(s) in it "
        f"(skipped: {reasons}), where train, valid and test need three{way_out}"
    )


def split_articles(articles: Mapping[int, int]) -> NDArray[np.int8]:
    """Return the split (an index into `SPLITS`) of each article; `articles` has word counts by lot, at least three.

    In the order of their lots, articles go to valid until it has its share of all words, then to test, then to train.
    So the length of an article does not change its probability of being held out.
    """
    order = np.argsort(np.fromiter(articles, np.uint64))
    sizes = np.fromiter(articles.values(), np.int64)[order]
    splits = np.zeros(len(order), np.int8)
    begin = 0
    for split, left in ((1, 2), (2, 1)):
        share = PROPORTIONS[SPLITS[split]] / sum(PROPORTIONS.values()) * float(sizes.sum())
        reached = int(np.searchsorted(np.cumsum(sizes[begin:]), share)) + 1
        # leave at least one article for each later split
        end = min(begin + reached, len(order) - left)
        splits[order[begin:end]] = split
        begin = end
    return splits


def _write(config: WikipediaConfig, shards: Shards, folder: Path) -> dict[str, Any]:
    """Write the texts of all splits and the list of articles; return the content of `corpus.json`."""
    splits = [SPLITS[split] for split in split_articles(shards.articles)]
    counts: Counter[str] = Counter()
    for split, article in zip(splits, shards.read("counting"), strict=True):
        if split == "train":
            counts.update(article.text.split())
    if config.vocabulary > (every := len(counts) + 2):
        raise InputError(
            "vocabulary",
            config.vocabulary,
            f"the training part has only {len(counts):,} different words, {every:,} with <unk> and <eos>",
            f"Give {named(f'vocabulary={every}')} for all of them, or fewer",
        )
    vocabulary = Vocabulary.from_counts(counts, max_size=config.vocabulary)
    known = frozenset(vocabulary.words)
    written = {split: Counter(articles=0, sentences=0, words=0, unknown=0) for split in SPLITS}
    with ExitStack() as stack:
        files = {split: stack.enter_context(replacing(folder / f"{split}.txt")) for split in SPLITS}
        listed = stack.enter_context(replacing(folder / "articles.tsv"))
        listed.write(b"split\tid\ttitle\tsentences\twords\n")
        for split, (id, title, text, *_) in zip(splits, shards.read("writing"), strict=True):
            lines = [[word if word in known else UNK for word in line.split(" ")] for line in text.splitlines()]
            words, unknown = sum(map(len, lines)), sum(line.count(UNK) for line in lines)
            files[split].write(("\n".join(map(" ".join, lines)) + "\n\n").encode())
            listed.write(f"{split}\t{id}\t{title}\t{len(lines)}\t{words}\n".encode())
            written[split].update(articles=1, sentences=len(lines), words=words, unknown=unknown)
    total = sum(written.values(), Counter[str]())
    digests = {split: digest_of(folder / f"{split}.txt") for split in SPLITS}
    # a model reads the words, an <eos> for every sentence and one for every article
    tokens = {split: sums.total() - sums["unknown"] for split, sums in written.items()}
    options = ("vocabulary", "category", "like", "articles", "seed", "lowercase")
    chosen = {name: {"articles": shards.chosen[name], "wanted": wanted} for name, wanted in shards.shares.items()}
    return {
        "format": 1,
        "kind": "wikipedia",
        "options": {name: getattr(config, name) for name in options},
        **({} if config.like is None else {"selection": {"categories": chosen, "paper": PAPER}}),
        "splits": {split: {**written[split], "sha256": digests[split], "tokens": tokens[split]} for split in SPLITS},
        "vocabulary": {
            "size": len(vocabulary),
            "types": len(counts),
            "coverage": sum(counts[word] for word in known) / counts.total(),
        },
        "words_per_sentence": total["words"] / total["sentences"],
        "skipped": dict(sorted(shards.skipped.items())),
        "left_out_words": dict(sorted(shards.left_out.items())),
        "dropped_templates": dict(shards.templates.most_common(10)),
        "sources": shards.sources,
    }
