from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import ArrayLike

from spanlm.analysis.lags import LagAccumulator, LagProfile
from spanlm.scoring.attention import AttentionRecord, Expected, PartsRecord

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


UNKNOWN = np.empty(0), np.empty(0, dtype=np.int64)
"""Entropy and rank, which nothing writes."""


def make_record(words: list[str], window: int, title: str = "a model", nearest_lag: int = 1) -> AttentionRecord:
    """Attention that fills as a memory does: at t it holds the words up to `nearest_lag` back, if there are any."""
    count = len(words) - 1
    weights = np.random.default_rng(0).random((count, window)).astype(np.float32) + np.float32(0.1)
    for position in range(count):
        weights[position, : max(window - position - 1 + nearest_lag, 0)] = 0
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), np.float32(1e-9))
    expected = [[(word, 0.5), ("other", 0.25)][: position % 3] for position, word in enumerate(words[1:])]
    surprisal = np.linspace(0.5, 6.0, count)
    return AttentionRecord(words[:-1], words[1:], weights, surprisal, *UNKNOWN, expected, title, nearest_lag)


def mean_by_lag(weights: ArrayLike, nearest_lag: int = 1) -> LagProfile:
    """Return the mean attention by lag of `weights` (N, L) over the positions whose window is full.

    A window is taken to be full if its oldest slot, column 0, has weight: a memory fills from its nearest lag on.
    """
    accumulator, rows = LagAccumulator(), np.asarray(weights)
    accumulator.nearest_lag = nearest_lag
    accumulator.update(rows, np.where((rows[..., :1] > 0).any(-1), rows.shape[-1], 0))
    return accumulator.profile()


def make_sentence(
    words: list[str],
    *,
    window: int | None = None,
    nearest_lag: int = 1,
    unknown: tuple[str, ...] = (),
    gate: float = 0.0,
    name: str = "a model",
    memory: str = "a memory of some kind",
) -> AttentionRecord:
    """Random weights over all words before, or the last `window`; `gate` of each row lies on no word."""
    read, targets = ["<eos>", *words], [*words, "<eos>"]
    window = window or max(len(words), 1)
    weights = np.zeros((len(read), window), dtype=np.float32)
    draw = np.random.default_rng(0)
    for t in range(len(read)):
        slots = min(max(t + 1 - nearest_lag, 0), window)
        if slots:
            weights[t, window - slots :] = (1 - gate) * draw.dirichlet(np.full(slots, 3.0))
    surprisal = np.linspace(0.5, 6.0, len(read))
    record = AttentionRecord(read, targets, weights, surprisal, *UNKNOWN, [[]] * len(read), name, nearest_lag)
    return replace(record, about=memory, unknown=frozenset(unknown))


PARTS = ("encoder", "buffer", "mixture")


def make_spans(
    words: list[str], *, span: int = 3, spans: int = 4, zero: bool = False, title: str = "a model"
) -> AttentionRecord:
    """Random weights of `spans` spans, the newest of which ends at the word before; each part has four words.

    Spans begin within the text, or before it (`zero`).
    What came is the encoder's first word at even positions and the buffer's second at odd ones.
    """
    count, draw, buffer = len(words) - 1, np.random.default_rng(0), span * spans
    weights = np.zeros((count, buffer), dtype=np.float32)
    for t in range(count):
        ends = [end for end in range(t - 1, t - 1 - spans * span, -span) if end - (0 if zero else span - 1) >= 0]
        if ends:
            weights[t, [buffer - (t - end) for end in ends]] = draw.dirichlet(np.full(len(ends), 2.0))
    there = weights.any(axis=1)
    expected = {name: [_guesses(words[t + 1], t, n) for t in range(count)] for n, name in enumerate(PARTS)}
    expected["buffer"] = [row if held else [] for row, held in zip(expected["buffer"], there, strict=True)]
    chance = {name: draw.uniform(0.01, 0.9, count) for name in PARTS}
    chance["buffer"][~there] = np.nan
    return AttentionRecord(
        words[:-1],
        words[1:],
        weights,
        -np.log(chance["mixture"]),
        *UNKNOWN,
        expected["mixture"],
        title,
        span=span,
        parts=PartsRecord(expected, chance, there, draw.uniform(0, 1, count), np.full(count, 0.5)),
    )


def _guesses(came: str, t: int, part: int) -> Expected:
    row = [(f"{part}-{number}", 0.4 / (number + 1)) for number in range(4)]
    if part < 2 and t % 2 == part:
        row[part] = (came, row[part][1])
    return row


WORDS = ["<eos>", "the", "cat", "sat", "<eos>", "the", "dog", "ran", "<eos>"]


@pytest.fixture
def record() -> AttentionRecord:
    return make_record(WORDS, window=3)


@pytest.fixture
def current() -> AttentionRecord:
    """As `record`, of a model whose window holds the word just read."""
    return make_record(WORDS, window=3, nearest_lag=0)


@pytest.fixture
def hostile() -> AttentionRecord:
    return make_record(["<eos>", *HOSTILE, *HOSTILE], window=4, title='<b onload="x">&</title><script>')
