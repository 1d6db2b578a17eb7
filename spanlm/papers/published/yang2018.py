"""Yang et al. (2018), "Breaking the Softmax Bottleneck", ICLR: a mixture of softmaxes (MoS) on the AWD-LSTM.

K = 15 softmaxes over one matrix instead of one, on layers e → h → h → d that are not as wide as the embedding at the
end (emsize, nhid, nhidlast of the public code, whose settings these are); dropoutl is head.latent_dropout. All else
is as in Merity et al. (2018), except sizes, rates and batches: WikiText-2's 15 streams are read in groups of 5
(small_batch_size), segments have at most `longest_over` steps more than 70, and finetuning has a higher rate.
"""

from __future__ import annotations

from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.papers.paper import Preset, rung
from spanlm.papers.published import merity2018
from spanlm.papers.scales import changed
from spanlm.scoring.options import DynamicConfig

_PENN_TREEBANK = {
    "model.embedding_size": 280,
    "model.encoder.hidden_size": 960,
    "model.encoder.last_size": 620,
    "model.encoder.hidden_dropout": 0.225,
    "model.head": MixtureOfSoftmaxesConfig(experts=15, latent_dropout=0.29, tied=True),
    "training.optimizer.lr": 20.0,
    "training.batching.batch_size": 12,
    "training.batching.longest_over": 40,
    "training.epochs": 1000,
    "training.finetune.lr": 25.0,
    "training.finetune.epochs": 1000,
}
_WIKITEXT_2 = _PENN_TREEBANK | {
    "model.embedding_size": 300,
    "model.input_dropout": 0.55,
    "model.encoder.hidden_size": 1150,
    "model.encoder.last_size": 650,
    "model.encoder.hidden_dropout": 0.2,
    "training.optimizer.lr": 15.0,
    "training.batching.batch_size": 15,
    "training.batching.group_size": 5,
    "training.batching.longest_over": 20,
    "training.finetune.lr": 20.0,
}
_CHANGES = {"ptb": _PENN_TREEBANK, "wt2": _WIKITEXT_2}

DYNAMIC = {
    label: DynamicConfig.from_sum_convention(
        rate=0.002, decay=decay, epsilon=epsilon, segments=merity2018.SEGMENTS[label], tensors=17
    )
    for label, decay, epsilon in (("ptb", 0.075, 0.001), ("wt2", 0.02, 0.002))
}
"""Those of the public code, which has a copy of the first release."""

_REMARK = "the public code takes log(p + 1e-8), of what then sums to more than 1; here the mixture is a distribution"


def _preset(label: str, *printed: float) -> Preset:
    config = changed(merity2018.CONFIGS[label], _CHANGES[label])
    more = {"paper": "Yang et al. 2018", "remark": _REMARK, "dynamic": DYNAMIC[label]}
    return rung(label, "yang2018/mos", "AWD-LSTM + MoS", config, *printed, **more)


MOS = {
    "ptb": _preset("ptb", 56.54, 54.44, 22, 48.33, 47.69),
    "wt2": _preset("wt2", 63.88, 61.45, 35, 42.41, 40.68),
}
PRESETS = [*MOS.values()]
