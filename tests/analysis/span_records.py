"""What a span buffer did, without a model."""

from __future__ import annotations

import numpy as np

from spanlm.evaluation.attention import Expected, SpanRecord


def make_spans(
    words: list[str], *, span: int = 3, spans: int = 4, zero: bool = False, title: str = "a model"
) -> SpanRecord:
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
    filled = weights.any(axis=1)
    encoder, buffered, mixture = ([_guesses(words[t + 1], t, n) for t in range(count)] for n in range(3))
    chance = draw.uniform(0.01, 0.9, (count, 3))
    chance[~filled, 1] = np.nan
    return SpanRecord(
        words=words[:-1],
        targets=words[1:],
        weights=weights,
        span=span,
        nearest_lag=1,
        filled=filled,
        gate=draw.uniform(0, 1, count),
        used=np.full(count, 0.5),
        encoder=encoder,
        buffer=[row if there else [] for row, there in zip(buffered, filled, strict=True)],
        mixture=mixture,
        chance=chance,
        title=title,
    )


def _guesses(came: str, t: int, part: int) -> Expected:
    row = [(f"{part}-{number}", 0.4 / (number + 1)) for number in range(4)]
    if part < 2 and t % 2 == part:
        row[part] = (came, row[part][1])
    return row
