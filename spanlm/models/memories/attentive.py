"""The attentive memory (Salton et al., 2017, §3): attention over all earlier outputs of the sentence.

    c_t  = Σ_{i<t} a_i h_i                                       (3)
    a_i  = exp(score(h_i, h_t)) / Σ_{j<t} exp(score(h_j, h_t))   (4)
    h'_t = tanh(W_c [h_t; c_t] + b_c)                            (7)

    single:    score(h_i)      = v_s · tanh(W_s h_i)             (9)
    combined:  score(h_i, h_t) = v_s · tanh(W_s h_i + W_q h_t)   (10), with `recency` lowered by m (t − i)

Two scores are baselines outside the paper: `mean` (all scores are equal, so c_t is the mean of all earlier outputs) and
`none` (the layer of Eq. 7 alone on h_t, which a model without a memory lacks). h_t is remembered only after it has
predicted; with an empty memory c_t = 0. The score of `single` does not depend on t, so its softmax is a running sum.
The state grows with the sentence, and a reset empties it. The published code differs from the paper: it merges without
the tanh, keeps a zero vector in the memory, and adds 1 to the forget gate's bias (`model.encoder.forget_bias`).

The paper contradicts itself on h_t. Eq. 3 and 4 sum over i < t, and Figure 1, of the combined score, stores h_t only
after the step. The text on the single score has a softmax "including the score for the new state", over h_0 … h_t:
`includes_current` sums over i <= t. Footnote 3 tried other merges. One is c_t alone (`merge=context`: h'_t = c_t). For
the other two, "a dot product and a feedforward layer", it gives no equation: h_t · c_t is a number, from which no word
can be predicted, and Eq. 7 is a feedforward layer. They are left out.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from spanlm.models.interfaces import Attention, Init, Memory, MemoryConfig, Readout, Tensors
from spanlm.models.kernels import linear
from spanlm.models.memories.recency import HELP, Recency, Slope, described
from spanlm.models.ops.attention import (
    additive_window_attention,
    band_sum,
    cleared,
    masked_softmax,
    window_filled,
    window_sum,
    with_steps,
)
from spanlm.models.ops.precision import no_autocast, wide, wide_dtype
from spanlm.options import at_least, option, options, require_fields

BLOCK = 64
"""n, steps per block."""

EMPTY = -1e30
"""Stands for log 0: finite, so that differences are not NaN."""

Score = Literal["single", "combined", "mean", "none"]
Merge = Literal["tanh", "context"]
_WEIGHTS = {
    "single": ("a_i ∝ exp(v_s · tanh(W_s h_i)),  ", "(3, 4, 7, 9)"),
    "combined": ("a_i ∝ exp(v_s · tanh(W_s h_i + W_q h_t)),  ", "(3, 4, 7, 10)"),
    "mean": ("all a_i equal,  ", "(3, 7)"),
    "none": ("", "(7)"),
}
AttentionWeights = Tensor | Callable[[], Tensor]


@options()
class AttentiveConfig(MemoryConfig):
    """Attention over the sentence so far (Salton et al., 2017)."""

    kind: Literal["attentive"] = "attentive"
    paper: ClassVar[str] = "Salton et al., 2017"
    score: Score = option(
        "single (from the remembered output alone, Eq. 9) or combined (also from the current one, Eq. 10); as "
        "baselines: mean (equal weights) or none (no memory: the layer of Eq. 7 reads only h_t)",
        default="combined",
    )
    window: int | None = option(
        "most outputs to look back; null: all since the last reset, which needs sentences "
        "(training.batching.kind). In the paper a bounded window over the running text was worse",
        default=None,
        limit=at_least(1),
    )
    includes_current: bool = option(
        "attend to h_t, too, as the paper's text on the single score says; false: to earlier outputs alone (Eq. 3, 4 "
        "and Figure 1). Only with the score single or mean",
        default=False,
    )
    merge: Merge = option(
        "tanh (Eq. 7), or context: the head reads c_t alone, which the paper tried, too (footnote 3: far below earlier "
        "models)",
        default="tanh",
    )
    merge_bias: bool = option(
        "use b_c of Eq. 7. It can learn word frequencies, as the softmax's bias does, before the LSTM has learned "
        "anything: with the published rate of 1 and a tied softmax, through which its own gradient returns, "
        "training stays far behind one without it",
        default=True,
    )
    recency: Recency = option(f"{HELP}. Only with the score combined", default="none")

    def __post_init__(self) -> None:
        alone = "null where model.memory.score is none and nothing is remembered"
        printed = f"false where model.memory.score is {self.score}: only single and mean may attend to h_t"
        scored = "tanh without a learned score: c_t alone has no weights. Use the score single or combined"
        biased = "false where model.memory.merge is context: b_c is of Eq. 7"
        apart = f"none where model.memory.score is {self.score}: only the score combined is computed lag by lag"
        require_fields(
            self,
            ("window", self.window is None or self.score != "none", alone),
            ("includes_current", self.score in ("single", "mean") or not self.includes_current, printed),
            ("merge", self.score in ("single", "combined") or self.merge == "tanh", scored),
            ("merge_bias", self.merge == "tanh" or not self.merge_bias, biased),
            ("recency", self.score == "combined" or self.recency == "none", apart),
        )

    @property
    def slots(self) -> int | None:
        """The window, which may have no limit; 0 for `none`."""
        return 0 if self.score == "none" else self.window

    @property
    def equation(self) -> str:
        weights, numbers = _WEIGHTS[self.score]
        if self.recency != "none":
            weights = weights.replace("W_q h_t)", "W_q h_t) − m (t − i)")
        earlier = "i<=t" if self.includes_current else "i<t"
        read, seen = ("", "h_t") if self.score == "none" else (f"c_t = Σ_{{{earlier}}} a_i h_i,  ", "[h_t; c_t]")
        if self.merge == "context":
            return f"{weights}{read}h'_t = c_t   {numbers.replace(' 7,', '')}"
        return f"{weights}{read}h'_t = tanh(W_c {seen}{' + b_c' * self.merge_bias})   {numbers}"

    @property
    def description(self) -> str:
        if self.score == "none":
            return "the merge of an attentive memory, nothing to attend to"
        reach = "the whole sentence" if self.window is None else f"window {self.window}"
        weighting = "equal weights" if self.score == "mean" else f"{self.score} score"
        current, alone = ", h_t included" * self.includes_current, ", read alone" * (self.merge == "context")
        return f"attentive memory, {weighting}, {reach}{current}{alone}{described(self.recency)}"

    def build(self, hidden_size: int, vocabulary_size: int, init: Init) -> AttentiveMemory:
        single = SingleMemory if self.window is None else SingleWindowMemory
        others: dict[str, type[AttentiveMemory]] = {"none": NoAttention, "combined": CombinedMemory}
        return others.get(self.score, single)(self, hidden_size, init)


class AttentiveMemory(Memory):
    """h (T, B, H) -> features (T, B, H); the base of all scores."""

    def __init__(self, config: AttentiveConfig, hidden_size: int, init: Init) -> None:
        super().__init__()
        self.readout_size: int = hidden_size
        self.window: int | None = config.window
        self.nearest_lag = 0 if config.includes_current else 1
        self.scored: bool = config.score in ("single", "combined")
        if self.scored:
            self.memory_key: nn.Linear = nn.Linear(hidden_size, hidden_size, bias=False)  # W_s
            if config.score == "combined":
                self.query: nn.Linear = nn.Linear(hidden_size, hidden_size, bias=False)  # W_q
            self.score: nn.Parameter = nn.Parameter(torch.empty(hidden_size))  # v_s
        self.merge: nn.Linear | None = None
        if config.merge == "tanh":
            read = hidden_size if config.score == "none" else 2 * hidden_size
            self.merge = nn.Linear(read, hidden_size, bias=config.merge_bias)  # W_c, b_c
        init.start_all(self)
        self.slope: Slope = Slope(config.recency)

    def init_state(self, batch_size: int) -> Tensors:
        """Return empty slots: the outputs `values` (P, B, H), and which are `filled` (P, B).

        P is how many steps back the window reaches; without a window 0.
        """
        carried = self.window - 1 + self.nearest_lag if self.window else 0
        values = next(self.parameters()).new_zeros(carried, batch_size, self.readout_size)
        return {"values": values, "filled": torch.zeros(values.shape[:2], dtype=torch.bool, device=values.device)}

    def equalise(self) -> None:
        if self.scored:
            nn.init.zeros_(self.score)
        self.slope = Slope("none")

    @property
    def half_life(self) -> float | None:
        return self.slope.half_life

    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        context, weights, state = self.look_back(h, state)
        attention = None if weights is None else Attention(weights, self.nearest_lag)
        if self.merge is None:
            assert context is not None
            return Readout(context.to(h.dtype), attention), state
        read = h if context is None else torch.cat([h, context.to(h.dtype)], -1)
        return Readout(torch.tanh(linear(read, self.merge.weight, self.merge.bias)), attention), state

    @abstractmethod
    def look_back(self, h: Tensor, state: Tensors) -> tuple[Tensor | None, AttentionWeights | None, Tensors]:
        """Return contexts c (T, B, H), attention weights and the state after the last step; None without attention."""

    def single_scores(self, h: Tensor) -> Tensor:
        if not self.scored:
            return h.new_zeros(h.shape[:2], dtype=wide_dtype(h.dtype))
        activations = torch.tanh(linear(h, self.memory_key.weight))
        with no_autocast(h.device):
            return activations.to(self.score.dtype) @ self.score

    def outputs(self, h: Tensor, state: Tensors) -> Tensor:
        return torch.cat([cleared(state["values"], state["filled"]).to(h.dtype), h])

    def carried(self, values: Tensor, before: Tensor, steps: int) -> Tensors:
        held = slice(None) if self.window is None else slice(steps, None)
        return {"values": values[held], "filled": with_steps(before, steps)[held]}


class NoAttention(AttentiveMemory):
    """`none`: the layer of Eq. 7 alone; no state."""

    def init_state(self, batch_size: int) -> Tensors:
        return {}

    def look_back(self, h: Tensor, state: Tensors) -> tuple[None, None, Tensors]:
        return None, None, {}


class SingleMemory(AttentiveMemory):
    """`single` or `mean` over everything since the reset.

    State: `log_total` (1, B) and `mean` (1, B, H) of the remembered outputs, which suffice for the contexts; for the
    attention, the `scores` (P, B) so far and which of them are `filled` (P, B).
    """

    def init_state(self, batch_size: int) -> Tensors:
        like = next(self.parameters())
        scores = like.new_zeros(0, batch_size)
        return {
            "log_total": like.new_full((1, batch_size), EMPTY),
            "mean": like.new_zeros(1, batch_size, self.readout_size),
            "scores": scores,
            "filled": scores.bool(),
        }

    def look_back(self, h: Tensor, state: Tensors) -> tuple[Tensor, Callable[[], Tensor], Tensors]:
        new_scores = self.single_scores(h)
        context, log_total, mean = running_attention(new_scores, h, state["log_total"], state["mean"], self.nearest_lag)
        scores, filled = torch.cat([state["scores"], new_scores]), with_steps(state["filled"], len(h))
        window = _reach(state["filled"], len(h), self.nearest_lag)
        weights = partial(_weights, scores, state["filled"], window, self.nearest_lag)
        return context, weights, {"log_total": log_total, "mean": mean, "scores": scores, "filled": filled}


class SingleWindowMemory(AttentiveMemory):
    """`single` or `mean` over the last L outputs, scored again in every segment, so W_s and v_s learn from them."""

    def look_back(self, h: Tensor, state: Tensors) -> tuple[Tensor, Tensor, Tensors]:
        values, before = self.outputs(h, state), state["filled"]
        weights = _weights(self.single_scores(values), before, len(before) + 1 - self.nearest_lag, self.nearest_lag)
        with no_autocast(h.device):
            context = (window_sum if self.nearest_lag else band_sum)(weights, values.to(weights.dtype))
        return context, weights, self.carried(values, before, len(h))


class CombinedMemory(AttentiveMemory):
    """`combined`, over a window or everything since the reset.

    The outputs of a window are projected again in every segment, so that W_s learns from them. Without a window that
    would cost more with every step of the sentence, so the state has the projections `keys` (P, B, H).
    """

    def init_state(self, batch_size: int) -> Tensors:
        state = super().init_state(batch_size)
        return state if self.window else {**state, "keys": state["values"].clone()}

    def look_back(self, h: Tensor, state: Tensors) -> tuple[Tensor, Tensor, Tensors]:
        values, before = self.outputs(h, state), state["filled"]
        after, window = self.carried(values, before, len(h)), self.window or _reach(before, len(h))
        if self.window:
            keys = linear(values, self.memory_key.weight)
        else:
            key = linear(h, self.memory_key.weight)
            keys = after["keys"] = torch.cat([cleared(state["keys"], before).to(key.dtype), key])
        query = linear(h, self.query.weight)
        context, weights = additive_window_attention(query, keys, values, self.score, before, window, self.slope())
        return context, weights, after


def _reach(filled: Tensor, steps: int, nearest_lag: int = 1) -> int:
    """Return how many slots the last of `steps` new steps looks at: all slots, and at least one."""
    return max(1, len(filled) + steps - nearest_lag)


def _weights(scores: Tensor, filled: Tensor, window: int, nearest_lag: int) -> Tensor:
    """Softmax of the scores (P + T, B) in the window of each of T steps, (T, B, L); P slots were carried.

    The window ends with the step before (lag 1) or with the step itself (lag 0).
    """
    steps, missing = len(scores) - len(filled), window - 1 + nearest_lag - len(filled)
    windows = pad(scores, (0, 0, missing, 0)).unfold(0, window, 1)[:steps]
    may_read = window_filled(pad(filled, (0, 0, missing, 0)), steps, window)
    return masked_softmax(windows, may_read)


def _triangle(scores: Tensor, log_total: Tensor) -> Tensor:
    """(B, n + 1, n + 1): row t has the weights of the past before the block, as one slot, and of its first t steps."""
    columns = torch.cat([log_total, scores]).T
    size = columns.shape[1]
    future = torch.ones(size, size, dtype=torch.bool, device=scores.device).triu(1)
    return columns.unsqueeze(1).masked_fill(future, torch.finfo(scores.dtype).min).softmax(-1)


def running_attention(
    scores: Tensor, values: Tensor, log_total: Tensor, mean: Tensor, nearest_lag: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Read the mean of all values up to `nearest_lag` (0 or 1) steps back, weighted by the exponential of their scores.

        r_t = Σ_{i<t} exp(s_i) value_i / Σ_{i<t} exp(s_i),    with lag 0 over i <= t

    Within a block of n steps all reads are one product with a triangle of weights. The past before the block is one
    slot, the mean of all earlier values, whose score is the logarithm of their total weight. T steps cost T·n.
    Computed in float32 (float64 for float64 input) under any autocast.

    s (T, B) and values (T, B, D). Over all earlier steps, `log_total` (1, B) is log Σ exp(s_i), `EMPTY` at first, and
    `mean` (1, B, D) the weighted mean, zero at first. Returns the reads (T, B, D), and both after the last step.
    """
    scores, values, mean = map(wide, (scores, values, mean))
    reads = []
    with no_autocast(scores.device):
        for s, v in zip(torch.split(scores, BLOCK), torch.split(values, BLOCK), strict=True):
            read = torch.bmm(_triangle(s, log_total), torch.cat([mean, v]).transpose(0, 1)).transpose(0, 1)
            log_total = torch.cat([log_total, s]).logsumexp(0, keepdim=True)
            mean = read[-1:].contiguous()
            reads.append(read[1 - nearest_lag : len(s) + 1 - nearest_lag])
    return torch.cat(reads), log_total, mean
