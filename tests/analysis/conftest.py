from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike

from spanlm.analysis.lags import LagAccumulator, LagProfile
from spanlm.evaluation.attention import AttentionRecord

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "<!--",
    "{{script}}",
    'say "a, b"',
    "&amp;",
    "NA",
    "bell\x07",
    "שלום",
    "日本語",
    "$\\frac$",
    "line\u2028end",
)


def make_record(words: list[str], window: int, title: str = "a model", nearest_lag: int = 1) -> AttentionRecord:
    """Attention that fills as a memory does: at t it holds the words up to `nearest_lag` back, if there are any."""
    count = len(words) - 1
    weights = np.random.default_rng(0).random((count, window)).astype(np.float32) + np.float32(0.1)
    for position in range(count):
        weights[position, : max(window - position - 1 + nearest_lag, 0)] = 0
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), np.float32(1e-9))
    expected = [[(word, 0.5), ("other", 0.25)][: position % 3] for position, word in enumerate(words[1:])]
    surprisal = np.linspace(0.5, 6.0, count)
    return AttentionRecord(words[:-1], words[1:], weights, surprisal, expected, title, nearest_lag)


def mean_by_lag(weights: ArrayLike, nearest_lag: int = 1) -> LagProfile:
    """Return the mean attention by lag of `weights` (N, L) over the positions whose window is full.

    A window is taken to be full if its oldest slot, column 0, has weight: a memory fills from its nearest lag on.
    """
    accumulator, rows = LagAccumulator(), np.asarray(weights)
    accumulator.nearest_lag = nearest_lag
    accumulator.update(rows, np.where((rows[..., :1] > 0).any(-1), rows.shape[-1], 0))
    return accumulator.profile()


@pytest.fixture
def record() -> AttentionRecord:
    return make_record(["<eos>", "the", "cat", "sat", "<eos>", "the", "dog", "ran", "<eos>"], window=3)


@pytest.fixture
def current() -> AttentionRecord:
    """As `record`, of a model whose window holds the word just read."""
    words = ["<eos>", "the", "cat", "sat", "<eos>", "the", "dog", "ran", "<eos>"]
    return make_record(words, window=3, nearest_lag=0)


@pytest.fixture
def hostile() -> AttentionRecord:
    return make_record(["<eos>", *HOSTILE, *HOSTILE], window=4, title='<b onload="x">&</title><script>')
