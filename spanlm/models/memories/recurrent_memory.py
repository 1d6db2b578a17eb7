"""The recurrent memory (Tran et al., 2016, "Recurrent Memory Networks"; RM(+tM-g) of Daniluk et al., 2017).

Two word tables M and C complement the input embedding; the memory attends over the n most recent input words,
including the current one, and composes the result with the encoder's output:

    p_t  = softmax_i((M[w_i] + T^M[t - i]) · h_t),    i = t - n + 1 … t
    s_t  = Σ_i p_{t,i} (C[w_i] + T^C[t - i])
    h*_t = U h_t + s_t                                                            linear
    h*_t = (1 - z) ⊙ h_t + z ⊙ h̃,                                                 gated (-g)
           z = σ(W_z s_t + U_z h_t + b_z),  r = σ(W_r s_t + U_r h_t + b_r),  h̃ = tanh(W s_t + U (r ⊙ h_t) + b)

The temporal matrices T^M and T^C (+tM) have a row for each lag. The paper has one, on the key side; the authors'
code (and with it the parameter count of Daniluk et al.) has both. Their code has two biases a gate; here one does.
Words before a document are masked.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from spanlm.models.interfaces import Attention, Init, Memory, MemoryConfig, Readout, Tensors
from spanlm.models.ops.attention import cleared, dot_window_attention, with_steps
from spanlm.models.ops.precision import wide
from spanlm.options import at_least, option, options

_EQUATIONS = {"gated": "h*_t = (1 − z) ⊙ h_t + z ⊙ h̃", "linear": "h*_t = U h_t + s_t"}


@options()
class RecurrentMemoryConfig(MemoryConfig):
    """Dot-product attention over the last words, with two word tables of its own (Tran et al., 2016)."""

    kind: Literal["recurrent_memory"] = "recurrent_memory"
    paper: ClassVar[str] = "Tran et al., 2016"
    window: int = option(
        "n, how many words can be attended; the current one is among them", default=15, limit=at_least(1)
    )
    temporal: bool = option("add temporal matrices, by which keys and values depend on their lag (+tM)", default=True)
    composition: Literal["gated", "linear"] = option(
        "composition of the reading with the encoder's output: gated (-g) or linear", default="gated"
    )

    @property
    def slots(self) -> int | None:
        return self.window

    @property
    def equation(self) -> str:
        temporal = (" + T^M[t − i]", " + T^C[t − i]") if self.temporal else ("", "")
        read = f"p_t = softmax((M[w_i]{temporal[0]}) · h_t),  s_t = Σ_i p_{{t,i}} (C[w_i]{temporal[1]})"
        return f"{read},  {_EQUATIONS[self.composition]}"

    @property
    def description(self) -> str:
        lags = "" if self.temporal else ", no temporal matrices"
        return f"recurrent memory ({self.composition}{lags}), window {self.window}"

    def build(self, hidden_size: int, vocabulary_size: int, init: Init) -> RecurrentMemory:
        return RecurrentMemory(self, hidden_size, vocabulary_size, init)


class GatedComposition(nn.Module):
    """s and h (T, B, H) -> h* (T, B, H), as a gated recurrent unit would."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.of_read: nn.Linear = nn.Linear(size, 3 * size)  # W_z, W_r, W and their biases
        self.of_hidden: nn.Linear = nn.Linear(size, 2 * size, bias=False)  # U_z, U_r
        self.of_reset: nn.Linear = nn.Linear(size, size, bias=False)  # U

    def forward(self, read: Tensor, h: Tensor) -> Tensor:
        """Compose; under autocast the products are in its type, gates and results in float32."""
        size = h.shape[-1]
        from_read = wide(self.of_read(read))
        update, reset = torch.sigmoid(from_read[..., : 2 * size] + wide(self.of_hidden(h))).chunk(2, -1)
        candidate = torch.tanh(from_read[..., 2 * size :] + wide(self.of_reset(reset * h)))
        return h + update * (candidate - h)


class LinearComposition(nn.Module):
    """s and h (T, B, H) -> U h + s."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.of_hidden: nn.Linear = nn.Linear(size, size, bias=False)  # U

    def forward(self, read: Tensor, h: Tensor) -> Tensor:
        composed: Tensor = self.of_hidden(h) + read
        return composed


class RecurrentMemory(Memory):
    """h (T, B, H) and tokens (T, B) -> features (T, B, H), attention (T, B, n) whose last column is lag 0.

    State: the n - 1 `words` before (n - 1, B) and which of them are `filled` (n - 1, B).
    """

    def __init__(self, config: RecurrentMemoryConfig, hidden_size: int, vocabulary_size: int, init: Init) -> None:
        super().__init__()
        self.window: int = config.window
        self.readout_size: int = hidden_size
        self.keys: nn.Embedding = nn.Embedding(vocabulary_size, hidden_size)  # M
        self.values: nn.Embedding = nn.Embedding(vocabulary_size, hidden_size)  # C
        lags = [nn.Parameter(torch.empty(config.window, hidden_size)) if config.temporal else None for _ in range(2)]
        self.key_lags: nn.Parameter | None = lags[0]  # T^M, oldest lag first
        self.value_lags: nn.Parameter | None = lags[1]  # T^C
        composition = GatedComposition if config.composition == "gated" else LinearComposition
        self.composition: nn.Module = composition(hidden_size)
        init.start_all(self)

    def init_state(self, batch_size: int) -> Tensors:
        words = torch.zeros(self.window - 1, batch_size, dtype=torch.int64, device=self.keys.weight.device)
        return {"words": words, "filled": torch.zeros_like(words, dtype=torch.bool)}

    def equalise(self) -> None:
        nn.init.zeros_(self.keys.weight)
        if self.key_lags is not None:
            nn.init.zeros_(self.key_lags)

    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        words = torch.cat([cleared(state["words"], state["filled"]), tokens])
        read, attention = dot_window_attention(
            h, self.keys(words), self.values(words), state["filled"], self.key_lags, self.value_lags
        )
        slots = {"words": words, "filled": with_steps(state["filled"], len(h))}
        readout = Readout(self.composition(read, h), Attention(attention, nearest_lag=0))
        return readout, {name: x[len(h) :] for name, x in slots.items()}
