"""The block that modern language models build around a layer: pre-norm branches, added to the stream of vectors.

    x ← x + dropout(layer(norm(x))),        x ← x + dropout(W_down (silu(W_gate u) ⊙ W_up u)),    u = norm(x)

RMSNorm (Zhang & Sennrich, 2019, equation 4) and SwiGLU (Shazeer, 2020, equation 6), in the form and with the names of
the Llama of Hugging Face.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu

from spanlm.models.interfaces import Init
from spanlm.models.kernels import linear
from spanlm.models.ops.dropout import dropout
from spanlm.models.ops.precision import wide

OUTPUTS = "o_proj", "down_proj"
"""Names of the last projection of a block's two branches, the layer's and the feed-forward network's."""


class RMSNorm(nn.Module):
    """x ⊙ weight / √(mean(x²) + 1e-6) over the last dimension of x (…, D), at least in float32."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight: nn.Parameter = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(wide(x), self.weight.shape, self.weight, 1e-6)


class Projection(nn.Linear):
    """W x without a bias."""

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__(input_size, output_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight)


class SwiGLU(nn.Module):
    """W_down (silu(W_gate x) ⊙ W_up x) of x (…, D); `hidden_size` is the number of rows of W_gate and of W_up."""

    def __init__(self, size: int, hidden_size: int) -> None:
        super().__init__()
        self.gate_proj: Projection = Projection(size, hidden_size)
        self.up_proj: Projection = Projection(size, hidden_size)
        self.down_proj: Projection = Projection(hidden_size, size)

    def forward(self, x: Tensor) -> Tensor:
        down: Tensor = self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))
        return down


def swiglu_size(size: int) -> int:
    """Return 8/3 of D, rounded up to a multiple of 8: three matrices then have the 8 D² weights of the usual two."""
    return -(-size // 3) * 8


class FeedForward(nn.Module):
    """x + dropout(SwiGLU(norm(x))) of x (T, B, D); hidden_size None: see `swiglu_size`."""

    def __init__(self, size: int, hidden_size: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm: RMSNorm = RMSNorm(size)
        self.mlp: SwiGLU = SwiGLU(size, hidden_size or swiglu_size(size))
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        return x + dropout(self.mlp(self.norm(x)), self.dropout, self.training)


@torch.no_grad()
def start_blocks(stack: nn.Module, init: Init, layers: int) -> None:
    """Draw the weights and biases of all linear maps of a stack of blocks by `init`, in place; others stay as they are.

    The last projection of each branch is then divided by √(2 · layers), so that the sum of all branches does not grow
    with their number (Radford et al., 2019).
    """
    for name, module in stack.named_modules():
        if isinstance(module, nn.Linear):
            init.start_all(module)
            if name.rpartition(".")[-1] in OUTPUTS:
                module.weight.mul_(1 / math.sqrt(len(OUTPUTS) * layers))
