"""The page of a span buffer: a word, the spans it was predicted from, and what each part of the model expected."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spanlm.analysis.reading import Expected
from spanlm.analysis.self_contained import self_contained
from spanlm.analysis.spans import PARTS, SpanRecord
from spanlm.data.vocabulary import EOS

_SHADE_QUANTILE = 0.99  # the darkest blue: a few single peaks must not make all the rest pale
_UNITS = 10_000  # of a weight: of 256 spans most have less than a hundredth


def render_span_page(record: SpanRecord) -> str:
    """Return `record` as a self-contained HTML page.

    A word clicked stays open and puts its position into the address: `page.html#pos=12` opens position 12, counted as
    in `SpanRecord` and in the files.
    """
    return self_contained(
        "span_page.html",
        _payload(record),
        styles=("page.css", "span_page.css"),
        scripts=("reader.js", "span_page.js"),
        title=record.title,
    )


def _payload(record: SpanRecord) -> dict[str, object]:
    """Return what the page's script reads, rounded to keep long texts small."""
    gates = [round(float(gate), 4) if there else None for gate, there in zip(record.gate, record.filled, strict=True)]
    chance = record.chance[:, PARTS.index("mixture")]
    weights = [_newest_first(record, t) for t in range(len(record))]
    return {
        "eos": EOS,
        "span": record.span,
        # token t is the word read at position t, token t + 1 the one that came next
        "tokens": [record.words[0], *record.targets],
        "gate": gates,
        "newest": [_newest(record, t) for t in range(len(record))],
        "weights": [np.rint(_UNITS * row).astype(int).tolist() for row in weights],
        "bits": np.round(-np.log2(np.maximum(chance, np.finfo(np.float64).tiny)), 2).tolist(),
        "expected": {part: list(map(_rounded, getattr(record, part))) for part in PARTS},
        "darkest": _darkest(weights),
    }


def _newest(record: SpanRecord, position: int) -> int:
    """Return where the newest span ends that a position looked at; before the text where there is none."""
    return max((look.last for look in record.looks(position)), default=-1)


def _newest_first(record: SpanRecord, position: int) -> NDArray[np.float64]:
    """Return the weights of a position's spans, each `span` words before the last."""
    looks, newest = record.looks(position), _newest(record, position)
    row = np.zeros(max(((newest - look.last) // record.span + 1 for look in looks), default=0))
    for look in looks:
        row[(newest - look.last) // record.span] = look.weight
    return row


def _rounded(expected: Expected) -> list[tuple[str, float]]:
    return [(word, float(f"{chance:.3g}")) for word, chance in expected]


def _darkest(weights: list[NDArray[np.float64]]) -> float:
    """Return the weight shown in the darkest blue, one for the whole text so that shades can be compared.

    Where few spans share all the weight each has much: rows with at least half as many as the longest count.
    """
    longest = max(map(len, weights))
    seen = np.concatenate([row for row in weights if 2 * len(row) >= longest])
    return max(round(float(np.quantile(seen, _SHADE_QUANTILE)), 4), 1 / _UNITS) if longest else 1.0
