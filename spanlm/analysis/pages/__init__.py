"""Pages of words: each one HTML file, without network.

The words of a text can be pointed at, or those listed at which models differ. Style, script and data are inside. Words
are data, never markup: they travel as JSON whose `<`, `>` and `&` are escaped, and the script puts them into text
nodes. The Content-Security-Policy lets nothing run or load but the one script and the one style sheet whose SHA-256 it
names.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanlm.data.vocabulary import EOS
from spanlm.scoring.attention import AttentionRecord, Expected, PartsRecord
from spanlm.scoring.cache import CachedWords
from spanlm.store.plain import finite

if TYPE_CHECKING:
    from spanlm.analysis.compare import Comparison, MovedWord

_UNITS = 10_000  # of a weight: of 256 spans most have less than a hundredth
_SHADE_QUANTILE = 0.99  # the darkest blue: a few single peaks must not make all the rest pale
_DIGITS = 4  # of bits: a probability of 99.9 % must not read as one of 100
_SCRIPTS = ("reader.js", "help.js", "words_view.js", "spans_view.js", "cache_view.js", "offline.js")
_WORDS = (
    "a word: the words before it turn blue where the model looked while it was guessing, deeper for more weight (the "
    "small numbers are percent). The panel shows what it expected, what really came, and how surprised it was, in "
    "bits: each bit halves the probability."
)
_SPANS = (
    "a word: the spans of words before it turn blue where the buffer looked while it was guessed, deeper for more "
    "weight (the small numbers are percent). The panel shows how much the gate preferred the buffer, and what the "
    "buffer, the encoder and both together expected. λ is how much the gate prefers the buffer, before its temperature."
)
_PLAIN = (
    "a word: the panel shows what the model expected, what really came, and how surprised it was, in bits: each bit "
    "halves the probability. It has no memory to look into."
)
_CACHED = (
    " A neural cache is mixed in: words that it had are underlined, and the words before turn blue where it had read "
    "the same word."
)
_MOVED = (
    "Each word in its context, and how many bits {model} needs more (+) or fewer (−) for it than {baseline}: each bit "
    "halves the probability. What comes after the word, neither had read."
)


def render_page(record: AttentionRecord) -> str:
    """Return `record` as a page: a word, the words or spans before it, what was expected, how surprising what came was.

    A word clicked stays open and puts its position into the address: `page.html#pos=12` opens position 12, counted as
    in the record and in the files.
    """
    return render_content(page_content(record), record.title, record.about)


def render_content(content: Mapping[str, Any], title: str, about: str) -> str:
    """Return a page of what `page_content` or `plain_content` gives."""
    introduction = _SPANS if content["spans"] else _PLAIN if content["weights"] is None else _WORDS
    introduction += _CACHED * ("cache" in content)
    parts = {"about": escaped(about), "introduction": introduction, "record": page_data(content)}
    return filled_page("offline.html", parts, ("reader.css",), _SCRIPTS, title)


def page_content(record: AttentionRecord) -> dict[str, Any]:
    """Return what the scripts draw of a text, as plain values."""
    # token t is the word read at position t, token t + 1 the one that came next
    tokens, bits = [record.words[0], *record.targets], finite(record.bits.tolist())
    content = plain_content(tokens, record.unknown, bits, record.expected)
    content |= {"by_word": True} if record.of_written_words else {}  # what was expected are tokens
    return content | (_word_content(record) if record.parts is None else _span_content(record, record.parts))


def plain_content(
    tokens: Sequence[str], unknown: Iterable[str], bits: Sequence[float | None], expected: Sequence[Expected]
) -> dict[str, Any]:
    """Return `page_content` of a model without attention.

    Args:
        tokens: those that were read, and last the one that only came.
        unknown: those that the vocabulary lacks.
        bits: surprisal of each but the first; None where nothing was predicted.
        expected: the most probable words before each.
    """
    return {
        "spans": False,
        "eos": EOS,
        "tokens": list(tokens),
        "unknown": sorted(unknown),
        "bits": [None if value is None else round(value, _DIGITS) for value in bits],
        "expected": [_rounded(row) for row in expected],
        "weights": None,
        "mean": None,
        "darkest": 1.0,
    }


def cached_content(content: Mapping[str, Any], surprisal: NDArray[np.float64], cached: CachedWords) -> dict[str, Any]:
    """Add what a cache gave each word to a page's content; `surprisal` is the model's without the cache, in nats.

    The expected words remain those of the model alone.
    """
    bits, gain = (nats / np.log(2.0) for nats in (cached.surprisal, surprisal - cached.surprisal))
    return {
        **content,
        "bits": _numbers(bits, f".{_DIGITS}f"),
        "cache": {
            "chance": _numbers(cached.chance, ".3g"),
            "gain": _numbers(gain, f".{_DIGITS}f"),
            "places": [_rounded(row) for row in cached.places],
            "darkest": darkest(np.array([share for row in cached.places for _, share in row])),
        },
    }


def _word_content(record: AttentionRecord) -> dict[str, Any]:
    full = record.weights[record.occupied.all(axis=1)]
    # of a window that grows with the text only the last is full, which has no mean
    mean = np.round(100 * full.mean(axis=0, dtype=np.float64), 2).tolist() if len(full) > 1 else None
    return {
        "window": record.window,
        "nearest": record.nearest_lag,
        # whole numbers keep long texts small
        "weights": np.rint(_UNITS * record.weights.astype(np.float64)).astype(int).tolist(),
        "held": record.occupied.sum(axis=1).tolist(),
        "mean": mean,
        "darkest": darkest(record.settled[record.settled > 0]),
    }


def _span_content(record: AttentionRecord, parts: PartsRecord) -> dict[str, Any]:
    gates = [
        round(gate, 4) if is_there else None
        for gate, is_there in zip(parts.preference.tolist(), parts.there, strict=True)
    ]
    newest, weights = zip(*(_newest_first(record, t) for t in range(len(record))), strict=True)
    longest = max(map(len, weights))
    return {
        "spans": True,
        "span": record.span,
        "nearest": record.nearest_lag,
        "gate": gates,
        "newest": list(newest),
        "weights": [np.rint(_UNITS * row).astype(int).tolist() for row in weights],
        "first": [record.first(t) for t in range(len(record))],
        "expected": {part: [*map(_rounded, rows)] for part, rows in parts.expected.items()},
        # of rows with at least half as many spans as the longest: where few share all, each has much
        "darkest": darkest(np.concatenate([row for row in weights if 2 * len(row) >= longest])),
    }


def _rounded(shares: Sequence[tuple[Any, float]]) -> list[list[Any]]:
    return [[item, float(f"{share:.3g}")] for item, share in shares]


def _numbers(numbers: NDArray[np.float64], form: str) -> Any:
    return finite([float(f"{x:{form}}") for x in numbers.tolist()])


def _newest_first(record: AttentionRecord, position: int) -> tuple[int, NDArray[np.float32]]:
    """Return where a position's newest span ends, before the text without any, and all weights, the newest first.

    Each span ends `span` words before the last.
    """
    row = record.weights[position, ::-1]
    columns = np.flatnonzero(row)
    if not columns.size:
        return -1, row[:0]
    first, last = columns[[0, -1]].tolist()
    return position - record.nearest_lag - first, row[first : last + 1 : record.span]


def darkest(seen: NDArray[np.floating[Any]]) -> float:
    """Return the weight shown in the darkest blue: a round one for all `seen` in a text, 1 without any."""
    usual = float(np.quantile(seen, _SHADE_QUANTILE)) if seen.size else 1.0
    if not 0 < usual < 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(usual))
    # a hair wider: 0.1 as a float32 is more than 0.1
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if usual <= step * power * (1 + 1e-6))


def filled_page(
    template: str, parts: Mapping[str, str], styles: Sequence[str], scripts: Sequence[str], title: str
) -> str:
    """Put a template below the heading of `page.html`, and `parts`, markup of our own, and files into their places."""
    style, script = ("".join(map(_resource, names)) for names in (styles, scripts))
    runs = f"script-src '{_digest(script)}'; " if scripts else ""
    policy = f"default-src 'none'; style-src '{_digest(style)}'; {runs}base-uri 'none'; form-action 'none'"
    filled = {**parts, "policy": policy, "title": escaped(title), "style": style, "script": script}
    page = _resource("page.html").replace("{{body}}", _resource(template))
    # one pass: what is put in is not searched again, so a word may be {{script}}
    return re.sub(r"\{\{(\w+)\}\}", lambda place: filled[place[1]], page)


def page_data(content: Mapping[str, Any]) -> str:
    """Return a page's data as JSON in which nothing can be markup."""
    data = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def escaped(text: str) -> str:
    """Return a text as markup."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))


def _resource(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


# --- the words that gain and lose most between two models: without a script ---


def render_comparison(comparisons: Sequence[Comparison], baseline: str, text: str) -> str:
    """Return the words that gain and lose most in each comparison with the baseline, two lists each."""
    lists = "".join(_lists(other, baseline) for other in comparisons)
    names = " and ".join(other.name for other in comparisons)
    introduction = _MOVED.format(model=_shown(names), baseline=_shown(baseline))
    parts = {"introduction": introduction, "lists": lists, "footnote": _shown(f"{text}. ¶ is a line end.")}
    return filled_page("compare.html", parts, ("reader.css", "compare.css"), (), f"{names} against {baseline}")


def _lists(other: Comparison, baseline: str) -> str:
    heads = ((f"{other.name}: gains most", other.gains, "gain"), (f"{other.name}: loses most", other.losses, "loss"))
    return "".join(
        f"<section><h2>{_shown(head)}</h2><ol>{''.join(_item(word, kind, other.name, baseline) for word in words)}"
        "</ol></section>\n"
        for head, words, kind in heads
    )


def _item(moved: MovedWord, kind: str, model: str, baseline: str) -> str:
    before, word, after = map(_shown, (moved.before, moved.word, moved.after))
    numbers = _shown(f"{baseline} {moved.baseline:.1f}, {model} {moved.bits:.1f} bits; token {moved.place + 1:,}")
    bits = f"{moved.difference:+.1f}".replace("-", "−")
    return (
        f'<li><span class="bits {kind}">{bits}</span><p dir="auto">{before} <b>{word}</b> '
        f'<span class="later">{after}</span></p><small>{numbers}</small></li>'
    )


def _shown(text: str) -> str:
    """Return a text as markup, with ¶ for line ends."""
    return escaped(" ".join("¶" if word == EOS else word for word in text.split(" ")))


EXAMPLES: dict[str, list[dict[str, str]]] = json.loads(_resource("examples.json"))
"""Example texts by corpus, in its words, each with a title and a hint; "": plain English, for other corpora."""
