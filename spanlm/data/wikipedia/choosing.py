"""The words that a corpus keeps: the most frequent of its training part."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

import numpy as np

from spanlm.errors import InputError

SPECIALS = 2
"""`<unk>` and `<eos>`, which every vocabulary has."""


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
