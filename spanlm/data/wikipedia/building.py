"""A corpus from its sources: two passes, in memory that grows with the number of different words.

First every source is cut into words (`shards`); then articles are dealt out to the splits, the words of the training
part are counted, and the shards become the corpus. Until it is whole, all is in a hidden folder beside it.

    train.txt  valid.txt  test.txt    a sentence a line, words parted by spaces, a blank line after every article
    articles.tsv                      every article: split, id, title, sentences, words
    corpus.json                       counts, options, sources
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from spanlm.data.config import SPLITS
from spanlm.data.vocabulary import UNK
from spanlm.data.wikipedia.articles import CATEGORY, WikipediaConfig
from spanlm.data.wikipedia.shards import Report, Shards, versions
from spanlm.data.wikipedia.sources import find_sources
from spanlm.errors import InputError, RunError
from spanlm.store.files import UNFINISHED, expanded, hold, remove_unfinished, sync_folder, write_synced

PROPORTIONS = {"train": 22.5, "valid": 1.2, "test": 1.2}
"""Millions of words (§4)."""
SUMMARY = "corpus.json"

_SPECIALS = 2  # <unk> and <eos>, which every vocabulary has
_EXAMPLES = 5
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Built:
    """The content of `corpus.json`; the first articles that could not be read, and why; how many shards were reused."""

    summary: dict[str, Any]
    unread: list[str]
    reused: int


def build_corpus(config: WikipediaConfig, report: Report = lambda progress: None) -> Built:
    """Build the corpus.

    The processes are started afresh (`spawn`): a script that calls this with `jobs` above 1 does so under
    `if __name__ == "__main__":`.

    Args:
        config: What is asked for.
        report: Is told of the progress; what it raises ends the build.

    Raises:
        InputError: A source is not what it should be or is damaged, fewer than three articles are left, `config.out`
            holds something, or the vocabulary asked for is larger than there are words.
        RunError: A process was ended from outside, another one builds the same corpus, or the disk is full.
    """
    sources = find_sources(config.sources)
    out = Path(os.path.abspath(expanded(config.out)))
    with _workplace(out) as folder:
        shards = Shards(config, sources, folder, report)
        shards.fill()
        if len(shards.words) < len(SPLITS):
            shutil.rmtree(folder)
            raise _too_few(config, shards, [str(source.path) for source in sources])
        corpus = folder / "corpus"
        corpus.mkdir()
        summary = _write(config, shards, corpus)
        summary["versions"] = versions(any(source.kind == "xml" for source in sources))
        write_synced(corpus / SUMMARY, (json.dumps(summary, ensure_ascii=False, indent=1) + "\n").encode())
        sync_folder(corpus)
        os.rename(corpus, out)
        sync_folder(out.parent)
        shutil.rmtree(folder)
    return Built(summary, [line for shard in shards.every for line in shard.unread][:_EXAMPLES], shards.reused)


def _too_few(config: WikipediaConfig, shards: Shards, files: list[str]) -> InputError:
    if shards.words:
        return InputError(
            f"{len(shards.words)} article(s) cannot be split into train, valid and test; give a source with three or "
            "more"
        )
    skipped = _summed(shard.skipped for shard in shards.every)
    if CATEGORY in skipped:
        names = dict.fromkeys(name for shard in shards.every for name in shard.categories)
        examples = ", ".join(list(names)[:_EXAMPLES])
        known = f"there are, for example: {examples}" if examples else "the articles name no categories"
        return InputError(f"--category={config.category}: is found in no category of an article; {known}")
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in skipped.items()) or "nothing"
    return InputError(f"{', '.join(files[:3])}: no article in it (skipped: {reasons}); give another --source")


def split_articles(lots: Sequence[int], words: Sequence[int]) -> NDArray[np.int8]:
    """Give each of three or more articles to a split: an index into `SPLITS`.

    In the order of their lots, articles go to valid until it has its share of all words, then to test until that
    has its own; the others are train. So a held-out split has its share and part of an article more, and no
    article is likelier to be held out than another because of its length.

    Args:
        lots: What `draw` says for each.
        words: Its words.
    """
    order = np.argsort(np.asarray(lots, np.uint64), kind="stable")
    sizes = np.asarray(words, np.int64)[order]
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


def choose_words(counts: Counter[str], vocabulary: int, coverage: float | None = None) -> frozenset[str]:
    """Choose the words that stay; of those that occur equally often, the ones seen first.

    Args:
        counts: How often each word occurs in the training part, in the order in which they come up.
        vocabulary: How many, `<unk>` and `<eos>` included.
        coverage: As few as have this share of all, instead.

    Raises:
        InputError: More are asked for than there are.
    """
    every = len(counts) + _SPECIALS
    ordered = counts.most_common()
    if coverage is not None:
        reached = np.cumsum([count for _, count in ordered])
        vocabulary = _SPECIALS + 1 + int(np.searchsorted(reached, coverage * int(reached[-1])))
    elif vocabulary > every:
        raise InputError(
            f"--vocabulary={vocabulary}: the training part has only {len(counts):,} different words, {every:,} with "
            f"<unk> and <eos>. Give --vocabulary {every} for all of them, fewer, or --coverage 0.97"
        )
    return frozenset(word for word, _ in ordered[: vocabulary - _SPECIALS])


def _write(config: WikipediaConfig, shards: Shards, corpus: Path) -> dict[str, Any]:
    """Write the texts of all splits and the list of articles; return their summary."""
    splits = split_articles(shards.lots, shards.words).tolist()
    counts: Counter[str] = Counter()
    for split, (_, _, text) in zip(splits, shards.articles("counting"), strict=True):
        if SPLITS[split] == "train":
            counts.update(text.split())
    known = choose_words(counts, config.vocabulary, config.coverage)
    with ExitStack() as stack:
        files = [stack.enter_context((corpus / f"{split}.txt").open("wb")) for split in SPLITS]
        writers = [_SplitWriter(file, known) for file in files]
        listed = stack.enter_context((corpus / "articles.tsv").open("wb"))
        listed.write(b"split\tid\ttitle\tsentences\twords\n")
        for split, (id, title, text) in zip(splits, shards.articles("writing"), strict=True):
            sentences, words = writers[split].write(text)
            listed.write(f"{SPLITS[split]}\t{id}\t{title}\t{sentences}\t{words}\n".encode())
        for file in (*files, listed):
            file.flush()
            os.fsync(file.fileno())
        written = {split: writer.summary() for split, writer in zip(SPLITS, writers, strict=True)}
    size = {"vocabulary": config.vocabulary} if config.coverage is None else {"coverage": config.coverage}
    asked = ("category", "articles", "seed", "lowercase", "keep_partial")
    return {
        "format": 1,
        "kind": "wikipedia",
        "options": {**size, **{name: getattr(config, name) for name in asked}},
        "splits": written,
        "vocabulary": {
            "size": len(known) + _SPECIALS,
            "types": len(counts),
            "coverage": sum(counts[word] for word in known) / counts.total(),
        },
        "words_per_sentence": sum(split["words"] for split in written.values())
        / sum(split["sentences"] for split in written.values()),
        "skipped": _summed(shard.skipped for shard in shards.every),
        "left_out_words": _summed(shard.left_out for shard in shards.every),
        "sources": [shard.source for shard in shards.every],
    }


def _summed(counts: Iterator[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(sorted(total.items()))


class _SplitWriter:
    def __init__(self, file: BinaryIO, known: Collection[str]) -> None:
        self._file = file
        self._known = known
        self._digest = hashlib.sha256()
        self._counts = Counter(articles=0, sentences=0, words=0, unknown=0)

    def write(self, text: str) -> tuple[int, int]:
        """Write an article; return its sentences and words."""
        lines = []
        for line in text.splitlines():
            words = [word if word in self._known else UNK for word in line.split(" ")]
            self._counts.update(sentences=1, words=len(words), unknown=words.count(UNK))
            lines.append(" ".join(words))
        content = ("\n".join(lines) + "\n\n").encode()
        self._file.write(content)
        self._digest.update(content)
        self._counts["articles"] += 1
        return len(lines), sum(line.count(" ") + 1 for line in lines)

    def summary(self) -> dict[str, Any]:
        """Return the counts; tokens are what a model reads: words, an `<eos>` a sentence and one an article."""
        tokens = sum(self._counts[name] for name in ("words", "sentences", "articles"))
        return {**self._counts, "sha256": self._digest.hexdigest(), "tokens": tokens}


@contextmanager
def _workplace(out: Path) -> Iterator[Path]:
    """Hold the hidden folder in which the corpus `out` is made; it stays, with its shards, if the block fails.

    Raises:
        InputError: `out` holds something, or cannot be made.
        RunError: Another process is at work there, or the disk is full.
    """
    _check_free(out)
    folder = out.parent / f".{out.name}{UNFINISHED}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = hold(folder / ".lock")
    except BlockingIOError:
        raise RunError(f"--out={out}: another process is making it; wait for it, or choose another folder") from None
    except OSError as error:
        raise InputError(f"--out={out}: cannot be made ({error.strerror}); choose another folder") from error
    kept = f"sources that were read to their ends are kept in {folder}"
    with lock:
        remove_unfinished(folder)
        shutil.rmtree(folder / "corpus", ignore_errors=True)
        try:
            yield folder
        except InputError as error:
            raise InputError(f"{error}; {kept}") if any(folder.glob("*.json")) else error from None
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise RunError(
                f"--out={out}: {error.strerror}; make room and give the same command again: {kept}"
            ) from error
        finally:
            if not any(folder.glob("*.json")):
                shutil.rmtree(folder, ignore_errors=True)


def _check_free(out: Path) -> None:
    if out.is_dir() and (entries := sorted(entry.name for entry in out.iterdir())):
        what = "a corpus already" if SUMMARY in entries else f"other files already ({', '.join(entries[:3])}, …)"
        raise InputError(f"--out={out}: holds {what}; choose another folder, or delete it first")
    if (out.exists() or out.is_symlink()) and not out.is_dir():
        raise InputError(f"--out={out}: is a file; choose another name for the folder")
