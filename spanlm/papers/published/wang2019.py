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

from spanlm.papers.paper import Preset, rung
from spanlm.papers.published import yang2018
from spanlm.papers.scales import changed

_SHUFFLED_REMARK = (
    "the dynamic evaluation is that of Li et al. 2020; the public code is for another model and shuffles in the main "
    "training alone, and so does this preset"
)


def _shuffled(label: str, *printed: float) -> Preset:
    shuffles = {"training.batching.partial_shuffle": True, "training.finetune.partial_shuffle": False}
    config, more = changed(yang2018.MOS[label].config, shuffles), {"paper": "Press 2019", "remark": _SHUFFLED_REMARK}
    return rung(label, "press2019/mos-ps", "AWD-LSTM + MoS + PS", config, *printed, **more)


SHUFFLED = {
    "ptb": _shuffled("ptb", 55.89, 53.92, 22, 47.93, 47.49),
    "wt2": _shuffled("wt2", 62.38, 59.98, 35, 40.75, 39.03),
}

_REMARK = (
    "published: ε 0.005 and 0.028, noise 0.15, the switch at 200, four stages of finetuning, the last with dropout "
    "0.5; as in the code, a prediction that points away from its word has no margin; ours: each margin has its own "
    "direction{more}"
)
_OTHERS = "; the abstract has 40.27/38.65 with dynamic evaluation, Li et al. 39.58/38.07"


_CHANGES = {
    "model.head.adversarial": 0.005,
    "model.input_noise": 0.15,
    "training.optimizer.switch_after": 200,
    "training.batching.partial_shuffle": True,
    "training.finetune.stages": 4,
    "training.finetune.adversarial": 0.028,
    "training.finetune.input_noise": 0.0,
    "training.finetune.last_latent_dropout": 0.5,
    "training.finetune.partial_shuffle": True,
}


def _adversarial(label: str, remark: str, *printed: float) -> Preset:
    config, more = changed(yang2018.MOS[label].config, _CHANGES), {"paper": "Wang et al. 2019", "remark": remark}
    return rung(label, "wang2019/mos-ps-at", "AWD-LSTM + MoS + PS + AT", config, *printed, **more)


ADVERSARIAL = {
    "ptb": _adversarial("ptb", _REMARK.format(more=""), 54.1, 52.2, 22, 46.63, 46.01),
    "wt2": _adversarial("wt2", _REMARK.format(more=_OTHERS), 61.1, 58.95, 35, 39.58, 38.07),
}
PRESETS = [*SHUFFLED.values(), *ADVERSARIAL.values()]
