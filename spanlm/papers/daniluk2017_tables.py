"""The figures of Daniluk et al. (2017), "Frustratingly Short Attention Spans in Neural Language Modeling"."""

from __future__ import annotations

from typing import Any

from spanlm.papers.daniluk2017 import PAPER, PRESETS
from spanlm.papers.paper import Details, Paper, Row, Table
from spanlm.papers.scales import PAPER_UNITS, Matched, Scale, smoke_scale

CLOZE_CLASSES = {"NE": "named entities", "CN": "common nouns", "V": "verbs", "P": "prepositions"}

PUBLISHED_CLOZE: dict[str, tuple[float, float, float, float]] = {
    "fofe-hornn-3": (0.465, 0.497, 0.774, 0.741),
    "gated-hornn-3": (0.508, 0.547, 0.790, 0.774),
    "rm-w15": (0.525, 0.597, 0.817, 0.797),
    "lstm": (0.523, 0.604, 0.819, 0.786),
    "attention-w10": (0.538, 0.595, 0.826, 0.803),
    "kv-w10": (0.528, 0.601, 0.822, 0.813),
    "kvp-w5": (0.528, 0.599, 0.829, 0.803),
    "4-gram": (0.532, 0.598, 0.815, 0.800),
}
"""Figure 2d: accuracy on the real Children's Book Test by word class, in the order of CLOZE_CLASSES."""

_COLUMNS = (
    *("units", "readout", "θ_M", "seeds", "valid ppl", "test ppl", "paper: valid", "paper: test"),
    *("best epoch", "train ppl", "tokens/s", "minutes"),
)


_PRESETS = {
    preset.name.partition("/")[2]: preset for preset in PRESETS if preset.figures and "-786-" not in preset.name
}
_ROWS = {
    name: Row(
        name=name, title=preset.title, preset=preset.name, control="" if name == "lstm" else "lstm", curve=preset.curve
    )
    for name, preset in _PRESETS.items()
}


def _figure(name: str, title: str, rows: tuple[str, ...] = (), **more: Any) -> Table:
    """Return a figure of the rows that are in it, unless it names others."""
    within = (row for row, preset in _PRESETS.items() if name in preset.figures)
    on = "its own corpus, 7,500 Wikipedia articles with 77,000 words"
    return Table(name=name, kind="figure", title=title, rows=rows or tuple(within), published_on=on, **more)


def _accuracy(by: str, words: str) -> Details:
    columns = (*(f"{by}: {title}" for title in CLOZE_CLASSES.values()), "test ppl")
    return Details(f"Accuracy by the probability of the {words}, with 95 % intervals", columns, notes=True)


_LONGEST = tuple(name for name in _ROWS if name.endswith("-w15"))
_PUBLISHED = tuple(f"paper: {title}" for title in CLOZE_CLASSES.values())

DANILUK = Paper(
    name="daniluk2017",
    title=PAPER,
    rows=_ROWS,
    scales=(
        smoke_scale(Matched(units=16, max_epochs=1, init_range=0.4), "a minute or two"),
        Scale(
            name="small",
            purpose="the paper's proportions at 64 units, until valid stagnates; an hour or two a row of one CPU core",
            corpus="wikitext-2",
            vocabulary_size=16_000,
            sizes=Matched(units=64, training_tokens=50_000_000, init_range=0.2),
        ),
        Scale(
            name="paper", purpose="the paper's sizes; for a GPU", corpus="wikipedia", sizes=Matched(units=PAPER_UNITS)
        ),
    ),
    tables=(
        _figure("2a", "Figure 2a: test perplexity by window size", columns=_COLUMNS, x_label="window"),
        _figure("2b", "Figure 2b: N-gram RNN by order", columns=_COLUMNS, x_label="N"),
        _figure("2c", "Figure 2c: perplexity of all models", columns=_COLUMNS),
        _figure(
            "2d",
            "Figure 2d: accuracy on the Children's Book Test",
            rows=tuple(PUBLISHED_CLOZE),
            measure="cloze",
            details=(
                _accuracy("sentence", "whole query sentence"),
                _accuracy("candidate", "candidate alone"),
                Details("The paper's accuracy, on the real Children's Book Test", _PUBLISHED),
            ),
            corpus="cbt",
            remark="the paper does not give the windows it used here: those of Figure 2c are used",
        ),
        _figure("3", "Figure 3b: mean attention by lag", rows=_LONGEST, measure="attention"),
    ),
)
