"""Every memory on one encoder and one recipe, for texts with a known law (`spanlm.data.synthetic`).

Our own, no paper's: one LSTM layer, and memories that reach the last 32 words where their reach is free. They
are small, as the texts are; `spanlm reproduce yardstick` matches their parameters and says how far each stays above
the law.
"""

from __future__ import annotations

from typing import NamedTuple

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.models.encoders import LSTMConfig
from spanlm.models.heads import AnyHeadConfig, MixtureOfSoftmaxesConfig, SoftmaxConfig
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
from spanlm.papers.li2020 import reading_state
from spanlm.papers.preset import Preset
from spanlm.training.config import BatchingConfig, OptimizerConfig, TrainingConfig

PAPER = "none; every memory on one encoder, for texts with a known law"
REACH = 32
SPANS = SpanBufferConfig(buffer_size=REACH, span_length=2, dropout=0.0)

TWICE = MixtureOfSoftmaxesConfig(experts=2, latent_dropout=0.0, tied=False)


class Model(NamedTuple):
    """A row; two softmaxes are there because the span buffer predicts twice, too."""

    title: str
    memory: AnyMemoryConfig
    head: AnyHeadConfig = SoftmaxConfig()


MODELS = {
    "lstm": Model("LSTM, no memory", NoMemoryConfig()),
    "lstm-mos": Model("LSTM, two softmaxes", NoMemoryConfig(), TWICE),
    "4-gram": Model("4-gram", NGramConfig(order=4)),
    "attention": Model("Attention", KeyValueConfig(roles=1, window=REACH)),
    "attention-mos": Model("Attention, two softmaxes", KeyValueConfig(roles=1, window=REACH), TWICE),
    "key-value": Model("Key-Value", KeyValueConfig(roles=2, window=REACH)),
    "key-value-predict": Model("Key-Value-Predict", KeyValueConfig(roles=3, window=REACH)),
    "recurrent-memory": Model("Recurrent memory", RecurrentMemoryConfig(window=REACH)),
    "attentive-single": Model("Attentive, single score", AttentiveConfig(score="single", window=REACH)),
    "attentive-combined": Model("Attentive, combined score", AttentiveConfig(score="combined", window=REACH)),
    "pointer": Model("Pointer sentinel", PointerSentinelConfig(window=REACH)),
    "span-buffer": Model("Span buffer", SPANS),
    "span-buffer-state": Model("Span buffer, q sees h_t, too", reading_state(SPANS)),
}

PRESETS = [
    Preset(
        name=f"yardstick/{name}",
        paper=PAPER,
        sources=(model.title,),
        config=RunConfig(
            data=DataConfig(corpus="synthetic:recall"),
            model=ModelConfig(
                embedding_size=64,
                # the memory of a 4-gram cuts it into equal parts
                encoder=LSTMConfig(hidden_size=68 if name == "4-gram" else 66),
                memory=model.memory,
                head=model.head,
            ),
            training=TrainingConfig(
                optimizer=OptimizerConfig(lr=0.005),
                batching=BatchingConfig(kind="streams", batch_size=16, length=REACH),
                epochs=15,
                patience=3,
            ),
        ),
    )
    for name, model in MODELS.items()
]
