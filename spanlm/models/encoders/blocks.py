"""Stacks of blocks: a layer and a feed-forward network, each a pre-norm branch (`ops/block.py`).

x ← x + dropout(layer_n(norm(x))),    x ← x + dropout(SwiGLU(norm(x)))    for n = 1 … layers,    h = norm(x)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from spanlm.models.encoders.stacks import EncoderConfig
from spanlm.models.interfaces import Encoder, Init, Tensors
from spanlm.models.ops.block import FeedForward, Projection, RMSNorm, start_blocks
from spanlm.models.ops.dropout import dropout
from spanlm.models.ops.precision import wide
from spanlm.options import RATE, at_least, option, options


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
