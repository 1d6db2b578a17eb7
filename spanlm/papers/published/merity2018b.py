"""Merity et al. (2018b), "An Analysis of Neural Language Modeling at Multiple Scales": the AWD-LSTM on characters.

Three LSTM layers, e → h → h → e, with the softmax tied to the embedding and the dropouts of `merity2018`, but without
dropout of whole characters, AR and TAR. Trained by Adam on segments of 150 or 200 steps, give or take, the rate in
proportion to their length, and divided by 10 after two epochs.

Sizes and settings are those of the commands in the README of the public code, and its defaults. By our count the models
have 13,787,650 parameters, as the code prints, and 47,270,045: the published 13.8M and 47M.
"""

from __future__ import annotations

from typing import Any

from spanlm.papers.paper import ENWIK8, PENN_CHARACTERS, Preset, PublishedText
from spanlm.papers.published import merity2018
from spanlm.papers.scales import changed
from spanlm.training.config import FinetuneConfig, OptimizerConfig, ScheduleConfig

_PENN_TREEBANK = {
    "model.embedding_size": 200,
    "model.embedding_dropout": 0.0,
    "model.input_dropout": 0.1,
    "model.output_dropout": 0.1,
    "model.encoder.hidden_size": 1000,
    "model.encoder.last_size": 200,
    "training.optimizer": OptimizerConfig(kind="adam", lr=2e-3, weight_decay=1.2e-6, clip=0.25),
    "training.schedule": ScheduleConfig(kind="milestones", factor=10.0, milestones=(300, 400)),
    "training.batching.batch_size": 128,
    "training.batching.length": 150,
    "training.finetune": FinetuneConfig(),
    "training.activation_penalty": 0.0,
    "training.temporal_penalty": 0.0,
}
_ENWIK8 = _PENN_TREEBANK | {
    "model.embedding_size": 400,
    "model.output_dropout": 0.4,
    "model.encoder.hidden_size": 1840,
    "model.encoder.last_size": 400,
    "model.encoder.hidden_dropout": 0.1,
    "model.encoder.weight_drop": 0.2,
    "training.optimizer": OptimizerConfig(kind="adam", lr=1e-3, weight_decay=1.2e-6, clip=0.25),
    "training.schedule": ScheduleConfig(kind="milestones", factor=10.0, milestones=(25, 35)),
    "training.batching.length": 200,
    "training.epochs": 50,
    "data.tokenizer": "bytes",
}


def _preset(text: PublishedText, changes: dict[str, Any], remark: str, millions: float, test_bpc: float) -> Preset:
    return Preset(
        name=f"merity2018b/awd-{text.name}",
        paper="Merity et al. 2018b",
        sources=("3-layer AWD-LSTM",),
        title="AWD-LSTM",
        config=changed(merity2018.CONFIGS["ptb"], {**changes, "data.corpus": text.name}),
        reported=text.reported(None, None, millions, test_bpc=test_bpc),
        remark=remark,
    )


PRESETS = [
    _preset(PENN_CHARACTERS, _PENN_TREEBANK, "our vocabulary also has <unk>, which the text lacks", 13.8, 1.175),
    _preset(ENWIK8, _ENWIK8, "the published vocabulary has the 205 bytes of the text; ours has all 256", 47, 1.232),
]
