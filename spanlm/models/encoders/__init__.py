"""Encoders: read words, one state per stream."""

from typing import get_args

from spanlm.models.encoders.awd_lstm import AWDLSTMConfig
from spanlm.models.encoders.delta import DeltaConfig
from spanlm.models.encoders.hornn import HORNNConfig
from spanlm.models.encoders.lstm_blocks import LSTMBlocksConfig
from spanlm.models.encoders.min_gru import MinGRUConfig
from spanlm.models.encoders.mogrifier_lstm import MogrifierLSTMConfig
from spanlm.models.encoders.stacks import LSTMConfig, RNNConfig
from spanlm.models.encoders.transformer import TransformerConfig
from spanlm.models.encoders.variational_lstm import VariationalLSTMConfig

AnyEncoderConfig = (
    LSTMConfig
    | VariationalLSTMConfig
    | AWDLSTMConfig
    | MogrifierLSTMConfig
    | RNNConfig
    | HORNNConfig
    | LSTMBlocksConfig
    | MinGRUConfig
    | DeltaConfig
    | TransformerConfig
)

ENCODERS: dict[str, type[AnyEncoderConfig]] = {config.kind: config for config in get_args(AnyEncoderConfig)}

__all__ = [
    "ENCODERS",
    "AWDLSTMConfig",
    "AnyEncoderConfig",
    "DeltaConfig",
    "HORNNConfig",
    "LSTMBlocksConfig",
    "LSTMConfig",
    "MinGRUConfig",
    "MogrifierLSTMConfig",
    "RNNConfig",
    "TransformerConfig",
    "VariationalLSTMConfig",
]
