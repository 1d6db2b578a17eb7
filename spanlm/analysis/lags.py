"""Lags: how many steps back a column of attention is, and how that is written.

Column j of a window of L is lag L - 1 - j + n, where n is the nearest lag: 1 where the window ends at the step
before, 0 where it holds the current word, too.
"""

from __future__ import annotations


def lag_range(window: int, nearest_lag: int) -> range:
    """Return the lag of each of `window` columns, oldest first."""
    return range(window - 1 + nearest_lag, nearest_lag - 1, -1)


def signed(lag: int) -> str:
    """Write a lag as the paper's axis does: −3 is three words back, 0 the current word."""
    return f"−{lag}" if lag else "0"


def in_words(lag: int) -> str:
    """Write a lag where nothing else explains it."""
    return signed(lag) if lag else "0 (current word)"


def axis_title(nearest_lag: int) -> str:
    """Return what stands at an axis of lags."""
    return "words back" if nearest_lag else "words back (0: the current word)"
