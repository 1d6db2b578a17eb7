"""Encoders: read words, one state per stream."""

from __future__ import annotations

from spanlm.models.encoders.awd_lstm import AWDLSTMConfig, AWDLSTMEncoder
from spanlm.models.encoders.hornn import HORNNConfig, HORNNEncoder
from spanlm.models.encoders.stacks import LSTMConfig, LSTMEncoder, RNNConfig, RNNEncoder
from spanlm.models.encoders.variational_lstm import VariationalLSTMConfig, VariationalLSTMEncoder

AnyEncoderConfig = LSTMConfig | VariationalLSTMConfig | AWDLSTMConfig | RNNConfig | HORNNConfig

ENCODERS: dict[str, type[AnyEncoderConfig]] = {
    "lstm": LSTMConfig,
    "variational_lstm": VariationalLSTMConfig,
    "awd_lstm": AWDLSTMConfig,
    "rnn": RNNConfig,
    "hornn": HORNNConfig,
}

__all__ = [
    "ENCODERS",
    "AWDLSTMConfig",
    "AWDLSTMEncoder",
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
