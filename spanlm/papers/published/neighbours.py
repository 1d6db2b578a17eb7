"""Memories beside their neighbours of today: Transformer, scan, delta rule, Mogrifier, under one recipe and budget.

Our own, no paper's: each memory of the three papers on one LSTM layer, and each newer encoder alone, all with as many
parameters as one LSTM, but for the recurrent memory, which has its units and three times its parameters; and three
controls, an LSTM of two layers, as most newer encoders have, one in their blocks, and minGRU with a pointer. The recipe
is one for all: AdamW that decays matrices by 0.01, 100 steps of warm-up, then half a cosine over 8 epochs, segments of
32 steps, nothing tied, no dropout (0.5 at scale `24m`, for which nothing was searched again). The rate and the streams
of each row are the best of the same 8 pairs, tried for one epoch on Penn Treebank at scale `small`
(results/neighbours.yaml); rows that differ in their window alone, or in recency, share a pair. The recurrent memory,
which was not searched, has the LSTM's pair. Of most rows it is the highest rate and the fewest streams that were tried,
so that their best may lie beyond.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.models import encoders, memories
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories.attentive import Score
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

_POINTER = memories.PointerSentinelConfig(window=REACH)
_SPANS = memories.SpanBufferConfig(buffer_size=REACH, span_length=2, dropout=0.0)
_NONE, _LSTM = memories.NoMemoryConfig(), encoders.LSTMConfig()


def _preset(
    name: str,
    title: str,
    units: int,
    memory: memories.AnyMemoryConfig = _NONE,
    encoder: encoders.AnyEncoderConfig = _LSTM,
    rate: float = 0.008,
) -> Preset:
    """Return a row: a memory, or another encoder; with these units θ_M is the LSTM's."""
    return Preset(
        name=f"neighbours/{name}",
        paper="none; memories beside their neighbours",
        sources=(title,),
        title=title,
        config=RunConfig(
            data=DataConfig(documents="auto"),
            model=ModelConfig(embedding_size=UNITS, encoder=encoder.resized(units), memory=memory),
            training=TrainingConfig(
                optimizer=OptimizerConfig(kind="adamw", lr=rate, weight_decay=0.01, clip=1.0),
                schedule=ScheduleConfig(kind="cosine", warmup=100),
                batching=BatchingConfig(batch_size=16, length=32),
                epochs=8,
                patience=None,
            ),
        ),
        own_size=isinstance(memory, memories.RecurrentMemoryConfig),
    )


def _key_value(roles: int, window: int = 5, **more: Any) -> memories.KeyValueConfig:
    return memories.KeyValueConfig(roles=roles, window=window, **more)


def _attentive(score: Score) -> memories.AttentiveConfig:
    return memories.AttentiveConfig(score=score, window=32)


def _transformer(window: int) -> encoders.TransformerConfig:
    return encoders.TransformerConfig(window=window)


PRESETS = [
    _preset("lstm", "LSTM", 300),
    _preset("kvp-w5", "Key-Value-Predict, window 5", 786, _key_value(3)),
    _preset("transformer", "Transformer, window 256", 283, encoder=_transformer(256), rate=0.004),
    _preset("delta", "Gated DeltaNet", 280, encoder=encoders.DeltaConfig()),
    _preset("mogrifier", "Mogrifier LSTM", 295, encoder=encoders.MogrifierLSTMConfig()),
    _preset("min-gru", "minGRU", 285, encoder=encoders.MinGRUConfig()),
    _preset("lstm-2", "LSTM of two layers", 291, encoder=encoders.LSTMConfig(layers=2)),
    _preset("lstm-blocks", "LSTM in blocks", 276, encoder=encoders.LSTMBlocksConfig()),
    _preset("attention-w5", "Attention, window 5", 296, _key_value(1)),
    _preset("kv-w5", "Key-Value, window 5", 560, _key_value(2), rate=0.004),
    _preset("kvp-w15-recency", "Key-Value-Predict, window 15, recency", 786, _key_value(3, 15, recency="learned")),
    _preset("4-gram", "4-gram RNN", 968, memories.NGramConfig(order=4), rate=0.004),
    _preset("recurrent-memory-w5", "Recurrent memory, window 5", 300, memories.RecurrentMemoryConfig(window=5)),
    _preset("attentive-single", "Attentive, single score, window 32", 297, _attentive("single")),
    _preset("attentive-combined", "Attentive, combined score, window 32", 296, _attentive("combined"), rate=0.004),
    _preset("pointer", "Pointer sentinel, window 100", 299, _POINTER),
    _preset("min-gru-pointer", "minGRU with pointer sentinel", 284, _POINTER, encoders.MinGRUConfig()),
    _preset("span-buffer", "Span buffer of 100, q sees h_t, too", 296, reading_state(_SPANS)),
    *(
        _preset(f"transformer-w{n}", f"Transformer, window {n}", 283, encoder=_transformer(n), rate=0.004)
        for n in NARROW
    ),
]

_PLAIN = by_name(*(row_of(preset, control="" if preset.title == "LSTM" else "lstm") for preset in PRESETS))


def _lstm(name: str, title: str, evaluation: Cached | Nearest) -> Row:
    return replace(_PLAIN["lstm"], name=name, title=title, evaluation=evaluation, control="lstm")


_ROWS = by_name(
    *_PLAIN.values(),
    _lstm("lstm-cache", "LSTM with a cache of 500 words", Cached(500)),
    _lstm("lstm-nearest", "LSTM with 64 nearest neighbours", Nearest(64)),
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
