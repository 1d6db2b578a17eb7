"""The attention page, in which a class or a reader explores a text: a word and the words before it."""

from __future__ import annotations

import numpy as np

from spanlm.analysis.by_lag import LagAccumulator
from spanlm.analysis.reader_page import darkest, reader_page
from spanlm.analysis.record import AttentionRecord
from spanlm.data.vocabulary import EOS
from spanlm.store.plain import finite

_TEXTS = {
    "introduction": (
        "Point at a word: the words before it turn blue where the model looked while it was guessing, deeper for more "
        "weight (the small numbers are percent). The panel shows what it expected, what really came, and how surprised "
        "it was, in bits: each bit halves the probability."
    ),
    "tint": "Tint by surprisal",
    "most_tint": "16 bits",
    "footnote": "",
}
_UNITS = 1000  # of a weight


def render_page(record: AttentionRecord) -> str:
    """Return `record` as a self-contained HTML page.

    A word clicked stays open and puts its position into the address: `page.html#pos=12` opens position 12,
    counted as in `AttentionRecord` and in the CSV file.
    """
    just_read = "just read, known without looking back" if record.nearest_lag else "just read (0 in the panel)"
    return reader_page(
        _payload(record),
        panel="words_panel.html",
        script="page.js",
        title=record.title,
        texts={**_TEXTS, "just_read": just_read},
    )


def _payload(record: AttentionRecord) -> dict[str, object]:
    """Return what the page's script reads; weights and probabilities in thousandths keep long texts small."""
    # token t is the word read at position t, token t + 1 the one that came next
    return {
        "eos": EOS,
        "window": record.window,
        "nearest": record.nearest_lag,
        "tokens": [record.words[0], *record.targets],
        "weights": np.rint(_UNITS * record.weights.astype(np.float64)).astype(int).tolist(),
        "bits": finite(np.round(record.bits, 2).tolist()),
        "held": record.occupied.sum(axis=1).tolist(),
        "expected": [[[word, float(f"{chance:.3g}")] for word, chance in row] for row in record.expected],
        "mean": _mean_percent(record),
        "darkest": darkest(record.settled[record.settled > 0], _UNITS),
    }


def _mean_percent(record: AttentionRecord) -> list[float] | None:
    """Return the mean attention by lag, or None where the window is not full, or only in the end."""
    accumulator = LagAccumulator()
    accumulator.update(record.weights, record.occupied.sum(axis=1))
    # of a window that grows with the text only the last is full
    if accumulator.positions <= 1:
        return None
    return [round(percent, 2) for percent in accumulator.profile().percent]
