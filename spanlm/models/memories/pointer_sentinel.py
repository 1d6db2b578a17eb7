"""The pointer sentinel (Merity et al., 2017, "Pointer Sentinel Mixture Models", §2.2-2.4).

The last L hidden states are compared with a projection of the current one, and with a sentinel that is learned. What
falls on a state is the probability that the next word is the word read there; what falls on the sentinel is the
share of the softmax:

    q_t = tanh(W h_t + b)
    z_{t,i} = q_t · h_i,    i = t - L + 1 … t
    [a_t; g_t] = softmax([z_t; q_t · s])
    p(w) = g_t p_vocab(w) + Σ_{i: x_i = w} a_{t,i}

The window holds the current state, so the word just read can be repeated: that is why the paper projects h_t, of
which the product with itself would outweigh all others. A state points to the word that was read at its step; the
neural cache (Grave et al., 2017) stores the word that came after it.

The loss is -log p(y) - log(g + Σ_{i: x_i = y} a_i): the second term teaches the pointer where the softmax is right
anyway. The paper differentiates through the last 100 steps of every step; here gradients end where a segment begins, as
for every memory: the states carried over are compared with, and not taught. Words before a document are masked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from spanlm.errors import require
from spanlm.models.interfaces import Init, Memory, Pointer, Readout
from spanlm.models.memories.slots import cleared, with_steps
from spanlm.models.ops.pointer import sentinel_attention
from spanlm.models.state import Tensors


@dataclass(frozen=True, kw_only=True)
class PointerSentinelConfig:
    """A pointer to the last words, mixed with the softmax (Merity et al., 2017).

    Attributes:
        kind: which memory: none, key_value, ngram, recurrent_memory, attentive, pointer_sentinel or span_buffer.
            Another kind has other fields.
        window: L, how many words can be pointed to; the current one is among them.
        pointer_loss: add -log(g + Σ_{i: x_i = y} a_i) to the training loss.
    """

    kind: Literal["pointer_sentinel"] = "pointer_sentinel"
    parts = 1  # the encoder's output stays whole
    window: int = 100
    pointer_loss: bool = True

    def __post_init__(self) -> None:
        """Refuse a window that holds nothing."""
        require(self.window >= 1, "model.memory.window", self.window, "at least 1")

    @property
    def description(self) -> str:
        """What it is, in a few words."""
        return f"pointer sentinel, window {self.window}"

    def build(self, hidden_size: int, vocabulary_size: int, init: Init) -> PointerSentinelMemory:
        """Make the memory."""
        return PointerSentinelMemory(self, hidden_size, init)


class PointerSentinelMemory(Memory):
    """h (T, B, H) and tokens (T, B) -> features h, pointer and attention (T, B, L) whose last column is lag 0.

    State: the L - 1 states before as `keys` (L - 1, B, H), their `words` (L - 1, B), and which are `filled`.
    """

    def __init__(self, config: PointerSentinelConfig, hidden_size: int, init: Init) -> None:
        super().__init__()
        self.window, self.readout_size, self.pointer_loss = config.window, hidden_size, config.pointer_loss
        self.query = nn.Linear(hidden_size, hidden_size)  # W, b
        self.sentinel = nn.Parameter(torch.empty(hidden_size))  # s
        init.start_all(self)

    def init_state(self, batch_size: int) -> Tensors:
        """Nothing to point to."""
        keys = self.sentinel.new_zeros(self.window - 1, batch_size, self.readout_size)
        words = torch.zeros(self.window - 1, batch_size, dtype=torch.int64, device=keys.device)
        return {"keys": keys, "words": words, "filled": torch.zeros_like(words, dtype=torch.bool)}

    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        """Point from every step of h (T, B, H) to the words up to its own."""
        keys = torch.cat([cleared(state["keys"], state["filled"]).to(h.dtype), h])
        words = torch.cat([cleared(state["words"], state["filled"]), tokens])
        query = torch.tanh(self.query(h))
        log_weights, log_gate = sentinel_attention(query, keys, self.sentinel, state["filled"])
        pointer = Pointer(log_weights, words.unfold(0, self.window, 1), log_gate, self.pointer_loss)
        slots = {"keys": keys, "words": words, "filled": with_steps(state["filled"], len(h))}
        readout = Readout(h, partial(_weights, log_weights), nearest_lag=0, pointer=pointer)
        return readout, {name: x[len(h) :] for name, x in slots.items()}


def _weights(log_weights: Tensor) -> Tensor:
    """Every filled slot keeps some weight: analyses know by it that the window is full."""
    weights = log_weights.exp()
    return weights.where(log_weights.isneginf(), weights.clamp_min(torch.finfo(weights.dtype).tiny))
