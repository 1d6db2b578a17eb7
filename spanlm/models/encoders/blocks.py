"""Stacks of blocks: a layer and a feed-forward network, each a pre-norm branch, added to the stream of vectors.

    x ← x + dropout(layer_n(norm(x))),    x ← x + dropout(W_down (silu(W_gate u) ⊙ W_up u)),    u = norm(x)

for n = 1 … layers, then h = norm(x). RMSNorm (Zhang & Sennrich, 2019, equation 4) and SwiGLU (Shazeer, 2020, equation
6), in the form and with the names of the Llama of Hugging Face.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu

from spanlm.models.encoders.stacks import EncoderConfig
from spanlm.models.interfaces import Encoder, Init, Tensors
from spanlm.models.kernels import linear
from spanlm.models.ops.dropout import dropout
from spanlm.models.ops.precision import wide
from spanlm.options import RATE, at_least, option, options

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


class FeedForward(nn.Module):
    """x + dropout(SwiGLU(norm(x))) of x (T, B, D).

    `hidden_size` None: 8/3 of D, rounded up to a multiple of 8: three matrices then have the 8 D² weights of the usual
    two.
    """

    def __init__(self, size: int, hidden_size: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm: RMSNorm = RMSNorm(size)
        self.mlp: SwiGLU = SwiGLU(size, hidden_size or -(-size // 3) * 8)
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


@options()
class BlockConfig(EncoderConfig):
    """Equal blocks, each reading the output of the block below."""

    layers: int = option("how many blocks", default=2, limit=at_least(1))
    feedforward_size: int | None = option(
        "units of each feed-forward network; null: 8/3 of hidden_size, rounded up to a multiple of 8",
        default=None,
        limit=at_least(1),
    )
    dropout: float = option("dropout on the output of each layer and feed-forward network", default=0.0, limit=RATE)

    @property
    def sizes(self) -> str:
        return f"{self.layers}×{self.hidden_size}"


class BlockStack(Encoder):
    """x (T, B, E) -> h (T, B, H); state: that of each layer, one layer after the other along dimension 0.

    `layer` builds a layer, an encoder from H to H. If E is not H, a projection without a bias comes first. The stream x
    of vectors is at least float32, under autocast, too.
    """

    def __init__(self, config: BlockConfig, input_size: int, init: Init, layer: Callable[[], Encoder]) -> None:
        super().__init__()
        size, wide, rate = config.hidden_size, config.feedforward_size, config.dropout
        self.output_size: int = size
        self.dropout: float = rate
        self.input: nn.Module = Projection(input_size, size) if input_size != size else nn.Identity()
        self.norms: nn.ModuleList = nn.ModuleList(RMSNorm(size) for _ in range(config.layers))
        self.layers: nn.ModuleList = nn.ModuleList(layer() for _ in range(config.layers))
        self.feedforwards: nn.ModuleList = nn.ModuleList(FeedForward(size, wide, rate) for _ in self.layers)
        self.norm: RMSNorm = RMSNorm(size)
        start_blocks(self, init, config.layers)

    def init_state(self, batch_size: int) -> Tensors:
        first: Tensors = self.layers[0].init_state(batch_size)  # type: ignore[operator]  # of a module list
        return {name: x.new_zeros(len(self.layers) * len(x), *x.shape[1:]) for name, x in first.items()}

    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        x, ends = wide(self.input(x)), list[Tensors]()
        of_layers = {name: tensor.chunk(len(self.layers)) for name, tensor in state.items()}
        for n, layer in enumerate(self.layers):
            y, end = layer(self.norms[n](x), {name: parts[n] for name, parts in of_layers.items()})
            x = self.feedforwards[n](x + dropout(y, self.dropout, self.training))
            ends.append(end)
        h: Tensor = self.norm(x)
        return h, {name: torch.cat([end[name] for end in ends]) for name in state}
