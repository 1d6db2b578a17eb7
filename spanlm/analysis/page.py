"""The attention page: one HTML file, without network, in which a class or a reader explores a text.

The words of a text are data, never markup: they travel as JSON whose `<`, `>` and `&` are escaped, and the
script puts them into text nodes. The Content-Security-Policy lets nothing run or load but the one script and
the one style sheet whose SHA-256 it names.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib import resources

import numpy as np

from spanlm.analysis.by_lag import LagAccumulator
from spanlm.analysis.record import AttentionRecord
from spanlm.data.vocabulary import EOS

_SHADE_QUANTILE = 0.99  # the darkest blue: a few single peaks must not make all the rest pale
_SHOWN = 8  # guesses shown for a position


def render_page(record: AttentionRecord) -> str:
    """Return `record` as a self-contained HTML page.

    A word clicked stays open and puts its position into the address: `page.html#pos=12` opens position 12,
    counted as in `AttentionRecord` and in the CSV file.
    """
    style, script = _resource("page.css"), _resource("page.js")
    parts = {
        "policy": _policy(style, script),
        "title": html.escape(record.title.encode("utf-8", "replace").decode("utf-8")),
        "style": style,
        "record": _json(_payload(record)),
        "script": script,
        "just_read": "just read, known without looking back" if record.nearest_lag else "just read (0 in the panel)",
    }
    # one pass: what is put in is not searched again, so a word may be {{script}}
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _resource("page.html"))


def _resource(name: str) -> str:
    return resources.files("spanlm.analysis").joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _json(value: object) -> str:
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _payload(record: AttentionRecord) -> dict[str, object]:
    """Return what the page's script reads; weights and probabilities in thousandths keep long texts small."""
    # token t is the word read at position t, token t + 1 the one that came next
    return {
        "eos": EOS,
        "window": record.window,
        "nearest": record.nearest_lag,
        "tokens": [record.words[0], *record.targets],
        "weights": np.rint(1000 * record.weights.astype(np.float64)).astype(int).tolist(),
        "bits": np.round(record.bits, 2).tolist(),
        "expected": [[[word, float(f"{chance:.3g}")] for word, chance in row[:_SHOWN]] for row in record.expected],
        "mean": _mean_percent(record),
        "darkest": _darkest(record),
    }


def _mean_percent(record: AttentionRecord) -> list[float] | None:
    """Return the mean attention by lag, or None where the window is not full, or only in the end."""
    accumulator = LagAccumulator()
    accumulator.update(record.weights)
    # of a window that grows with the text only the last is full
    if accumulator.positions <= 1:
        return None
    return [round(percent, 2) for percent in accumulator.profile().percent]


def _darkest(record: AttentionRecord) -> float:
    """Return the weight shown in the darkest blue, one for the whole text so that shades can be compared."""
    seen = record.settled[record.settled > 0]
    return max(round(float(np.quantile(seen, _SHADE_QUANTILE)), 3), 0.001) if seen.size else 1.0
