"""The minimal gated recurrent unit (Feng et al., 2024, "Were RNNs All We Needed?", section 3.1).

    z_t = σ(W_z x_t + b_z),    h̃_t = g(W_h x_t + b_h),    h_t = (1 − z_t) ⊙ h_{t−1} + z_t ⊙ h̃_t

    g(a) = a + 0.5 if a ≥ 0, else σ(a)                                                            (appendix B)

No gate reads the state, so h_t = a_t ⊙ h_{t−1} + b_t with a and b of all steps at once: an associative scan, which
combines neighbours, then neighbouring pairs, and so on, in about 2 log₂ T passes over ever fewer numbers. h_t has the
same sum, in the same order, whatever comes after t.

Departures: the paper scans log h by cumulative sums, whose differences lose all digits on long texts. Here pairs of
(a, b) are combined as they are: a is in (0, 1) and h positive, so nothing overflows and nothing cancels. Layers are in
the usual block, with an output projection, where the paper's experiments have other blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from spanlm.models.encoders.blocks import BlockConfig, BlockStack, Projection
from spanlm.models.interfaces import Encoder, Init, Tensors
from spanlm.models.kernels import linear
from spanlm.models.ops.precision import wide
from spanlm.options import at_least, option, options


def _scan(a: Tensor, b: Tensor) -> Tensor:
    """h_1 = b_1, h_t = a_t ⊙ h_{t−1} + b_t along dimension 0."""
    if len(b) == 1:
        return b
    even = slice(1, None, 2), slice(0, -1, 2)  # steps 2, 4, … and the step before each
    pairs = _scan(a[even[0]] * a[even[1]], torch.addcmul(b[even[0]], a[even[0]], b[even[1]]))
    h = torch.empty_like(b)
    h[0], h[1::2] = b[0], pairs
    torch.addcmul(b[2::2], a[2::2], pairs[: len(b[2::2])], out=h[2::2])
    return h


class _Recurrence(torch.autograd.Function):
    """h_t = a_t ⊙ h_{t−1} + b_t (T, B, H) of a and b (T, B, H) and h_0 (1, B, H)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, h: Tensor) -> Tensor:
        b = torch.cat([torch.addcmul(b[:1], a[:1], h), b[1:]])
        outputs = _scan(a, b)
        ctx.save_for_backward(a, h, outputs)
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        """∂/∂b_t = ∂/∂h_t + a_{t+1} ⊙ ∂/∂b_{t+1}: the same recurrence, from the last step to the first."""
        a, h, outputs = ctx.saved_tensors
        of_b = _scan(a.roll(-1, 0).flip(0), grads[0].flip(0)).flip(0)
        return of_b * torch.cat([h, outputs[:-1]]), of_b, a[:1] * of_b[:1]


recurrence: Callable[..., Tensor] = _Recurrence.apply  # the library leaves it untyped


@options()
class MinGRUConfig(BlockConfig):
    """Blocks around the minimal gated recurrent unit, which learns from all steps at once (Feng et al., 2024)."""

    kind: Literal["min_gru"] = "min_gru"
    expansion: int = option("units of the recurrence for each of hidden_size", default=1, limit=at_least(1))

    @property
    def equation(self) -> str:
        return "z_t = σ(W_z x_t + b_z),  h_t = (1 − z_t) ⊙ h_{t−1} + z_t ⊙ g(W_h x_t + b_h)"

    @property
    def description(self) -> str:
        return f"minGRU {self.sizes}{f', expanded {self.expansion} times' if self.expansion > 1 else ''}"

    def build(self, input_size: int, init: Init) -> BlockStack:
        return BlockStack(self, input_size, init, lambda: MinGRU(self.hidden_size, self.expansion * self.hidden_size))


class MinGRU(Encoder):
    """A layer of D' units; x (T, B, D) -> (T, B, D), state h (1, B, D') at least in float32."""

    def __init__(self, size: int, units: int) -> None:
        super().__init__()
        self.output_size = size
        self.zh_proj: nn.Linear = nn.Linear(size, 2 * units)
        self.o_proj: Projection = Projection(units, size)

    def init_state(self, batch_size: int) -> Tensors:
        return {"h": self.o_proj.weight.new_zeros(1, batch_size, self.o_proj.in_features)}

    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        gate, candidate = wide(linear(x, self.zh_proj.weight, self.zh_proj.bias)).chunk(2, -1)
        squashed = torch.where(candidate >= 0, candidate + 0.5, candidate.sigmoid())
        h = recurrence((-gate).sigmoid(), gate.sigmoid() * squashed, state["h"])
        return self.o_proj(h), {"h": h[-1:]}
