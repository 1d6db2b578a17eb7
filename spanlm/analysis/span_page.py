"""The page of a span buffer: a word, the spans it was predicted from, and what each part of the model expected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spanlm.analysis.reader_page import darkest, reader_page
from spanlm.analysis.reading import Expected
from spanlm.analysis.spans import PARTS, Look, SpanRecord
from spanlm.data.vocabulary import EOS
from spanlm.store.plain import finite

_UNITS = 10_000  # of a weight: of 256 spans most have less than a hundredth
_TEXTS = {
    "introduction": (
        "Point at a word: the spans of words before it turn blue where the buffer looked while it was guessed, deeper "
        "for more weight (the small numbers are percent). The panel shows how much the gate preferred the buffer, and "
        "what the buffer, the encoder and both together expected."
    ),
    "tint": "Tint by the gate: λ 0",
    "most_tint": "1",
    "footnote": " λ is how much the gate prefers the buffer, before its temperature.",
}


def render_span_page(record: SpanRecord) -> str:
    """Return `record` as a self-contained HTML page.

    A word clicked stays open and puts its position into the address: `page.html#pos=12` opens position 12, counted as
    in `SpanRecord` and in the files.
    """
    return reader_page(
        _payload(record),
        panel="spans_panel.html",
        script="span_page.js",
        styles=("span_page.css",),
        title=record.title,
        texts={**_TEXTS, "just_read": "just read, in no span yet" if record.nearest_lag else "just read"},
    )


def _payload(record: SpanRecord) -> dict[str, object]:
    """Return what the page's script reads, rounded to keep long texts small."""
    gates = [round(float(gate), 4) if there else None for gate, there in zip(record.gate, record.filled, strict=True)]
    chance = record.chance[:, PARTS.index("mixture")]
    newest, weights = zip(*(_newest_first(record.looks(t), record.span) for t in range(len(record))), strict=True)
    return {
        "eos": EOS,
        "span": record.span,
        # token t is the word read at position t, token t + 1 the one that came next
        "tokens": [record.words[0], *record.targets],
        "gate": gates,
        "newest": list(newest),
        "weights": [np.rint(_UNITS * row).astype(int).tolist() for row in weights],
        "bits": finite(np.round(-np.log2(np.maximum(chance, np.finfo(np.float64).tiny)), 2).tolist()),
        "first": [record.first(t) for t in range(len(record))],
        "expected": {part: list(map(_rounded, getattr(record, part))) for part in PARTS},
        "darkest": darkest(_with_a_choice(weights), _UNITS),
    }


def _newest_first(looks: Sequence[Look], span: int) -> tuple[int, NDArray[np.float64]]:
    """Return where a position's newest span ends, before the text without any, and all weights, the newest first.

    Each span ends `span` words before the last.
    """
    newest = max((look.last for look in looks), default=-1)
    row = np.zeros(max(((newest - look.last) // span + 1 for look in looks), default=0))
    for look in looks:
        row[(newest - look.last) // span] = look.weight
    return newest, row


def _rounded(expected: Expected) -> list[tuple[str, float]]:
    return [(word, float(f"{chance:.3g}")) for word, chance in expected]


def _with_a_choice(weights: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return those of rows with at least half as many spans as the longest: where few share all, each has much."""
    longest = max(map(len, weights))
    return np.concatenate([row for row in weights if 2 * len(row) >= longest])
