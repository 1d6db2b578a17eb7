"""The N-gram recurrent network (Daniluk et al., 2017, §2.4).

Every output is split into N equal parts, and part j takes part in a prediction j − 1 steps later:

    [h_t^1; …; h_t^N] = h_t,    h*_t = tanh(W^N [h_t^1; h_{t-1}^2; …; h_{t-N+1}^N])        (13)

The paper's text counts N − 1 parts but indexes N of them, and only N equal parts of size k divide its sizes and
give its parameter counts (564 = 2·282, 786 = 3·262, 968 = 4·242, 1120 = 5·224): an N-gram RNN reads the current
output and the N − 1 before it. Before a document has that many, the missing parts are zero.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from spanlm.models.interfaces import Init, Memory, MemoryConfig, Readout, Tensors
from spanlm.options import at_least, option, options


@options()
class NGramConfig(MemoryConfig):
    """Parts of the last N outputs, side by side (Daniluk et al., 2017)."""

    kind: Literal["ngram"] = "ngram"
    paper: ClassVar[str] = "Daniluk et al., 2017"
    order: int = option("N; the current output and the N - 1 before it", default=4, limit=at_least(2))

    @property
    def parts(self) -> int:
        return self.order

    @property
    def equation(self) -> str:
        return "h*_t = tanh(W^N [h¹_t; h²_{t−1}; …; h^N_{t−N+1}])   (13)"

    @property
    def description(self) -> str:
        return f"{self.order}-gram memory"

    def build(self, hidden_size: int, vocabulary_size: int, init: Init) -> NGramMemory:
        return NGramMemory(self, hidden_size, init)


class NGramMemory(Memory):
    """h (T, B, N·k) -> features (T, B, k). State: the last N − 1 `outputs` (N − 1, B, N·k), zero where missing."""

    def __init__(self, config: NGramConfig, hidden_size: int, init: Init) -> None:
        super().__init__()
        self.order: int = config.order
        self.hidden_size: int = hidden_size
        self.readout_size: int = config.part_size(hidden_size, "model.memory.order")
        self.combine: nn.Linear = nn.Linear(hidden_size, self.readout_size, bias=False)  # W^N
        init.start(self.combine.weight)

    def init_state(self, batch_size: int) -> Tensors:
        return {"outputs": self.combine.weight.new_zeros(self.order - 1, batch_size, self.hidden_size)}

    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        steps, size, past = len(h), self.readout_size, self.order - 1
        outputs = torch.cat([state["outputs"].to(h.dtype), h])
        due = [outputs[past - lag : past - lag + steps, :, lag * size : (lag + 1) * size] for lag in range(self.order)]
        features = torch.tanh(self.combine(torch.cat(due, dim=-1)))
        return Readout(features), {"outputs": outputs[steps:]}
