"""The main job in about a minute: a small Key-Value-Predict model on the embedded corpus."""

from __future__ import annotations

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.models.config import ModelConfig
from spanlm.models.encoders import LSTMConfig
from spanlm.models.memories import KeyValueConfig
from spanlm.presets.preset import Preset
from spanlm.training.config import BatchingConfig, OptimizerConfig, TrainingConfig

PRESETS = [
    Preset(
        name="demo",
        paper="none; Daniluk et al. (2017) made small",
        sources=("the main job in about a minute on two CPU cores",),
        config=RunConfig(
            data=DataConfig(corpus="demo"),
            model=ModelConfig(
                embedding_size=100,
                output_dropout=0.5,
                init_range=0.2,  # the paper's 0.1 idles for two epochs on a text this short
                encoder=LSTMConfig(hidden_size=300),
                memory=KeyValueConfig(roles=3, window=5),
            ),
            training=TrainingConfig(
                optimizer=OptimizerConfig(lr=0.002),
                batching=BatchingConfig(batch_size=8, length=20, eval_batch_size=8),
                epochs=12,
                patience=2,
                log_every=20,
            ),
        ),
    )
]
