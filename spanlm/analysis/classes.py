"""Classes of the tokens of a text, by which a difference of models is taken apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spanlm.data.text import Text, lines_of, pieces
from spanlm.data.tokenizer import written_words
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError
from spanlm.scoring.options import Context

Counts = NDArray[np.int64]

SPECIAL = (EOS, UNK)
MOST_TAGS = 20
FLAT = 1.5
"""Times the weight of equal shares that the largest weight must have, or attention is diffuse."""


@dataclass(frozen=True, eq=False)
class Classes:
    """A way to sort tokens: `title` and `names` of the classes for people, `labels` (N,) into them; −1: into none."""

    title: str
    names: tuple[str, ...]
    labels: Counts

    def where(self, mask: NDArray[np.bool_]) -> Classes:
        """Take all tokens outside a `mask` (N,) out of their classes."""
        return Classes(self.title, self.names, np.where(mask, self.labels, -1))


@dataclass(frozen=True, eq=False)
class Looks:
    """Where a memory looked before each of N tokens."""

    lag: Counts  # of the slot with the largest weight: how many steps back it ends
    peak: NDArray[np.float32]  # that weight, as a share of all slots'
    slots: Counts  # how many slots there were
    stride: int = 1  # how many words a slot holds
    nearest: int = 1  # the lag of the nearest slot


def line_starts(ids: Counts, eos_id: int) -> Counts:
    """Return the first token of each line."""
    return np.append(0, np.flatnonzero(ids[:-1] == eos_id) + 1)


def openings(context: Context, ids: Counts, documents: Counts, eos_id: int) -> Counts:
    """Return the first token of each context: the text, its documents or its lines."""
    if context == "line":
        return line_starts(ids, eos_id)
    return documents if context == "document" else np.zeros(1, np.int64)


def by_edges(title: str, values: Counts, firsts: Sequence[int], unit: str = "") -> Classes:
    """Sort numbers into ranges that begin at `firsts`; those below the first are in none."""
    ends = [f"–{after - 1:,}" if after - 1 > first else "" for first, after in pairwise(firsts)]
    names = [f"{first:,}{end}{unit}" for first, end in zip(firsts, [*ends, " or more"], strict=True)]
    return Classes(title, tuple(names), np.digitize(values, firsts) - 1)


def by_frequency(ids: Counts, vocabulary: Vocabulary, counts: Counts) -> Classes:
    """By how often a word stands in the training text; <eos> and <unk> apart."""
    by_count = by_edges("frequency in training", counts[ids], (0, 1, 10, 100, 1_000, 10_000), " times")
    special = np.select([ids == vocabulary.eos_id, ids == vocabulary.unk_id], [0, 1], -1)
    labels = np.where(special >= 0, special + len(by_count.names), by_count.labels)
    return Classes(by_count.title, (*by_count.names, *SPECIAL), labels)


def is_word(ids: Counts, vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Whether each token is a word of the vocabulary, so neither <eos> nor <unk>."""
    return np.asarray((ids != vocabulary.eos_id) & (ids != vocabulary.unk_id))


def distances(ids: Counts, starts: Counts) -> Counts:
    """Return how many tokens back each word last stood in its context; 0: it is new. Contexts begin at `starts`."""
    context = np.searchsorted(starts, np.arange(len(ids)), side="right")
    order = np.lexsort((ids, context))  # stable: in the order of the text within each
    same = (np.diff(ids[order]) == 0) & (np.diff(context[order]) == 0)
    back = np.zeros(len(ids), np.int64)
    back[order[1:]] = np.where(same, np.diff(order), 0)
    return back


def by_recurrence(ids: Counts, vocabulary: Vocabulary, starts: Counts) -> Classes:
    """Words by how many tokens back they last stood."""
    back = by_edges("words by last occurrence", distances(ids, starts), (0, 1, 6, 51, 501), " back")
    return Classes(back.title, ("new", *back.names[1:]), back.labels).where(is_word(ids, vocabulary))


REPEATED, NEW = "words that repeat", "new ones"


def by_novelty(ids: Counts, vocabulary: Vocabulary, starts: Counts) -> Classes:
    """Words that stood in the context before, and those that did not."""
    labels = (distances(ids, starts) == 0).astype(np.int64)
    return Classes("words", (REPEATED, NEW), labels).where(is_word(ids, vocabulary))


def places(tokens: int, begins: Counts) -> Counts:
    """Number the tokens from each beginning on, from 1."""
    at = np.arange(tokens)
    return at + 1 - begins[np.searchsorted(begins, at, side="right") - 1]


ATTENDED = ("nothing yet", "diffuse", "the target itself", "before the target", EOS, "nearest slot", "older slot")


def by_attention(looks: Looks, ids: Counts, starts: Counts, eos_id: int, name: str) -> Classes:
    """By where a memory looked most: the first that holds of `ATTENDED`.

    There was no slot; of several, the largest weight is below `FLAT` times that of equal ones; the slot holds the word
    that is then the target; the word after it was that; it holds <eos>; it is the nearest one.
    """
    at = np.arange(len(ids))
    first = starts[np.searchsorted(starts, at, side="right") - 1]
    inputs = np.where(at == first, eos_id, np.append(eos_id, ids[:-1]))

    def held(word: Counts, later: int = 0) -> NDArray[np.bool_]:
        """Whether a slot holds a word; `later` 1: whether the word stands after its last one."""
        matches = np.zeros(len(ids), np.bool_)
        for back in range(1 if later else looks.stride):
            source = at - looks.lag - back + later
            inside = (source >= first) & (source <= at)
            matches |= inside & (inputs[np.where(inside, source, 0)] == word)
        return matches

    holds = [
        looks.slots == 0,
        (looks.slots > 1) & (looks.peak * looks.slots < FLAT),
        held(ids),
        held(ids, later=1),
        held(np.full_like(ids, eos_id)),
        looks.lag == looks.nearest,
    ]
    labels = np.select(holds, range(len(holds)), len(holds))
    return Classes(f"where {name} looked most", ATTENDED, labels)


def by_tag(path: Path, ids: Counts, vocabulary: Vocabulary) -> Classes:
    """By the part of speech in a file: the text's lines, each word as `word_TAG`; <eos> has none."""
    lines, tags = lines_of(pieces(Text(path, as_text=True))), list[str]()
    ends = np.flatnonzero(ids == vocabulary.eos_id)
    begin = 0
    for number, (end, line) in enumerate(zip(ends.tolist(), lines, strict=False), 1):
        tags += [*_tags_of(line, ids[begin:end].tolist(), vocabulary, f"{path}, line {number}"), ""]
        begin = end + 1
    if begin < len(ids) or next(lines, None) is not None:
        raise InputError(f"{path}: has other lines than the text, which has {len(ends):,}. Tag the same text.")
    common = [tag for tag, _ in Counter(filter(None, tags)).most_common(MOST_TAGS)]
    names = (*common, "other")
    numbers = {tag: number for number, tag in enumerate(common)} | {"": -1}
    return Classes("part of speech", names, np.array([numbers.get(tag, len(common)) for tag in tags], dtype=np.int64))


def _tags_of(line: str, ids: list[int], vocabulary: Vocabulary, place: str) -> list[str]:
    both = [word.rpartition("_") for word in written_words(line)]
    if len(both) != len(ids):
        raise InputError(f"{place}: has {len(both)} words, and the text {len(ids)} there. Tag it as the run cuts it.")
    for (word, _, tag), id in zip(both, ids, strict=True):
        if not word or not tag:
            raise InputError(f"{place}: {tag or word!r} has no tag; write each word as word_TAG")
        if vocabulary.id(word) != id and vocabulary.id(word.lower()) != id:
            raise InputError(f"{place}: {word!r} is {vocabulary.word(id)!r} in the text. Tag the same text.")
    return [tag for _, _, tag in both]
