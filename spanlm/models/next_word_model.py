"""What a whole is: a language model, or several as one. Its rooms: `spanlm.models.interfaces`; its head: `head`."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from spanlm.models.head import Head
from spanlm.models.interfaces import Readout
from spanlm.models.state import LMState


class NextWordModel(nn.Module, ABC):
    """Reads words and says how probable each next one is: a language model, or several as one.

    Everything that evaluates, samples or ranks asks for no more than this.
    """

    head: Head
    vocabulary_size: int

    @property
    def device(self) -> torch.device:
        """Where the weights are, and what is read must be."""
        return next(self.parameters()).device

    @abstractmethod
    def init_state(self, batch_size: int) -> LMState:
        """State of `batch_size` streams that have read nothing."""

    @abstractmethod
    def forward(self, tokens: Tensor, state: LMState) -> tuple[Readout, LMState]:
        """Read tokens (T, B): what the next words are predicted from, and the state after the last step."""

    def log_prob(self, tokens: Tensor, targets: Tensor, state: LMState) -> tuple[Tensor, LMState]:
        """Log p(targets | tokens up to and including the same step), (T, B), natural logarithm."""
        readout, state = self(tokens, state)
        return self.head.log_prob(readout, targets), state

    def log_probs(self, tokens: Tensor, state: LMState) -> tuple[Tensor, LMState]:
        """Log p of every next word, (T, B, V)."""
        readout, state = self(tokens, state)
        return self.head.log_probs(readout), state
