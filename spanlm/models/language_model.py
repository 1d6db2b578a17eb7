"""embedding → encoder → memory → head, and their configuration."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from spanlm.errors import require
from spanlm.models.encoders import AnyEncoderConfig, LSTMConfig
from spanlm.models.heads import AnyHeadConfig, SoftmaxConfig
from spanlm.models.interfaces import Encoder, Head, Init, LMState, Memory, NextWordModel, Readout
from spanlm.models.memories import AnyMemoryConfig, KeyValueConfig
from spanlm.models.ops.dropout import drawn, dropout, dropout_mask, locked_dropout
from spanlm.options import NOT_NEGATIVE, RATE, Limit, at_least, option, options


@options("model")
class ModelConfig:
    """The rooms of the model and their sizes."""

    embedding_size: int = option("E, the paper's w", default=300, limit=at_least(1))
    embedding_dropout: float = option(
        "dropout of whole words: each word type is kept or dropped for a segment of a stream", default=0.0, limit=RATE
    )
    shared_words: bool = option(
        "embedding_dropout draws once for all streams, as in AWD-LSTM, not for each stream", default=False
    )
    input_noise: float = option(
        "standard deviation of noise on the embedded words, after embedding_dropout, in training",
        default=0.0,
        limit=NOT_NEGATIVE,
    )
    input_dropout: float = option("dropout on the embedded words", default=0.0, limit=RATE)
    output_dropout: float = option("dropout on the head's input", default=0.0, limit=RATE)
    locked_dropout: bool = option(
        "input_dropout and output_dropout draw one mask for all steps of a segment, not for each step", default=False
    )
    init_range: float = option(
        "weights start uniform in plus or minus this",
        default=0.1,
        limit=Limit(lambda r: 0 < r <= 1e30, "above 0 and at most 1e30"),
    )
    bias_range: float | None = option(
        "the same for biases, except the forget gate's (model.encoder.forget_bias); null: init_range",
        default=None,
        limit=Limit(lambda r: 0 <= r <= 1e30, "from 0 to 1e30"),
    )
    encoder: AnyEncoderConfig = option("what reads the words", default_factory=LSTMConfig)
    memory: AnyMemoryConfig = option("what looks back", default_factory=KeyValueConfig)
    head: AnyHeadConfig = option("what predicts", default_factory=SoftmaxConfig)

    def __post_init__(self) -> None:
        require(
            self.output_dropout == 0 or not self.memory.drops_output,
            "model.output_dropout",
            self.output_dropout,
            f"0 with model.memory.kind={self.memory.kind}, whose own is model.memory.dropout",
        )

    @property
    def description(self) -> str:
        return ", ".join(room.description for room in (self.encoder, self.memory, self.head))

    @property
    def init(self) -> Init:
        return Init(self.init_range, self.init_range if self.bias_range is None else self.bias_range)


class LanguageModel(NextWordModel):
    """A recurrent language model that may look back, built from its `config`.

    Raises:
        InputError: sizes of the rooms that do not fit each other.
    """

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config: ModelConfig = config
        self.vocabulary_size: int = vocabulary_size
        self.output_dropout: float = config.output_dropout
        self._dropout = locked_dropout if config.locked_dropout else dropout
        self.embedding: nn.Embedding = nn.Embedding(vocabulary_size, config.embedding_size)
        init = config.init
        init.start(self.embedding.weight)
        self.encoder: Encoder = config.encoder.build(config.embedding_size, init)
        self.memory: Memory = config.memory.build(self.encoder.output_size, vocabulary_size, init)
        self.head: Head = config.head.build(self.memory.readout_size, self.embedding, init)

    def init_state(self, batch_size: int) -> LMState:
        return LMState(self.encoder.init_state(batch_size), self.memory.init_state(batch_size))

    def forward(self, tokens: Tensor, state: LMState) -> tuple[Readout, LMState]:
        config, types = self.config, self.vocabulary_size
        x, rate = self.embedding(tokens), config.embedding_dropout
        x = word_dropout(x, tokens, types, rate, self.training, shared=config.shared_words)
        x = gaussian_noise(x, config.input_noise, self.training)
        x = self._dropout(x, config.input_dropout, self.training)
        h, encoder_state = self.encoder(x, state.encoder)
        readout, memory_state = self.memory(h, tokens, state.memory)
        features = self._dropout(readout.features, self.output_dropout, self.training)
        return replace(readout, features=features, hidden=h), LMState(encoder_state, memory_state)


def word_dropout(
    x: Tensor, tokens: Tensor, vocabulary_size: int, rate: float, training: bool, *, shared: bool = False
) -> Tensor:
    """Drop whole words of x (T, B, E), the vectors of `tokens` (T, B): a word type is kept or dropped for a segment.

    Each stream has its own draw, as in Gal & Ghahramani (2016); with `shared` all have the same, as in AWD-LSTM.
    """
    if not training or not rate:
        return x
    streams, axis = (1, None) if shared else (tokens.shape[1], 1)
    types = dropout_mask((vocabulary_size, streams), rate, x, axis)
    return x * types.expand(-1, tokens.shape[1]).gather(0, tokens).unsqueeze(-1)


def gaussian_noise(x: Tensor, deviation: float, training: bool) -> Tensor:
    """Add noise from N(0, deviation²) to every number of x, as the public code of Wang et al. (2019) does."""
    if not training or not deviation:
        return x
    return x + drawn(lambda shape: torch.randn_like(x.new_empty(shape)), x.shape, 1) * deviation


def to_be_filled(config: ModelConfig, vocabulary_size: int) -> LanguageModel:
    """Build a model whose weights will be loaded; its initial draws leave torch's generator unchanged."""
    with torch.random.fork_rng(devices=[]):
        return LanguageModel(config, vocabulary_size)
