"""Memories beside their neighbours of today: Transformer, scan, delta rule, Mogrifier, under one recipe and budget.

Our own, no paper's: each memory of the three papers on one LSTM layer, and each newer encoder alone, all with as many
parameters as one LSTM. The recipe is one for all: AdamW that decays matrices by 0.01, 100 steps of warm-up, then half a
cosine over 8 epochs, segments of 32 steps, nothing tied, no dropout (0.5 at scale `24m`, for which nothing was searched
again). The rate and the streams of each row are the best
of the same 8 pairs, tried for one epoch on Penn Treebank at scale `small` (results/neighbours.yaml); rows that differ
in their window alone, or in recency, share a pair. The recurrent memory, which
was not searched, has the LSTM's pair. Of most rows it is the highest rate and the fewest streams that were
tried, so that their best may lie beyond.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.models.encoders import (
    AnyEncoderConfig,
    DeltaConfig,
    LSTMConfig,
    MinGRUConfig,
    MogrifierLSTMConfig,
    TransformerConfig,
)
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import (
    AnyMemoryConfig,
    AttentiveConfig,
    KeyValueConfig,
    NGramConfig,
    NoMemoryConfig,
    PointerSentinelConfig,
    RecurrentMemoryConfig,
    SpanBufferConfig,
)
from spanlm.papers.paper import Cached, Column, Nearest, Paper, Preset, Row, Table, by_name, row_of
from spanlm.papers.published.li2020 import reading_state
from spanlm.papers.scales import Matched, Scale, smoke_scale
from spanlm.training.config import BatchingConfig, OptimizerConfig, ScheduleConfig, TrainingConfig

UNITS = 300
VOCABULARY = 77_000
"""Of Daniluk et al. (2017), with whose LSTM the presets share their number of parameters."""

REACH = 100
"""Words that the pointer and the span buffer reach back, as many as the published pointer."""

NARROW = (1, 2, 5, 10, 15)
"""Windows of the Transformer, beside one as long as what it reads at once."""

_SPANS = SpanBufferConfig(buffer_size=REACH, span_length=2, dropout=0.0)
_NONE, _LSTM = NoMemoryConfig(), LSTMConfig(hidden_size=UNITS)


@dataclass(frozen=True)
class Model:
    """A row: a memory, or another encoder; `rate` and `streams` are what was chosen for it."""

    title: str
    units: int  # with which θ_M is the LSTM's
    memory: AnyMemoryConfig = _NONE
    encoder: AnyEncoderConfig = _LSTM
    rate: float = 0.008
    streams: int = 16

    def preset(self, name: str) -> Preset:
        return Preset(
            name=f"neighbours/{name}",
            paper="none; memories beside their neighbours",
            sources=(self.title,),
            title=self.title,
            config=RunConfig(
                data=DataConfig(documents="auto"),
                model=ModelConfig(embedding_size=UNITS, encoder=self.encoder.resized(self.units), memory=self.memory),
                training=TrainingConfig(
                    optimizer=OptimizerConfig(kind="adamw", lr=self.rate, weight_decay=0.01, clip=1.0),
                    schedule=ScheduleConfig(kind="cosine", warmup=100),
                    batching=BatchingConfig(batch_size=self.streams, length=32),
                    epochs=8,
                    patience=None,
                ),
            ),
            own_size=isinstance(self.memory, RecurrentMemoryConfig),
        )


def _key_value(roles: int, window: int = 5, **more: Any) -> KeyValueConfig:
    return KeyValueConfig(roles=roles, window=window, **more)


def _transformer(window: int) -> TransformerConfig:
    return TransformerConfig(window=window)


MODELS = {
    "lstm": Model("LSTM", 300),
    "kvp-w5": Model("Key-Value-Predict, window 5", 786, _key_value(3)),
    "transformer": Model("Transformer, window 256", 283, encoder=_transformer(256), rate=0.004),
    "delta": Model("Gated DeltaNet", 280, encoder=DeltaConfig()),
    "mogrifier": Model("Mogrifier LSTM", 295, encoder=MogrifierLSTMConfig()),
    "min-gru": Model("minGRU", 285, encoder=MinGRUConfig()),
    "attention-w5": Model("Attention, window 5", 296, _key_value(1)),
    "kv-w5": Model("Key-Value, window 5", 560, _key_value(2), rate=0.004),
    "kvp-w15-recency": Model("Key-Value-Predict, window 15, recency", 786, _key_value(3, 15, recency="learned")),
    "4-gram": Model("4-gram RNN", 968, NGramConfig(order=4), rate=0.004),
    "recurrent-memory-w5": Model("Recurrent memory, window 5", 300, RecurrentMemoryConfig(window=5)),
    "attentive-single": Model("Attentive, single score, window 32", 297, AttentiveConfig(score="single", window=32)),
    "attentive-combined": Model("Attentive, combined score, window 32", 296, AttentiveConfig(window=32), rate=0.004),
    "pointer": Model("Pointer sentinel, window 100", 299, PointerSentinelConfig(window=REACH)),
    "span-buffer": Model(
        "Span buffer of 100, q sees h_t, too",
        296,
        reading_state(SpanBufferConfig(buffer_size=REACH, span_length=2, dropout=0.0)),
    ),
    **{
        f"transformer-w{window}": Model(f"Transformer, window {window}", 283, encoder=_transformer(window), rate=0.004)
        for window in NARROW
    },
}

PRESETS = [model.preset(name) for name, model in MODELS.items()]

_PLAIN = by_name(*(row_of(preset, control="" if preset.title == "LSTM" else "lstm") for preset in PRESETS))


def _also(name: str, title: str, trained: str, evaluation: Cached | Nearest) -> Row:
    return replace(_PLAIN[trained], name=name, title=title, evaluation=evaluation, control=trained)


_ROWS = by_name(
    *_PLAIN.values(),
    _also("lstm-cache", "LSTM with a cache of 500 words", "lstm", Cached(500)),
    _also("lstm-nearest", "LSTM with 64 nearest neighbours", "lstm", Nearest(64)),
)

_WINDOWS = {
    f"transformer-w{window}": replace(_ROWS[f"transformer-w{window}"], curve=("Transformer", window))
    for window in NARROW
}

_COLUMNS = (
    *("units", "θ_M", "seeds", "valid ppl", "test ppl", "over", "best epoch", "tokens/s", "minutes"),
    "minutes to LSTM's",
)

PAPER = Paper(
    name="neighbours",
    title="Memories beside their neighbours",
    scales=(
        smoke_scale(Matched(units=16, max_epochs=1, init_range=0.4), "a few minutes"),
        Scale(
            name="small",
            purpose="parameters of an LSTM of 64 units, 8 million tokens: ten minutes a row of one CPU core",
            corpus="ptb",
            vocabulary_size=16_000,
            precision="bf16",
            sizes=Matched(units=64, init_range=0.2165, training_tokens=8_000_000),
        ),
        Scale(
            name="24m",
            purpose="as many parameters as an LSTM of 888 units, which on Penn Treebank has 24 million; for a GPU",
            corpus="ptb",
            precision="bf16",
            sizes=Matched(units=888, init_range=0.058, dropout=0.5),
        ),
        Scale(
            name="paper",
            purpose="as many parameters as the LSTM of Daniluk et al. (2017); for a GPU",
            corpus="wikipedia",
            precision="bf16",
            sizes=Matched(units=UNITS, published_vocabulary=VOCABULARY),
        ),
    ),
    columns={"minutes to LSTM's": Column("seconds_to_control", "{:.1f}", 1 / 60)},
    note="Minutes to LSTM's: of training until the first epoch whose perplexity on valid is at most the LSTM's best",
    tables=(
        Table(
            name="1",
            label="Table 1",
            about="all memories and their neighbours",
            rows={name: row for name, row in _ROWS.items() if name not in _WINDOWS},
            columns=_COLUMNS,
        ),
        Table(
            name="2",
            kind="figure",
            about="a Transformer by its window",
            rows=_WINDOWS,
            columns=_COLUMNS,
            x_label="window",
        ),
    ),
)
