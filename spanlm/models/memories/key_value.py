"""Attention, key-value and key-value-predict memories (Daniluk et al., 2017, §2.1-2.3).

The encoder's output is split into `roles` equal parts of size k, one for each role:

    1  attention          h_t                      key, value and prediction are all h_t      (Eq. 1-4)
    2  key-value          [k_t; v_t] = h_t         v_t is also what predicts                  (Eq. 6-10)
    3  key-value-predict  [k_t; v_t; p_t] = h_t                                               (Eq. 11-12)

    M_t  = tanh(W^Y [k_{t-L} … k_{t-1}] + (W^h k_t) 1ᵀ)          (1, 7)
    α_t  = softmax(wᵀ M_t)                                       (2, 8), with `recency` wᵀ M_t − m [L … 1]
    r_t  = [v_{t-L} … v_{t-1}] α_tᵀ                              (3, 9)
    h*_t = tanh(W^r r_t + W^x p_t)                               (4, 10, 12)

In these equations k is the size of a part; the paper's tables give the encoder's full output, roles · k.
The paper does not describe the window before a document has L outputs: here empty positions are masked, and an empty
memory reads r_t = 0. The window crosses segment boundaries; gradients do not.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from spanlm.models.interfaces import Attention, Init, Memory, MemoryConfig, Readout, Tensors
from spanlm.models.memories.recency import HELP, Recency, Slope, described
from spanlm.models.ops.attention import additive_window_attention, cleared, with_steps
from spanlm.options import Limit, at_least, option, options

ROLES = {1: "attention", 2: "key-value", 3: "key-value-predict"}
_READ = "α_t = softmax(wᵀ tanh(W^Y [k_{t−L} … k_{t−1}] + W^h k_t)),  r_t = Σ_i α_{t,i} v_i"
_EQUATIONS = {
    1: f"k_t = v_t = h_t,  {_READ},  h*_t = tanh(W^r r_t + W^x h_t)   (1–4)",
    2: f"[k_t; v_t] = h_t,  {_READ},  h*_t = tanh(W^r r_t + W^x v_t)   (6–10)",
    3: f"[k_t; v_t; p_t] = h_t,  {_READ},  h*_t = tanh(W^r r_t + W^x p_t)   (11, 12)",
}


@options()
class KeyValueConfig(MemoryConfig):
    """Additive attention over the last outputs (Daniluk et al., 2017)."""

    kind: Literal["key_value"] = "key_value"
    paper: ClassVar[str] = "Daniluk et al., 2017"
    roles: int = option(
        "1 attention, 2 key-value, 3 key-value-predict",
        default=3,
        limit=Limit(ROLES.__contains__, "1 (attention), 2 (key-value) or 3 (key-value-predict)"),
    )
    window: int = option("L, how many past outputs can be attended", default=5, limit=at_least(1))
    recency: Recency = option(HELP, default="none")

    @property
    def parts(self) -> int:
        return self.roles

    @property
    def name(self) -> str:
        return ROLES[self.roles]

    @property
    def slots(self) -> int | None:
        return self.window

    @property
    def equation(self) -> str:
        equation = _EQUATIONS[self.roles]
        return equation if self.recency == "none" else equation.replace("W^h k_t)", "W^h k_t) − m [L … 1]")

    @property
    def description(self) -> str:
        return f"{self.name} memory, window {self.window}{described(self.recency)}"

    def build(self, hidden_size: int, vocabulary_size: int, init: Init) -> KeyValueMemory:
        return KeyValueMemory(self, hidden_size, init)


class KeyValueMemory(Memory):
    """h (T, B, roles·k) -> features (T, B, k), attention (T, B, L).

    State: the last L outputs `keys` and `values` (L, B, k) and which of them are `filled` (L, B).
    """

    def __init__(self, config: KeyValueConfig, hidden_size: int, init: Init) -> None:
        super().__init__()
        size = config.part_size(hidden_size, "model.memory.roles")
        self.roles: int = config.roles
        self.window: int = config.window
        self.readout_size: int = size
        self.memory_key: nn.Linear = nn.Linear(size, size, bias=False)  # W^Y
        self.query: nn.Linear = nn.Linear(size, size, bias=False)  # W^h
        self.score: nn.Parameter = nn.Parameter(torch.empty(size))  # w
        self.read: nn.Linear = nn.Linear(size, size, bias=False)  # W^r
        self.predict: nn.Linear = nn.Linear(size, size, bias=False)  # W^x
        init.start_all(self)
        self.slope: Slope = Slope(config.recency)

    def init_state(self, batch_size: int) -> Tensors:
        empty = self.score.new_zeros(self.window, batch_size, self.readout_size)
        filled = torch.zeros(self.window, batch_size, dtype=torch.bool, device=empty.device)
        return {"keys": empty, "values": empty.clone(), "filled": filled}

    def equalise(self) -> None:
        nn.init.zeros_(self.score)
        self.slope = Slope("none")

    @property
    def half_life(self) -> float | None:
        return self.slope.half_life

    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        parts = torch.split(h, self.readout_size, dim=-1)
        key, value, prediction = parts[0], parts[min(1, self.roles - 1)], parts[-1]
        keys = torch.cat([cleared(state["keys"], state["filled"]).to(h.dtype), key])
        values = torch.cat([cleared(state["values"], state["filled"]).to(h.dtype), value])
        read, attention = additive_window_attention(
            self.query(key), self.memory_key(keys), values, self.score, state["filled"], slope=self.slope()
        )
        features = torch.tanh(self.read(read) + self.predict(prediction))
        slots = {"keys": keys, "values": values, "filled": with_steps(state["filled"], len(h))}
        return Readout(features, Attention(attention)), {name: x[len(h) :] for name, x in slots.items()}
