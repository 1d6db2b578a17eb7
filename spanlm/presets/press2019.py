"""Press (2019), "Partially Shuffling the Training Data to Improve Language Models": MoS and partial shuffle (PS).

At the start of an epoch each stream is rotated by a drawn number of words. The rest is that of Yang et al. (2018).
The public code is that of another model (DOC); it shuffles in the main training and not in finetuning, and so do these
presets.
"""

from __future__ import annotations

from dataclasses import replace

from spanlm.presets import yang2018
from spanlm.presets.ladder import Rung
from spanlm.presets.preset import PENN_TREEBANK, WIKITEXT_2, reported_twice
from spanlm.training.config import TrainingConfig

_REMARK = (
    "the dynamic evaluation is that of Li et al. 2020; the public code is for another model and shuffles in the main "
    "training alone, and so does this preset"
)


def shuffled(training: TrainingConfig, *, finetune: bool) -> TrainingConfig:
    """Return a recipe with partial shuffle, in finetuning as said."""
    return replace(
        training,
        batching=replace(training.batching, partial_shuffle=True),
        finetune=replace(training.finetune, partial_shuffle=finetune),
    )


RUNG = Rung(
    name="press2019/mos-ps",
    paper="Press 2019",
    title="AWD-LSTM + MoS + PS",
    configs={
        label: replace(base, training=shuffled(base.training, finetune=False))
        for label, base in yang2018.RUNG.configs.items()
    },
)

PRESETS = [
    RUNG.row("ptb", reported_twice(PENN_TREEBANK, 22, (55.89, 53.92), (47.93, 47.49)), _REMARK),
    RUNG.row("wt2", reported_twice(WIKITEXT_2, 35, (62.38, 59.98), (40.75, 39.03)), _REMARK),
]
