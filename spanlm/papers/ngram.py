"""n-gram models: the baselines of the neural ones.

Figure 2d of Daniluk et al. (2017) takes two rows from Hill, Bordes, Chopra & Weston, "The Goldilocks Principle" (ICLR
2016): a 5-gram Kneser-Ney model by KenLM, and the same interpolated with the unigram probabilities of the words of the
context (the cache of Kuhn & De Mori, 1990), whose weight they do not print. The cache here is that: as long as all
contexts of the Children's Book Test, with the weight that fits the validation text best.
"""

from __future__ import annotations

from dataclasses import dataclass

from spanlm.data.config import DataConfig
from spanlm.scoring.ngram.config import NgramConfig, NgramRunConfig


@dataclass(frozen=True, kw_only=True)
class NgramPreset:
    """The configuration of an n-gram run with its provenance."""

    name: str
    paper: str
    sources: tuple[str, ...]
    config: NgramRunConfig
    remark: str = ""


_ACCURACIES = "published accuracies on CBT, by class: NE {}, CN {}, V {}, P {}; from Hill et al. 2016, by KenLM"

PRESETS = [
    NgramPreset(
        name="ngram",
        paper="none; Chen and Goodman 1998",
        sources=("interpolated modified Kneser-Ney, as KenLM's lmplz estimates it",),
        config=NgramRunConfig(),
    ),
    NgramPreset(
        name="daniluk2017/kn-5",
        paper="Daniluk et al. 2017",
        sources=("Figure 2d, Kneser-Ney LM",),
        config=NgramRunConfig(data=DataConfig(documents="auto")),
        remark=_ACCURACIES.format(0.390, 0.544, 0.778, 0.768),
    ),
    NgramPreset(
        name="daniluk2017/kn-5-cache",
        paper="Daniluk et al. 2017",
        sources=("Figure 2d, Kneser-Ney LM + cache",),
        config=NgramRunConfig(data=DataConfig(documents="auto"), ngram=NgramConfig(cache=1000)),
        remark=_ACCURACIES.format(0.439, 0.577, 0.772, 0.679)
        + "; the cache is a unigram cache of the last 1,000 words, which is longer than a context of CBT",
    ),
]
