"""Encoders: read words, one state per stream."""

from __future__ import annotations

from spanlm.models.encoders.hornn import HORNNConfig, HORNNEncoder
from spanlm.models.encoders.lstm import LSTMConfig, LSTMEncoder
from spanlm.models.encoders.rnn import RNNConfig, RNNEncoder
from spanlm.models.encoders.variational_lstm import VariationalLSTMConfig, VariationalLSTMEncoder

AnyEncoderConfig = LSTMConfig | VariationalLSTMConfig | RNNConfig | HORNNConfig

ENCODERS: dict[str, type[AnyEncoderConfig]] = {
    "lstm": LSTMConfig,
    "variational_lstm": VariationalLSTMConfig,
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
    "VariationalLSTMConfig",
    "VariationalLSTMEncoder",
]
