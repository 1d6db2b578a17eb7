"""Encoders: read words, one state per stream."""

from __future__ import annotations

from spanlm.models.encoders.hornn import HORNNConfig, HORNNEncoder
from spanlm.models.encoders.lstm import LSTMConfig, LSTMEncoder
from spanlm.models.encoders.rnn import RNNConfig, RNNEncoder

AnyEncoderConfig = LSTMConfig | RNNConfig | HORNNConfig

ENCODERS: dict[str, type[AnyEncoderConfig]] = {
    "lstm": LSTMConfig,
    "rnn": RNNConfig,
    "hornn": HORNNConfig,
}

__all__ = [
    "ENCODERS",
    "AnyEncoderConfig",
    "HORNNConfig",
    "HORNNEncoder",
    "LSTMConfig",
    "LSTMEncoder",
    "RNNConfig",
    "RNNEncoder",
]
