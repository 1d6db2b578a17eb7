"""Pages on which the words of a text can be pointed at: each one HTML file, without network.

Its style, its script and its data are inside. The words of a text are data, never markup: they travel as JSON whose
`<`, `>` and `&` are escaped, and the script puts them into text nodes. The Content-Security-Policy lets nothing run or
load but the one script and the one style sheet whose SHA-256 it names.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlm.analysis.lags import LagAccumulator
from spanlm.data.vocabulary import EOS
from spanlm.evaluation.attention import PARTS, AttentionRecord, Expected, Look, SpanRecord
from spanlm.store.plain import finite

_UNITS = 1000  # of a weight
_SPAN_UNITS = 10_000  # of 256 spans most have less than a hundredth
_SHADE_QUANTILE = 0.99  # the darkest blue: a few single peaks must not make all the rest pale
_WORD_TEXTS = {
    "introduction": (
        "Point at a word: the words before it turn blue where the model looked while it was guessing, deeper for more "
        "weight (the small numbers are percent). The panel shows what it expected, what really came, and how surprised "
        "it was, in bits: each bit halves the probability."
    ),
    "tint": "Tint by surprisal",
    "most_tint": "16 bits",
    "footnote": "",
}
_SPAN_TEXTS = {
    "introduction": (
        "Point at a word: the spans of words before it turn blue where the buffer looked while it was guessed, deeper "
        "for more weight (the small numbers are percent). The panel shows how much the gate preferred the buffer, and "
        "what the buffer, the encoder and both together expected."
    ),
    "tint": "Tint by the gate: λ 0",
    "most_tint": "1",
    "footnote": " λ is how much the gate prefers the buffer, before its temperature.",
}


def render_page(record: AttentionRecord) -> str:
    """Return `record` as a page: a word, the words before it, what was expected and how surprising what came was.

    A word clicked stays open and puts its position into the address: `page.html#pos=12` opens position 12,
    counted as in `AttentionRecord` and in the CSV file.
    """
    just_read = "just read, known without looking back" if record.nearest_lag else "just read (0 in the panel)"
    content = {
        "eos": EOS,
        "window": record.window,
        "nearest": record.nearest_lag,
        # token t is the word read at position t, token t + 1 the one that came next
        "tokens": [record.words[0], *record.targets],
        "unknown": sorted(record.unknown),
        # weights and probabilities in thousandths keep long texts small
        "weights": np.rint(_UNITS * record.weights.astype(np.float64)).astype(int).tolist(),
        "bits": finite(np.round(record.bits, 2).tolist()),
        "held": record.occupied.sum(axis=1).tolist(),
        "expected": [_rounded(row) for row in record.expected],
        "mean": _mean_percent(record),
        "darkest": _darkest(record.settled[record.settled > 0], _UNITS),
    }
    texts = {**_WORD_TEXTS, "just_read": just_read}
    return _page(content, "words_panel.html", ("page.css",), ("reader.js", "page.js"), record.title, texts)


def render_span_page(record: SpanRecord) -> str:
    """Return `record` as a page: a word, the spans it was predicted from, and what each part of the model expected.

    A word clicked stays open and puts its position into the address: `page.html#pos=12` opens position 12, counted as
    in `SpanRecord` and in the files.
    """
    gates = [round(float(gate), 4) if there else None for gate, there in zip(record.gate, record.filled, strict=True)]
    chance = record.chance[:, PARTS.index("mixture")]
    newest, weights = zip(*(_newest_first(record.looks(t), record.span) for t in range(len(record))), strict=True)
    longest = max(map(len, weights))
    content = {
        "eos": EOS,
        "span": record.span,
        "tokens": [record.words[0], *record.targets],
        "unknown": sorted(record.unknown),
        "gate": gates,
        "newest": list(newest),
        "weights": [np.rint(_SPAN_UNITS * row).astype(int).tolist() for row in weights],
        "bits": finite(np.round(-np.log2(np.maximum(chance, np.finfo(np.float64).tiny)), 2).tolist()),
        "first": [record.first(t) for t in range(len(record))],
        "expected": {part: list(map(_rounded, getattr(record, part))) for part in PARTS},
        # of rows with at least half as many spans as the longest: where few share all, each has much
        "darkest": _darkest(np.concatenate([row for row in weights if 2 * len(row) >= longest]), _SPAN_UNITS),
    }
    texts = {**_SPAN_TEXTS, "just_read": "just read, in no span yet" if record.nearest_lag else "just read"}
    styles, scripts = ("page.css", "span_page.css"), ("reader.js", "span_page.js")
    return _page(content, "spans_panel.html", styles, scripts, record.title, texts)


def _rounded(expected: Expected) -> list[list[Any]]:
    return [[word, float(f"{chance:.3g}")] for word, chance in expected]


def _mean_percent(record: AttentionRecord) -> list[float] | None:
    """Return the mean attention by lag, or None where the window is not full, or only in the end."""
    accumulator = LagAccumulator()
    accumulator.update(record.weights, record.occupied.sum(axis=1))
    # of a window that grows with the text only the last is full
    if accumulator.positions <= 1:
        return None
    return [round(percent, 2) for percent in accumulator.profile().percent]


def _newest_first(looks: Sequence[Look], span: int) -> tuple[int, NDArray[np.float64]]:
    """Return where a position's newest span ends, before the text without any, and all weights, the newest first.

    Each span ends `span` words before the last.
    """
    newest = max((look.last for look in looks), default=-1)
    row = np.zeros(max(((newest - look.last) // span + 1 for look in looks), default=0))
    for look in looks:
        row[(newest - look.last) // span] = look.weight
    return newest, row


def _darkest(seen: NDArray[np.floating[Any]], units: int) -> float:
    """Return the weight shown in the darkest blue, one for the whole text so that shades can be compared.

    Args:
        seen: weights that were looked with; without any, it is 1.
        units: so many of the page's weights are 1; it is at least one of them.
    """
    return max(round(units * float(np.quantile(seen, _SHADE_QUANTILE))), 1) / units if seen.size else 1.0


def _page(
    record: object, panel: str, styles: Sequence[str], scripts: Sequence[str], title: str, texts: Mapping[str, str]
) -> str:
    """Fill the `{{places}}` of reader.html.

    Args:
        record: what the scripts read, as plain values.
        panel: the file of what stands beside the text; what it holds is not filled.
        styles: files of the style sheet, in order.
        scripts: files of the script, in order.
        title: any text.
        texts: what else the page has places for; markup of our own.
    """
    data = json.dumps(record, allow_nan=False, separators=(",", ":"))
    escaped = data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    parts = {**texts, "panel": _resource(panel), "record": escaped}
    return filled_page("reader.html", parts, styles, scripts, title)


def filled_page(
    template: str, parts: Mapping[str, str], styles: Sequence[str], scripts: Sequence[str], title: str
) -> str:
    """Fill the `{{places}}` of a template with `parts`, markup of our own, the title, and the files' contents."""
    style, script = ("".join(map(_resource, names)) for names in (styles, scripts))
    runs = f"script-src '{_digest(script)}'; " if scripts else ""
    policy = f"default-src 'none'; style-src '{_digest(style)}'; {runs}base-uri 'none'; form-action 'none'"
    shown = html.escape(title.encode("utf-8", "replace").decode("utf-8"))
    filled = {**parts, "policy": policy, "title": shown, "style": style, "script": script}
    # one pass: what is put in is not searched again, so a word may be {{script}}
    return re.sub(r"\{\{(\w+)\}\}", lambda place: filled[place[1]], _resource(template))


def _resource(name: str) -> str:
    return resources.files("spanlm.analysis.pages").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
