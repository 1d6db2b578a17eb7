"""A page of the words that gain and lose most between two models: one HTML file, without script or network."""

from __future__ import annotations

import html
from collections.abc import Sequence

from spanlm.analysis.compare import Comparison, MovedWord
from spanlm.analysis.pages import filled_page
from spanlm.data.vocabulary import EOS

_INTRODUCTION = (
    "Each word in its context, and how many bits {model} needs more (+) or fewer (−) for it than {baseline}: each bit "
    "halves the probability. What comes after the word, neither had read."
)


def render_comparison(comparisons: Sequence[Comparison], baseline: str, text: str) -> str:
    """Return the words that gain and lose most in each comparison with the baseline, two lists each."""
    lists = "".join(_lists(other, baseline) for other in comparisons)
    names = " and ".join(other.name for other in comparisons)
    introduction = _INTRODUCTION.format(model=_escaped(names), baseline=_escaped(baseline))
    parts = {"introduction": introduction, "lists": lists, "footnote": _escaped(f"{text}. ¶ is a line end.")}
    return filled_page("compare.html", parts, ("reader.css", "compare.css"), (), f"{names} against {baseline}")


def _lists(other: Comparison, baseline: str) -> str:
    heads = ((f"{other.name}: gains most", other.gains, "gain"), (f"{other.name}: loses most", other.losses, "loss"))
    return "".join(
        f"<section><h2>{_escaped(head)}</h2><ol>{''.join(_item(word, kind, other.name, baseline) for word in words)}"
        "</ol></section>\n"
        for head, words, kind in heads
    )


def _item(moved: MovedWord, kind: str, model: str, baseline: str) -> str:
    before, word, after = map(_escaped, (moved.before, moved.word, moved.after))
    numbers = _escaped(f"{baseline} {moved.baseline:.1f}, {model} {moved.bits:.1f} bits; token {moved.place + 1:,}")
    bits = f"{moved.difference:+.1f}".replace("-", "−")
    return (
        f'<li><span class="bits {kind}">{bits}</span><p dir="auto">{before} <b>{word}</b> '
        f'<span class="later">{after}</span></p><small>{numbers}</small></li>'
    )


def _escaped(text: str) -> str:
    shown = " ".join("¶" if word == EOS else word for word in text.split(" "))
    return html.escape(shown.encode("utf-8", "replace").decode("utf-8"))
