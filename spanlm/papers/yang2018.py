"""Yang et al. (2018), "Breaking the Softmax Bottleneck", ICLR: a mixture of softmaxes (MoS) on the AWD-LSTM.

K = 15 softmaxes over one matrix instead of one, on layers e → h → h → d that are not as wide as the embedding at the
end (emsize, nhid, nhidlast of the public code, whose settings these are); dropoutl is head.latent_dropout. All else
is as in Merity et al. (2018), except sizes, rates and batches: WikiText-2's 15 streams are read in groups of 5
(small_batch_size), segments have at most `longest_over` steps more than 70, and finetuning has a higher rate.
"""

from __future__ import annotations

from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.papers.merity2018 import SEGMENTS, Size, model_of, training_of
from spanlm.papers.paper import Preset, rung
from spanlm.scoring.dynamic.update import DynamicConfig

HEAD = MixtureOfSoftmaxesConfig(experts=15, latent_dropout=0.29, tied=True)

SIZES = {
    "ptb": Size(
        embedding=280,
        hidden=960,
        last=620,
        input_dropout=0.4,
        hidden_dropout=0.225,
        batch_size=12,
        longest_over=40,
        lr=20.0,
        finetune_lr=25.0,
        epochs=1000,
    ),
    "wt2": Size(
        embedding=300,
        hidden=1150,
        last=650,
        input_dropout=0.55,
        hidden_dropout=0.2,
        batch_size=15,
        group_size=5,
        longest_over=20,
        lr=15.0,
        finetune_lr=20.0,
        epochs=1000,
    ),
}

DYNAMIC = {
    label: DynamicConfig.from_sum_convention(
        rate=0.002, decay=decay, epsilon=epsilon, segments=SEGMENTS[label], tensors=17
    )
    for label, decay, epsilon in (("ptb", 0.075, 0.001), ("wt2", 0.02, 0.002))
}
"""Those of the public code, which has a copy of the first release."""

_REMARK = "the public code takes log(p + 1e-8), of what then sums to more than 1; here the mixture is a distribution"


def _preset(label: str, *printed: float) -> Preset:
    model, training = model_of(SIZES[label], HEAD), training_of(SIZES[label])
    more = {"paper": "Yang et al. 2018", "remark": _REMARK, "dynamic": DYNAMIC[label]}
    return rung(label, "yang2018/mos", "AWD-LSTM + MoS", model, training, *printed, **more)


MOS = {
    "ptb": _preset("ptb", 56.54, 54.44, 22, 48.33, 47.69),
    "wt2": _preset("wt2", 63.88, 61.45, 35, 42.41, 40.68),
}
PRESETS = [*MOS.values()]
