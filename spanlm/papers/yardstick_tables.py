"""Every memory on every source with a known law: how many bits a word each stays above the least that is possible."""

from __future__ import annotations

from spanlm.data.synthetic import PREFIX
from spanlm.papers.paper import BY_LAG, Cached, Details, Paper, Row, Table
from spanlm.papers.scales import Matched, Scale
from spanlm.papers.yardstick import MODELS, REACH

SOURCES = {
    "markov": ("markov", "a hidden Markov chain", "nothing to look back for: an encoder suffices"),
    "copy": ("copy", "half of the words repeat the one five words back", "a memory, or an encoder that reaches so far"),
    "copy-lag-20": (
        "copy,lag=20",
        "half of the words repeat the one twenty words back",
        "a memory: no encoder of this size does",
    ),
    "agreement": (
        "agreement",
        "verbs that agree with nested nouns, in reverse order",
        "a stack, or attention that skips",
    ),
    "recall": ("recall", "pairs of key and value, then keys that ask for their values", "attention by content"),
    "topics": ("topics", "words that make themselves more probable", "the cache's own law, or nearly"),
}
"""Table -> its source, what that is, and what can use it."""

_CACHED = Row(
    name="lstm-cache", title="LSTM with a cache", preset="yardstick/lstm", how=Cached(10 * REACH), control="lstm"
)
_TRAINED = (Row(name=name, title=model.title, preset=f"yardstick/{name}") for name, model in MODELS.items())
_ROWS = {row.name: row for row in (*_TRAINED, _CACHED)}
_COLUMNS = ("units", "θ_M", "excess", "law", "test ppl", "best epoch", "tokens/s", "minutes")
_BY_LAG = Details(
    "Excess in bits a target, by how many words back the word stands that the best prediction needs (0: none), first "
    "seed",
    (BY_LAG,),
)

YARDSTICK = Paper(
    name="yardstick",
    title="Every memory on texts with a known law",
    rows=_ROWS,
    tables=tuple(
        Table(
            name=name,
            title=f"{name}: {what}",
            rows=tuple(_ROWS),
            measure="excess",
            columns=_COLUMNS,
            details=(_BY_LAG,),
            corpus=f"{PREFIX}{source}",
            remark=use,
        )
        for name, (source, what, use) in SOURCES.items()
    ),
    scales=(
        Scale(
            name="small",
            purpose="as many parameters as an LSTM of 64 units; all six tables take about an hour of two CPU cores",
            sizes=Matched(units=64, init_range=0.2, recurrent_memory_too=True),
        ),
    ),
    note="Excess: how many bits a target the model needs above the law of the text, which is the least that any can",
    overview="excess",
    digits=2,
)
