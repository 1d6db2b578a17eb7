"""embedding → encoder → memory → head; nothing else."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn
from torch.nn.functional import dropout

from spanlm.models.config import ModelConfig
from spanlm.models.dropout import gaussian_noise, locked_dropout, word_dropout
from spanlm.models.interfaces import Memory, NextWordModel, Readout
from spanlm.models.state import LMState


class LanguageModel(NextWordModel):
    """A recurrent language model that may look back.

    Args:
        config: the rooms and their sizes.
        vocabulary_size: V.

    Raises:
        InputError: sizes of the rooms that do not fit each other.
    """

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.vocabulary_size = vocabulary_size
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
        """State of `batch_size` streams that have read nothing."""
        return LMState(self.encoder.init_state(batch_size), self.memory.init_state(batch_size))

    def forward(self, tokens: Tensor, state: LMState) -> tuple[Readout, LMState]:
        """Read tokens (T, B): what the next words are predicted from, and the state after the last step."""
        x = self.embedding(tokens)
        x = word_dropout(
            x, tokens, self.vocabulary_size, self.embedding_dropout, self.training, shared=self.shared_words
        )
        x = gaussian_noise(x, self.input_noise, self.training)
        x = self._dropout(x, self.input_dropout, self.training)
        h, encoder_state = self.encoder(x, state.encoder)
        readout, memory_state = self.memory(h, tokens, state.memory)
        features = self._dropout(readout.features, self.output_dropout, self.training)
        return replace(readout, features=features, hidden=h), LMState(encoder_state, memory_state)
