"""Which rows each table and figure of a paper needs, and what is measured of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Measure = Literal["perplexity", "cloze", "attention"]


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table or figure of a paper.

    Attributes:
        name: what `--table` takes.
        title: what it shows.
        rows: presets, without the paper's name, in the paper's order.
        measure: what is measured of every row: perplexity always, and this.
        corpus: the only corpus it can run on; None: any.
        remark: what the paper leaves open, and how it was read.
    """

    name: str
    title: str
    rows: tuple[str, ...]
    measure: Measure = "perplexity"
    corpus: str | None = None
    remark: str = ""


WINDOWS = (1, 5, 10, 15)
ORDERS = (2, 3, 4, 5)
WINDOW_FAMILIES = {"rm": "RM(+tM-g)", "attention": "Attention", "kv": "Key-Value", "kvp": "Key-Value-Predict"}

TITLES = {
    "rnn": "RNN",
    "lstm": "LSTM",
    "fofe-hornn-3": "FOFE HORNN (3rd order)",
    "gated-hornn-3": "Gated HORNN (3rd order)",
    **{
        f"{name}-w{window}": f"{title}, window {window}"
        for name, title in WINDOW_FAMILIES.items()
        for window in WINDOWS
    },
    **{f"{order}-gram": f"{order}-gram RNN" for order in ORDERS},
}
"""The paper's name of each row."""

DANILUK2017 = (
    Table(
        name="2a",
        title="Figure 2a: test perplexity by window size",
        rows=tuple(f"{name}-w{window}" for name in WINDOW_FAMILIES for window in WINDOWS),
    ),
    Table(
        name="2b",
        title="Figure 2b: N-gram RNN by order",
        rows=tuple(f"{order}-gram" for order in ORDERS),
    ),
    Table(
        name="2c",
        title="Figure 2c: perplexity of all models",
        rows=(
            "rnn",
            "lstm",
            "fofe-hornn-3",
            "gated-hornn-3",
            "rm-w15",
            "attention-w10",
            "kv-w10",
            "kvp-w5",
            "4-gram",
        ),
    ),
    Table(
        name="2d",
        title="Figure 2d: accuracy on the Children's Book Test",
        rows=("fofe-hornn-3", "gated-hornn-3", "rm-w15", "lstm", "attention-w10", "kv-w10", "kvp-w5", "4-gram"),
        measure="cloze",
        corpus="cbt",
        remark="the paper does not give the windows it used here: those of Figure 2c are used",
    ),
    Table(
        name="3",
        title="Figure 3b: mean attention by lag",
        rows=("rm-w15", "attention-w15", "kv-w15", "kvp-w15"),
        measure="attention",
    ),
)

PAPERS = {"daniluk2017": DANILUK2017}

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
