"""The configuration of a language model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from spanlm.errors import require
from spanlm.models.encoders import AnyEncoderConfig, LSTMConfig
from spanlm.models.heads import AnyHeadConfig, SoftmaxConfig
from spanlm.models.interfaces import Init
from spanlm.models.memories import AnyMemoryConfig, KeyValueConfig


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The rooms of the model and their sizes.

    Attributes:
        embedding_size: E, the paper's w.
        embedding_dropout: of whole words: each word type is in or out for a segment of a stream.
        shared_words: embedding_dropout makes one draw for all streams, as in AWD-LSTM, not one a stream.
        input_noise: standard deviation of noise on the embedded words, after embedding_dropout, in training.
        input_dropout: on the embedded words.
        output_dropout: on what the head reads.
        locked_dropout: input_dropout and output_dropout draw one mask for all steps of a segment, not one a step.
        init_range: weights start uniform in plus or minus this.
        bias_range: biases likewise, but for the forget gate's (model.encoder.forget_bias); null: as init_range.
        encoder: what reads the words.
        memory: what looks back.
        head: what predicts.
    """

    embedding_size: int = 300
    embedding_dropout: float = 0.0
    shared_words: bool = False
    input_noise: float = 0.0
    input_dropout: float = 0.0
    output_dropout: float = 0.0
    locked_dropout: bool = False
    init_range: float = 0.1
    bias_range: float | None = None
    encoder: AnyEncoderConfig = field(default_factory=LSTMConfig)
    memory: AnyMemoryConfig = field(default_factory=KeyValueConfig)
    head: AnyHeadConfig = field(default_factory=SoftmaxConfig)

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        require(self.embedding_size >= 1, "model.embedding_size", self.embedding_size, "at least 1")
        for name in ("embedding_dropout", "input_dropout", "output_dropout"):
            value = getattr(self, name)
            require(0 <= value < 1, f"model.{name}", value, "in [0, 1)")
        require(
            self.output_dropout == 0 or not self.memory.drops_output,
            "model.output_dropout",
            self.output_dropout,
            f"0 with model.memory.kind={self.memory.kind}, whose own is model.memory.dropout",
        )
        require(0 <= self.input_noise < math.inf, "model.input_noise", self.input_noise, "0 or positive, and finite")
        require(0 < self.init_range < math.inf, "model.init_range", self.init_range, "positive and finite")
        require(
            self.bias_range is None or 0 <= self.bias_range < math.inf,
            "model.bias_range",
            self.bias_range,
            "0 or positive, or null",
        )

    @property
    def init(self) -> Init:
        """How weights start."""
        return Init(self.init_range, self.init_range if self.bias_range is None else self.bias_range)
