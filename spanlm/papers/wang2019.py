"""Two papers on training MoS: partial shuffle (PS), and with it the adversarial softmax (AT).

Press (2019), "Partially Shuffling the Training Data to Improve Language Models". At the start of an epoch each stream
is rotated by a drawn number of words. All else is as in Yang et al. (2018). The public code is for another model
(DOC); it shuffles in the main training and not in finetuning, and so do these presets.

Wang, Gong & Liu (2019), "Improving Neural Language Modeling via Adversarial Training", ICML.
AT is the adversarial softmax, ε = 0.005. Beside it, as in the public code: noise with a standard deviation of 0.15 on
the embedded words; weights averaged from epoch 200 on, without the non-monotone test; then finetuning without that
noise and with ε = 0.028, several times, the last with a dropout of 0.5 on what the experts see. All else is as
in Yang et al. (2018), with partial shuffle throughout.

The release does not do what its README says (its `finetune.py` knows no ε, its flag for partial shuffle cannot be set);
here the README is followed. It finetunes in four stages: once, twice "again", and a last one. The release's margin has
one direction for all predictions of a word, whichever is written last; here each has its own.
"""

from __future__ import annotations

from dataclasses import replace

from spanlm.config import RunConfig
from spanlm.papers import yang2018
from spanlm.papers.preset import Rung
from spanlm.training.config import TrainingConfig

_SHUFFLED_REMARK = (
    "the dynamic evaluation is that of Li et al. 2020; the public code is for another model and shuffles in the main "
    "training alone, and so does this preset"
)


def shuffled(training: TrainingConfig, *, finetune: bool) -> TrainingConfig:
    """Return a recipe with partial shuffle; `finetune`: in finetuning, too."""
    return replace(
        training,
        batching=replace(training.batching, partial_shuffle=True),
        finetune=replace(training.finetune, partial_shuffle=finetune),
    )


SHUFFLED_RUNG = Rung(
    name="press2019/mos-ps",
    paper="Press 2019",
    title="AWD-LSTM + MoS + PS",
    configs={
        label: replace(base, training=shuffled(base.training, finetune=False))
        for label, base in yang2018.RUNG.configs.items()
    },
)

HEAD = replace(yang2018.HEAD, adversarial=0.005)
NOISE = 0.15

_REMARK = (
    "published: ε 0.005 and 0.028, noise 0.15, the switch at 200, four stages of finetuning, the last with dropout "
    "0.5; as in the code, a prediction that points away from its word has no margin; ours: each margin has its own "
    "direction{more}"
)
_OTHERS = "; the abstract has 40.27/38.65 with dynamic evaluation, Li et al. 39.58/38.07"


def _adversarial(base: RunConfig) -> RunConfig:
    training = shuffled(base.training, finetune=True)
    return replace(
        base,
        model=replace(base.model, head=HEAD, input_noise=NOISE),
        training=replace(
            training,
            optimizer=replace(training.optimizer, switch_after=200),
            finetune=replace(training.finetune, stages=4, adversarial=0.028, input_noise=0.0, last_latent_dropout=0.5),
        ),
    )


RUNG = Rung(
    name="wang2019/mos-ps-at",
    paper="Wang et al. 2019",
    title="AWD-LSTM + MoS + PS + AT",
    configs={label: _adversarial(base) for label, base in yang2018.RUNG.configs.items()},
)

PRESETS = [
    SHUFFLED_RUNG.row("ptb", _SHUFFLED_REMARK, 55.89, 53.92, 22, 47.93, 47.49),
    SHUFFLED_RUNG.row("wt2", _SHUFFLED_REMARK, 62.38, 59.98, 35, 40.75, 39.03),
    RUNG.row("ptb", _REMARK.format(more=""), 54.1, 52.2, 22, 46.63, 46.01),
    RUNG.row("wt2", _REMARK.format(more=_OTHERS), 61.1, 58.95, 35, 39.58, 38.07),
]
