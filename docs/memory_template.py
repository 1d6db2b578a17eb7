"""A memory to begin from: the mean of the last outputs. Copy this file to `spanlm/models/memories/yours.py`.

A memory's file begins with the equations of its paper, under their numbers:

    r_t = (1 / n) Σ_{i=1}^{n} h_{t−i},   n = min(L, steps since the stream began)        (1)
    h*_t = tanh(W [h_t; r_t])                                                            (2)

and says where it departs from the paper: here an empty memory reads r_t = 0. The contract that every memory keeps is in
`spanlm/models/interfaces.py`: state is a value, any cut of a stream is the same stream, and step t knows nothing of the
steps after it. The tests run this file as they run the memories of the package.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from spanlm.models.interfaces import Attention, Init, Memory, MemoryConfig, Readout, Tensors
from spanlm.models.ops.attention import cleared, window_filled, window_sum, with_steps
from spanlm.options import at_least, option, options


@options()  # a frozen dataclass of keywords; a field's help and limit are those of `spanlm train` and of YAML
class MeanConfig(MemoryConfig):
    """The mean of the last outputs."""

    kind: Literal["mean"] = "mean"  # what `--model.memory.kind` calls it
    paper: ClassVar[str] = ""  # as one cites it: "Daniluk et al., 2017"
    window: int = option("L, how many past outputs are averaged", default=5, limit=at_least(1))

    # what does not go together is refused in a `__post_init__`: require(fits, "model.memory.window", value, limit);
    # a memory that splits the encoder's output has `parts`; one that predicts, too, has `mixes` and `mixing`

    @property
    def slots(self) -> int | None:
        """How many slots it attends to, None: no limit; a memory that does not attend leaves this out."""
        return self.window

    @property
    def equation(self) -> str:
        return "r_t = mean(h_{t−L} … h_{t−1}),  h*_t = tanh(W [h_t; r_t])   (1, 2)"

    @property
    def description(self) -> str:
        return f"mean of the last {self.window} outputs"

    def build(self, hidden_size: int, vocabulary_size: int, init: Init) -> MeanMemory:
        return MeanMemory(self, hidden_size, init)


class MeanMemory(Memory):
    """h (T, B, H) -> features (T, B, H), attention (T, B, L).

    State: the last L `outputs` (L, B, H), and which of them are `filled` (L, B). The legend of shapes is in
    `interfaces.py`: time first, streams along dimension 1.
    """

    def __init__(self, config: MeanConfig, hidden_size: int, init: Init) -> None:
        super().__init__()
        self.window, self.readout_size = config.window, hidden_size
        self.combine = nn.Linear(2 * hidden_size, hidden_size, bias=False)  # W
        init.start_all(self)  # `model.init_range`; a constant start is an offset beside a weight that starts so

    def init_state(self, batch_size: int) -> Tensors:
        # made of a weight: where that is, and of its type; sizes are counted on torch's meta device, so ask no numbers.
        # Dimension 0 grows by a row a step, from 0, only where `slots` is None
        outputs = self.combine.weight.new_zeros(self.window, batch_size, self.readout_size)
        return {
            "outputs": outputs,
            "filled": torch.zeros(self.window, batch_size, dtype=torch.bool, device=outputs.device),
        }

    def equalise(self) -> None:
        """`--attention uniform`: nothing to do, since all weights are equal; only memories that attend have this."""

    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        # the whole segment at once: what is read never goes back into the encoder, so no loop over time is needed
        outputs = torch.cat([cleared(state["outputs"], state["filled"]).to(h.dtype), h])
        filled = window_filled(state["filled"], len(h), self.window).to(h.dtype)  # (T, B, L), the oldest first
        weights = filled / filled.sum(-1, keepdim=True).clamp(min=1)
        features = torch.tanh(self.combine(torch.cat([h, window_sum(weights, outputs)], dim=-1)))
        kept = {"outputs": outputs, "filled": with_steps(state["filled"], len(h))}
        # a window that holds the current step has nearest_lag=0; weights that only analyses need may be a function; a
        # memory that predicts, too, returns Readout(features, attention, mixture), as the pointer's is
        return Readout(features, Attention(weights)), {name: x[len(h) :] for name, x in kept.items()}


def twin(h: Tensor, window: int, w: Tensor) -> list[list[Tensor]]:
    """Return (1, 2) as a loop over single steps, for `tests/reference.py`: nothing shared with what is above."""
    steps, streams, size = h.shape
    features = []
    for t in range(steps):
        row = []
        for b in range(streams):
            past = [h[i, b] for i in range(max(0, t - window), t)]
            read = sum(past, h.new_zeros(size)) / max(len(past), 1)
            row.append(torch.tanh(w @ torch.cat([h[t, b], read])))
        features.append(row)
    return features
