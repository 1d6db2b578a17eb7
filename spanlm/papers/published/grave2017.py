"""Grave et al. (2017), "Improving Neural Language Models with a Continuous Cache", ICLR: the LSTMs under the cache.

The recipe, from memory: 1024 units, dropout 0.65, Adagrad from 0.2, 20 streams of 30 steps, gradient norm at most
0.1, weights uniform in ±0.05. Our choices, since neither the paper's text nor code was available: one layer, an
embedding as wide, dropout on the embedded words and before the softmax, nothing tied, the loss per token, and
epochs until the validation loss has not improved five times. The cache itself belongs to evaluation
and works on any run.
"""

from __future__ import annotations

from spanlm.config import RunConfig
from spanlm.models.encoders import LSTMConfig
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import NoMemoryConfig
from spanlm.papers.paper import TEXTS, Preset, preset_on
from spanlm.training.config import BatchingConfig, OptimizerConfig, TrainingConfig

_REMARK = (
    "the recipe and the perplexity 82.3 are from memory; layers (1), embedding (1024), epochs and where the dropout "
    "acts are choices, as the published text was not at hand"
)
_CONFIG = RunConfig(
    model=ModelConfig(
        embedding_size=1024,
        input_dropout=0.65,
        output_dropout=0.65,
        init_range=0.05,
        encoder=LSTMConfig(hidden_size=1024, forget_bias=None),
        memory=NoMemoryConfig(),
    ),
    training=TrainingConfig(
        optimizer=OptimizerConfig(kind="adagrad", lr=0.2, clip=0.1),
        batching=BatchingConfig(kind="streams", batch_size=20, length=30, eval_batch_size=20),
        epochs=100,
        patience=5,
    ),
)


def _preset(label: str, test: float, *sources: str) -> Preset:
    more = {"name": f"grave2017/lstm-{label}", "paper": "Grave et al. 2017", "remark": _REMARK}
    return preset_on(TEXTS[label], _CONFIG, None, test, sources=("LSTM, without a cache", *sources), **more)


PRESETS = [_preset("ptb", 82.3), _preset("wt2", 99.3, "Salton et al. 2017, Table 2, LSTM-LM")]
