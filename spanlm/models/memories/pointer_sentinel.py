"""The pointer sentinel (Merity et al., 2017, "Pointer Sentinel Mixture Models", §2.2-2.4).

A projection of the current hidden state is compared with the last L hidden states and with a learned sentinel. The
weight of a state is the probability that the next word is the word read there; the weight of the sentinel is the share
of the softmax:

    q_t = tanh(W h_t + b)
    z_{t,i} = q_t · h_i,    i = t - L + 1 … t
    [a_t; g_t] = softmax([z_t; q_t · s])
    p(w) = g_t p_vocab(w) + Σ_{i: x_i = w} a_{t,i}

The window contains the current state, so the word just read can be repeated. This is why the paper projects h_t, whose
product with itself would outweigh all others. A state points to the word that was read at its step; the neural cache
(Grave et al., 2017) stores the word that came after it.

The loss is -log p(y) - log(g + Σ_{i: x_i = y} a_i): the second term teaches the pointer where the softmax is right
anyway. The paper differentiates through the last 100 steps of every step; here gradients end where a segment begins, as
for every memory. Words before a document are masked. All weights stay logarithms: scores are products of hundreds of
units, so weights that float32 rounds to zero are common, and log 0 has no gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from spanlm.models.interfaces import Attention, Init, Memory, MemoryConfig, MixingHead, Readout, Scores, Tensors
from spanlm.models.ops.attention import cleared, dot_window_scores, window_filled, with_steps
from spanlm.models.ops.precision import no_autocast
from spanlm.options import at_least, option, options


@dataclass(frozen=True)
class Pointer:
    """A distribution over words that were read, which a head mixes with its own.

        p(w) = gate · p_head(w) + Σ_{j: words_j = w} weights_j,    gate + Σ_j weights_j = 1

    Logarithms, because a weight below float32's range can still be the most probable way to a word. `trained_alone`
    adds −log(gate + Σ_{j: words_j = target} weights_j) to the loss.
    """

    log_weights: Tensor  # (T, B, L), float32 or float64; -inf for an empty slot
    words: Tensor  # (T, B, L) int64, the word that each weight points to
    log_gate: Tensor  # (T, B), finite
    trained_alone: bool = False

    def score(self, head: MixingHead, features: Tensor, targets: Tensor) -> Scores:
        log_prob = self.mixed(head.own_log_prob(features, targets, mixed=True), targets)
        if not self.trained_alone:
            return Scores(log_prob)
        return Scores(log_prob, -self.mixed(torch.zeros_like(self.log_gate), targets))

    def mixed(self, head_log_p: Tensor, targets: Tensor) -> Tensor:
        """Log p(target), (T, B), of the mixture; the head's own log p(target) is `head_log_p` (T, B)."""
        pointed = self.log_weights.masked_fill(self.words != targets.unsqueeze(-1), -torch.inf)
        return torch.cat([(self.log_gate + head_log_p).unsqueeze(-1), pointed], -1).logsumexp(-1)

    def log_probs(self, head: MixingHead, features: Tensor) -> Tensor:
        """Log p of every word, (T, B, V); slots are added one by one, for the same order on every device."""
        head_log_p = head.own_log_probs(features)
        mixed = (head_log_p + self.log_gate.unsqueeze(-1)).flatten()
        starts = torch.arange(0, mixed.numel(), head_log_p.shape[-1], device=head_log_p.device)
        places = starts.unsqueeze(1) + self.words.flatten(0, 1)
        for place, log_weight in zip(places.unbind(1), self.log_weights.flatten(0, 1).unbind(1), strict=True):
            mixed.index_copy_(0, place, torch.logaddexp(mixed.index_select(0, place), log_weight))
        return mixed.view_as(head_log_p)

    def score_twice(self, head: MixingHead, features: Tensor, targets: Tensor) -> tuple[Scores, Scores]:
        scores = self.score(head, features, targets)
        return scores, scores

    def parts(self, head: MixingHead, features: Tensor) -> None:
        return None

    def map(self, function: Callable[[Tensor], Tensor]) -> Pointer:
        log_weights, words, log_gate = map(function, (self.log_weights, self.words, self.log_gate))
        return Pointer(log_weights, words, log_gate, self.trained_alone)


@options()
class PointerSentinelConfig(MemoryConfig):
    """A pointer to the last words, mixed with the softmax (Merity et al., 2017)."""

    kind: Literal["pointer_sentinel"] = "pointer_sentinel"
    paper: ClassVar[str] = "Merity et al., 2017"
    mixes: ClassVar[bool] = True
    window: int = option(
        "L, how many words can be pointed to; the current one is among them", default=100, limit=at_least(1)
    )
    pointer_loss: bool = option("add -log(g + Σ_{i: x_i = y} a_i) to the training loss", default=True)

    @property
    def slots(self) -> int | None:
        return self.window

    @property
    def equation(self) -> str:
        pointed = "q_t = tanh(W h_t + b),  [a_t; g_t] = softmax([q_t · h_i …; q_t · s])"
        return f"{pointed},  p(w) = g_t p_vocab(w) + Σ_{{x_i = w}} a_{{t,i}}"

    @property
    def description(self) -> str:
        return f"pointer sentinel, window {self.window}"

    def build(self, hidden_size: int, vocabulary_size: int, init: Init) -> PointerSentinelMemory:
        return PointerSentinelMemory(self, hidden_size, init)


class PointerSentinelMemory(Memory):
    """h (T, B, H) and tokens (T, B) -> features h, pointer and attention (T, B, L) whose last column is lag 0.

    State: the L - 1 states before as `keys` (L - 1, B, H), their `words` (L - 1, B), and which are `filled`.
    """

    def __init__(self, config: PointerSentinelConfig, hidden_size: int, init: Init) -> None:
        super().__init__()
        self.window: int = config.window
        self.readout_size: int = hidden_size
        self._pointer_loss = config.pointer_loss
        self.equal: bool = False
        self.query: nn.Linear = nn.Linear(hidden_size, hidden_size)  # W, b
        self.sentinel: nn.Parameter = nn.Parameter(torch.empty(hidden_size))  # s
        init.start_all(self)

    def init_state(self, batch_size: int) -> Tensors:
        keys = self.sentinel.new_zeros(self.window - 1, batch_size, self.readout_size)
        words = torch.zeros(self.window - 1, batch_size, dtype=torch.int64, device=keys.device)
        return {"keys": keys, "words": words, "filled": torch.zeros_like(words, dtype=torch.bool)}

    def equalise(self) -> None:
        """Give all words equal weights; the sentinel keeps its weight."""
        self.equal = True

    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        keys = torch.cat([cleared(state["keys"], state["filled"]).to(h.dtype), h])
        words = torch.cat([cleared(state["words"], state["filled"]), tokens])
        query = torch.tanh(self.query(h))
        log_weights, log_gate = sentinel_attention(query, keys, self.sentinel, state["filled"])
        log_weights = _equal(log_weights) if self.equal else log_weights
        alone = self.training and self._pointer_loss
        pointer = Pointer(log_weights, words.unfold(0, self.window, 1), log_gate, alone)
        slots = {"keys": keys, "words": words, "filled": with_steps(state["filled"], len(h))}
        readout = Readout(h, Attention(partial(_weights, log_weights), nearest_lag=0), pointer)
        return readout, {name: x[len(h) :] for name, x in slots.items()}


def _equal(log_weights: Tensor) -> Tensor:
    """Spread the total weight of the filled slots evenly; the current step is always filled."""
    empty = log_weights.isneginf()
    filled = (~empty).sum(-1, keepdim=True, dtype=log_weights.dtype)
    equal = log_weights.logsumexp(-1, keepdim=True) - filled.log()
    return equal.expand_as(log_weights).masked_fill(empty, -torch.inf)


def _weights(log_weights: Tensor) -> Tensor:
    """Return weights above zero for all filled slots, from which analyses see that the window is full."""
    weights = log_weights.exp()
    return weights.where(log_weights.isneginf(), weights.clamp_min(torch.finfo(weights.dtype).tiny))


def sentinel_attention(query: Tensor, keys: Tensor, sentinel: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
    """Attend over the window that ends with each step, or over the sentinel; in float32 or float64.

    Reads q (T, B, D), finite keys (L - 1 + T, B, D), s (D,), and which of the L - 1 carried keys are `filled`
    (L - 1, B). Returns log a (T, B, L), column j being lag L - 1 - j, -inf for an empty slot; and log g (T, B).
    """
    window = len(filled) + 1
    empty = ~window_filled(filled, len(query), window)
    scores = dot_window_scores(query, keys, window).masked_fill(empty, -torch.inf)
    with no_autocast(query.device):
        to_sentinel = query.to(scores.dtype) @ sentinel.to(scores.dtype)
        log_weights = torch.cat([scores, to_sentinel.unsqueeze(-1)], -1).log_softmax(-1)
    return log_weights[..., :-1], log_weights[..., -1]
