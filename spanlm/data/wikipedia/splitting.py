"""Whole articles to train, valid and test, by seed, in the paper's proportions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spanlm.data.config import SPLITS
from spanlm.errors import InputError

# millions of words (§4)
PROPORTIONS = {"train": 22.5, "valid": 1.2, "test": 1.2}
TRAIN, VALID, TEST = range(len(SPLITS))


def draw(seed: int, id: str) -> int:
    """Return this article's lot, 64 bits: it depends on the seed and the id, not on other articles or their order."""
    return int.from_bytes(hashlib.sha256(f"{seed} {id}".encode()).digest()[:8], "big")


def split_articles(lots: Sequence[int], words: Sequence[int]) -> NDArray[np.int8]:
    """Give every article to a split: an index into `SPLITS`.

    In the order of their lots, articles go to valid until it has its share of all words, then to test until that
    has its own; the others are train. So a held-out split has its share and part of an article more, and no
    article is likelier to be held out than another because of its length.

    Args:
        lots: What `draw` says for each.
        words: Its words.

    Raises:
        InputError: There are fewer than three articles.
    """
    if len(lots) < len(SPLITS):
        raise InputError(
            f"{len(lots)} article(s) cannot be split into train, valid and test; give a source with three or more"
        )
    order = np.argsort(np.asarray(lots, np.uint64), kind="stable")
    sizes = np.asarray(words, np.int64)[order]
    total = float(sizes.sum())
    splits = np.full(len(order), TRAIN, np.int8)
    begin = 0
    for split, left in ((VALID, 2), (TEST, 1)):
        share = PROPORTIONS[SPLITS[split]] / sum(PROPORTIONS.values()) * total
        reached = int(np.searchsorted(np.cumsum(sizes[begin:]), share)) + 1
        # each of the splits that are still to come needs one, too
        end = min(begin + reached, len(order) - left)
        splits[order[begin:end]] = split
        begin = end
    return splits
