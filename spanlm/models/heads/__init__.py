"""Heads: from a readout to a distribution over the next word."""

from typing import get_args

from spanlm.models.heads.mixture_of_softmaxes import MixtureOfSoftmaxesConfig
from spanlm.models.heads.softmax import SoftmaxConfig

AnyHeadConfig = SoftmaxConfig | MixtureOfSoftmaxesConfig

HEADS: dict[str, type[AnyHeadConfig]] = {config.kind: config for config in get_args(AnyHeadConfig)}

__all__ = ["HEADS", "AnyHeadConfig", "MixtureOfSoftmaxesConfig", "SoftmaxConfig"]
