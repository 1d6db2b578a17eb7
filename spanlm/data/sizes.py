"""Checks and orders that all batchers share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spanlm.errors import require


def at_least_one(field: str, value: int) -> int:
    """Return a size.

    Raises:
        InputError: It is below 1.
    """
    require(value >= 1, field, value, "at least 1")
    return value


def not_negative(start: int) -> int:
    """Return the number of a segment to start at.

    Raises:
        InputError: It is negative.
    """
    require(start >= 0, "start", start, "at least 0")
    return start


def drawn_order(items: int, shuffle: bool, seed: int) -> NDArray[np.int64]:
    """Return the order of items: their own, or one drawn with the seed."""
    return np.random.default_rng(seed).permutation(items) if shuffle else np.arange(items)
