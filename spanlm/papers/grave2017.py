"""Grave et al. (2017), "Improving Neural Language Models with a Continuous Cache", ICLR: the LSTMs under the cache.

The recipe, from memory: 1024 units, dropout 0.65, Adagrad from 0.2, 20 streams of 30 steps, gradient norm at most
0.1, weights uniform in ±0.05. Our choices, since neither the paper's text nor code was available: one layer, an
embedding as wide, dropout on the embedded words and before the softmax, nothing tied, the loss per token, and
epochs until the validation loss has not improved five times. The cache itself belongs to evaluation
and works on any run.
"""

from __future__ import annotations

from spanlm.models.encoders import LSTMConfig
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import NoMemoryConfig
from spanlm.papers.paper import TEXTS, preset_on
from spanlm.training.config import BatchingConfig, OptimizerConfig, TrainingConfig

_REMARK = (
    "the recipe and the perplexity 82.3 are from memory; layers (1), embedding (1024), epochs and where the dropout "
    "acts are choices, as the published text was not at hand"
)
_MODEL = ModelConfig(
    embedding_size=1024,
    input_dropout=0.65,
    output_dropout=0.65,
    init_range=0.05,
    encoder=LSTMConfig(hidden_size=1024, forget_bias=None),
    memory=NoMemoryConfig(),
)
_TRAINING = TrainingConfig(
    optimizer=OptimizerConfig(kind="adagrad", lr=0.2, clip=0.1),
    batching=BatchingConfig(kind="streams", batch_size=20, length=30, eval_batch_size=20),
    epochs=100,
    patience=5,
)
_WITHOUT = "LSTM, without a cache"

PRESETS = [
    preset_on(
        TEXTS[label],
        _MODEL,
        _TRAINING,
        None,
        test,
        name=f"grave2017/lstm-{label}",
        paper="Grave et al. 2017",
        sources=sources,
        remark=_REMARK,
    )
    for label, sources, test in (
        ("ptb", (_WITHOUT,), 82.3),
        ("wt2", (_WITHOUT, "Salton et al. 2017, Table 2, LSTM-LM"), 99.3),
    )
]
