"""Lags: how many steps back a column of attention is, and how that is written.

Column j of a window of L is lag L - 1 - j + n, where n is the nearest lag: 1 where the window ends at the step
before, 0 where it holds the current word, too.
"""

from __future__ import annotations

from itertools import pairwise

MOST_ROWS = 50
"""Lags that a table has a row for, each."""


def lag_range(window: int, nearest_lag: int, span: int = 1) -> range:
    """Return the lag of each of `window` columns, oldest first; of spans the lag where each ends."""
    return range((window - 1) * span + nearest_lag, nearest_lag - 1, -span)


def lag_groups(lags: range) -> list[range]:
    """Cut lags, oldest first, into the rows of a table: one each, or if they are many the nearest 1, 1, 2, 4, 8, …."""
    if len(lags) <= MOST_ROWS:
        return [lags[number : number + 1] for number in range(len(lags))]
    edges = [0, *(2**power for power in range((len(lags) - 1).bit_length())), len(lags)]
    return [lags[len(lags) - far : len(lags) - near] for near, far in pairwise(edges)][::-1]


def signed(lag: int) -> str:
    """Write a lag as the paper's axis does: −3 is three words back, 0 the current word."""
    return f"−{lag}" if lag else "0"


def in_words(lag: int) -> str:
    """Write a lag where nothing else explains it."""
    return signed(lag) if lag else "0 (current word)"


def axis_title(nearest_lag: int, span: int = 1) -> str:
    """Return what stands at an axis of lags."""
    if span > 1:
        return f"words back to the last word of a span of {span}"
    return "words back" if nearest_lag else "words back (0: the current word)"
