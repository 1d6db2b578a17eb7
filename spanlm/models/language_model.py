"""embedding → encoder → memory → head, and their configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from spanlm.errors import require
from spanlm.models.encoders import AnyEncoderConfig, LSTMConfig
from spanlm.models.heads import AnyHeadConfig, SoftmaxConfig
from spanlm.models.interfaces import Init, LMState, Memory, NextWordModel, Readout
from spanlm.models.memories import AnyMemoryConfig, KeyValueConfig
from spanlm.models.ops.dropout import drawn, dropout, dropout_mask, locked_dropout


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
        biases = 0.0 if self.bias_range is None else self.bias_range
        require(0 <= biases < math.inf, "model.bias_range", self.bias_range, "0 or positive, or null")

    @property
    def description(self) -> str:
        return ", ".join(room.description for room in (self.encoder, self.memory, self.head))

    @property
    def init(self) -> Init:
        return Init(self.init_range, self.init_range if self.bias_range is None else self.bias_range)


class LanguageModel(NextWordModel):
    """A recurrent language model that may look back; `config` is what it is built of.

    Raises:
        InputError: sizes of the rooms that do not fit each other.
    """

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config, self.vocabulary_size = config, vocabulary_size
        self.embedding_dropout, self.shared_words = config.embedding_dropout, config.shared_words
        self.input_noise = config.input_noise
        self.input_dropout, self.output_dropout = config.input_dropout, config.output_dropout
        self._dropout = locked_dropout if config.locked_dropout else dropout
        self.embedding = nn.Embedding(vocabulary_size, config.embedding_size)
        init = config.init
        init.start(self.embedding.weight)
        self.encoder = config.encoder.build(config.embedding_size, init)
        self.memory: Memory = config.memory.build(self.encoder.output_size, vocabulary_size, init)
        self.head = config.head.build(self.memory.readout_size, self.embedding, init)

    def init_state(self, batch_size: int) -> LMState:
        return LMState(self.encoder.init_state(batch_size), self.memory.init_state(batch_size))

    def forward(self, tokens: Tensor, state: LMState) -> tuple[Readout, LMState]:
        types, rate = self.vocabulary_size, self.embedding_dropout
        x = word_dropout(self.embedding(tokens), tokens, types, rate, self.training, shared=self.shared_words)
        x = gaussian_noise(x, self.input_noise, self.training)
        x = self._dropout(x, self.input_dropout, self.training)
        h, encoder_state = self.encoder(x, state.encoder)
        readout, memory_state = self.memory(h, tokens, state.memory)
        features = self._dropout(readout.features, self.output_dropout, self.training)
        return replace(readout, features=features, hidden=h), LMState(encoder_state, memory_state)


def word_dropout(
    x: Tensor, tokens: Tensor, vocabulary_size: int, rate: float, training: bool, *, shared: bool = False
) -> Tensor:
    """Drop whole words of x (T, B, E), the vectors of `tokens` (T, B): a word type is in or out for the segment.

    Every stream has its own draw, as each of Gal's sequences has; or all share one, as in AWD-LSTM.
    """
    if not training or not rate:
        return x
    streams, axis = (1, None) if shared else (tokens.shape[1], 1)
    types = dropout_mask((vocabulary_size, streams), rate, x, axis)
    return x * types.expand(-1, tokens.shape[1]).gather(0, tokens).unsqueeze(-1)


def gaussian_noise(x: Tensor, deviation: float, training: bool) -> Tensor:
    """Add to every number of x one from N(0, deviation²), as the public code of Wang et al. (2019) does."""
    if not training or not deviation:
        return x
    return x + drawn(lambda shape: torch.randn_like(x.new_empty(shape)), x.shape, 1) * deviation


def to_be_filled(config: ModelConfig, vocabulary_size: int) -> LanguageModel:
    """Make a model that gets its weights from elsewhere: what it draws at first leaves torch's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        return LanguageModel(config, vocabulary_size)
