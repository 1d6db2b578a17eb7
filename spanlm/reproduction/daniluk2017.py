"""The figures of Daniluk et al. (2017), "Frustratingly Short Attention Spans in Neural Language Modeling"."""

from __future__ import annotations

from spanlm.presets.daniluk2017 import PAPER
from spanlm.reproduction.matched_scale import SCALES
from spanlm.reproduction.tables import Paper, Row, Table

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

CORPUS = "its own corpus, 7,500 Wikipedia articles with 77,000 words"

DANILUK2017 = (
    Table(
        name="2a",
        kind="figure",
        title="Figure 2a: test perplexity by window size",
        rows=tuple(f"{name}-w{window}" for name in WINDOW_FAMILIES for window in WINDOWS),
        layout="windows",
        published_on=CORPUS,
    ),
    Table(
        name="2b",
        kind="figure",
        title="Figure 2b: N-gram RNN by order",
        rows=tuple(f"{order}-gram" for order in ORDERS),
        layout="orders",
        published_on=CORPUS,
    ),
    Table(
        name="2c",
        kind="figure",
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
        published_on=CORPUS,
    ),
    Table(
        name="2d",
        kind="figure",
        title="Figure 2d: accuracy on the Children's Book Test",
        rows=("fofe-hornn-3", "gated-hornn-3", "rm-w15", "lstm", "attention-w10", "kv-w10", "kvp-w5", "4-gram"),
        layout="cloze",
        measure="cloze",
        corpus="cbt",
        published_on=CORPUS,
        remark="the paper does not give the windows it used here: those of Figure 2c are used",
    ),
    Table(
        name="3",
        kind="figure",
        title="Figure 3b: mean attention by lag",
        rows=("rm-w15", "attention-w15", "kv-w15", "kvp-w15"),
        layout="lags",
        measure="attention",
        published_on=CORPUS,
    ),
)

DANILUK = Paper(
    name="daniluk2017",
    title=PAPER,
    rows={name: Row(name=name, title=title, preset=f"daniluk2017/{name}") for name, title in TITLES.items()},
    tables=DANILUK2017,
    scales=SCALES,
)

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
