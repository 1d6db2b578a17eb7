"""Encoders: read words, one state per stream."""

from __future__ import annotations

from spanlm.models.encoders.lstm import LSTMConfig, LSTMEncoder

ENCODERS: dict[str, type[LSTMConfig]] = {"lstm": LSTMConfig}

__all__ = ["ENCODERS", "LSTMConfig", "LSTMEncoder"]
