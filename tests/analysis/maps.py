"""Maps of sentences without a model."""

from __future__ import annotations

import numpy as np

from spanlm.analysis.sentences import SentenceMap
from spanlm.evaluation.attention import AttentionRecord


def make_sentence(
    words: list[str],
    *,
    window: int | None = None,
    nearest_lag: int = 1,
    unknown: tuple[str, ...] = (),
    gate: float = 0.0,
    name: str = "a model",
    memory: str = "a memory of some kind",
) -> SentenceMap:
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
    record = AttentionRecord(read, targets, weights, surprisal, [[]] * len(read), name, nearest_lag)
    return SentenceMap(name, memory, record, frozenset(unknown))
