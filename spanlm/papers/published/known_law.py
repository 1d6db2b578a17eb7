"""Every memory on one encoder and one recipe, on texts with a known law (`spanlm.data.synthetic`).

Our own, no paper's: one LSTM layer, and memories that reach the last 32 words where their reach is free; beside them
encoders of today without a memory, a Transformer with that reach. They are small, as the texts are; `spanlm reproduce
yardstick` matches their parameters and says how many bits a word each stays above the least that is possible.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.data.synthetic import PREFIX
from spanlm.models import encoders, memories
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.models.language_model import ModelConfig
from spanlm.papers.paper import BY_LAG, Cached, Column, Details, Paper, Preset, Table, by_name, row_of
from spanlm.papers.published.li2020 import reading_state
from spanlm.papers.scales import Matched, Scale
from spanlm.training.config import BatchingConfig, OptimizerConfig, TrainingConfig

REACH = 32
_NONE = memories.NoMemoryConfig()
SPANS = memories.SpanBufferConfig(buffer_size=REACH, span_length=2, dropout=0.0)

TWICE = MixtureOfSoftmaxesConfig(experts=2, latent_dropout=0.0, tied=False)
"""As the span buffer predicts twice, too."""


def _preset(name: str, title: str, memory: memories.AnyMemoryConfig = _NONE, **rooms: Any) -> Preset:
    """Return a row: an LSTM, unless `rooms` have another encoder, with a memory."""
    rooms = {"encoder": encoders.LSTMConfig(hidden_size=66), "memory": memory, **rooms}
    return Preset(
        name=f"yardstick/{name}",
        paper="none; every memory on one encoder, for texts with a known law",
        sources=(title,),
        title=title,
        config=RunConfig(
            data=DataConfig(corpus="synthetic:recall"),
            model=ModelConfig(embedding_size=64, **rooms),
            training=TrainingConfig(
                optimizer=OptimizerConfig(lr=0.005),
                batching=BatchingConfig(kind="streams", batch_size=16, length=REACH),
                epochs=15,
                patience=3,
            ),
        ),
    )


PRESETS = [
    _preset("lstm", "LSTM, no memory"),
    _preset("lstm-mos", "LSTM, two softmaxes", head=TWICE),
    # of which memory and encoder are equal parts
    _preset("4-gram", "4-gram", memories.NGramConfig(order=4), encoder=encoders.LSTMConfig(hidden_size=68)),
    _preset("attention", "Attention", memories.KeyValueConfig(roles=1, window=REACH)),
    _preset("attention-mos", "Attention, two softmaxes", memories.KeyValueConfig(roles=1, window=REACH), head=TWICE),
    _preset("key-value", "Key-Value", memories.KeyValueConfig(roles=2, window=REACH)),
    _preset("key-value-predict", "Key-Value-Predict", memories.KeyValueConfig(roles=3, window=REACH)),
    _preset("recurrent-memory", "Recurrent memory", memories.RecurrentMemoryConfig(window=REACH)),
    _preset("attentive-single", "Attentive, single score", memories.AttentiveConfig(score="single", window=REACH)),
    _preset(
        "attentive-combined", "Attentive, combined score", memories.AttentiveConfig(score="combined", window=REACH)
    ),
    _preset("pointer", "Pointer sentinel", memories.PointerSentinelConfig(window=REACH)),
    _preset("span-buffer", "Span buffer", SPANS),
    _preset("span-buffer-state", "Span buffer, q sees h_t, too", reading_state(SPANS)),
    _preset("transformer", "Transformer", encoder=encoders.TransformerConfig(hidden_size=37, window=REACH)),
    _preset("delta", "Gated DeltaNet", encoder=encoders.DeltaConfig(hidden_size=35)),
    _preset("mogrifier", "Mogrifier LSTM", encoder=encoders.MogrifierLSTMConfig(hidden_size=47)),
    _preset("min-gru", "minGRU", encoder=encoders.MinGRUConfig(hidden_size=39)),
]

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
    "parity": ("parity", "bits, and whether those so far are even or odd", "a state that flips: no lag has the answer"),
    "counting": ("counting", "as many b as there were a", "a counter, or attention to the first of the line"),
}
"""Table -> its source, what that is, and what can use it."""

_PLAIN = by_name(*map(row_of, PRESETS))
_CACHED: dict[str, Any] = {"title": "LSTM with a cache", "evaluation": Cached(10 * REACH), "control": "lstm"}
_ROWS = _PLAIN | {"lstm-cache": replace(_PLAIN["lstm"], name="lstm-cache", **_CACHED)}
_COLUMNS = ("units", "θ_M", "excess", "law", "test ppl", "best epoch", "tokens/s", "minutes")
_BY_LAG = Details(
    "Excess in bits a target, by how many words back the word stands that the best prediction needs (0: none), first "
    "seed",
    (BY_LAG,),
)

PAPER = Paper(
    name="yardstick",
    title="Every memory on texts with a known law",
    tables=tuple(
        Table(
            name=name,
            label=name,
            about=text,
            rows=_ROWS,
            measure="excess",
            columns=_COLUMNS,
            details=(_BY_LAG,),
            corpus=f"{PREFIX}{source}",
            remark=use,
        )
        for name, (source, text, use) in SOURCES.items()
    ),
    columns={"excess": Column("excess_bits", digits=3), "law": Column("law.test", digits=3)},
    scales=(
        Scale(
            name="small",
            purpose="as many parameters as an LSTM of 64 units; a table takes about ten minutes of two CPU cores",
            sizes=Matched(units=64, init_range=0.2),
        ),
    ),
    note="Excess: how many bits a target the model needs above the law of the text, which is the least that any can",
    overview="excess",
    digits=2,
)
