"""A small Transformer that reads as the recurrent encoders do: step after step, with a state that is a value.

Each layer is two branches that are added to its input x (T, B, D), as in Llama (Touvron et al., 2023):

    x ← x + dropout(W_o a),    a_t = Σ_j softmax_j(q_t · k_{t-j} / √d) v_{t-j},  j = 0 … W,    q, k, v of norm(x)
    x ← x + dropout(SwiGLU(norm(x)))

with RMSNorm before each branch and after the last layer, no biases, and rotary positions (Su et al., 2021): q and k are
turned by angles that grow with their place, so that q_t · k_{t-j} depends on the lag j alone. Attention is Vaswani et
al. (2017), Eq. 1, in heads of d units.

`window` W is how many earlier steps a layer looks back at, as of the memories; each layer looks from what the layer
below saw, so L layers reach L · W steps. The state has the last W keys and values of every layer, before they are
turned: any cut of a text is the same stream. Gradients stop at a segment's start, as in Transformer-XL (Dai et al.,
2019), and keys that were carried are of the weights that made them. A word vector of another size than D is projected.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from spanlm.models.encoders.stacks import EncoderConfig
from spanlm.models.interfaces import Encoder, Init, Tensors
from spanlm.models.ops.attention import cleared, with_steps
from spanlm.models.ops.block import FeedForward, Projection, RMSNorm, start_blocks, swiglu_size
from spanlm.models.ops.dropout import dropout
from spanlm.models.ops.precision import no_autocast, wide
from spanlm.options import RATE, at_least, option, options

ROTARY_BASE = 10_000.0


@options()
class TransformerConfig(EncoderConfig):
    """A Transformer of causal self-attention over a window (Vaswani et al., 2017), as Llama has it."""

    kind: Literal["transformer"] = "transformer"
    layers: int = option("how many layers", default=2, limit=at_least(1))
    heads: int = option("attention heads of a layer, each of hidden_size / heads units", default=4, limit=at_least(1))
    window: int = option(
        "earlier steps that each layer looks back at; a sentence or segment that is not longer is seen whole",
        default=256,
        limit=at_least(1),
    )
    feedforward_size: int | None = option(
        "units of the feed-forward branch; null: 8/3 of hidden_size", default=None, limit=at_least(1)
    )
    dropout: float = option("dropout on the output of each branch", default=0.0, limit=RATE)

    @property
    def head_size(self) -> int:
        """d, the units of a head: D / heads, rounded up to pairs, since rotary positions turn pairs of units."""
        return 2 * -(-self.hidden_size // (2 * self.heads))

    @property
    def equation(self) -> str:
        return "x ← x + W_o softmax(q·k/√d) v over t−W … t,  x ← x + SwiGLU(x),  h_t = norm(x_t)"

    @property
    def description(self) -> str:
        return f"Transformer {self.layers}×{self.hidden_size}, {self.heads} heads, window {self.window}"

    def build(self, input_size: int, init: Init) -> TransformerEncoder:
        return TransformerEncoder(self, input_size, init)


class TransformerEncoder(Encoder):
    """x (T, B, E) -> h (T, B, D).

    State: `keys` and `values` (W, B, layers, heads · d) of the last W steps, and which are `filled` (W, B).
    """

    def __init__(self, config: TransformerConfig, input_size: int, init: Init) -> None:
        super().__init__()
        self.output_size, self.window, size = config.hidden_size, config.window, config.hidden_size
        self.slot_size = config.heads * config.head_size
        self.input = None if input_size == size else Projection(input_size, size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(size)
        start_blocks(self, init, config.layers)

    def init_state(self, batch_size: int) -> Tensors:
        slots = self.norm.weight.new_zeros(self.window, batch_size, len(self.layers), self.slot_size)
        filled = torch.zeros(self.window, batch_size, dtype=torch.bool, device=slots.device)
        return {"keys": slots, "values": slots.clone(), "filled": filled}

    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        steps, filled = len(x), with_steps(state["filled"], len(x))
        x = x if self.input is None else self.input(x)
        lags = (
            self.window + torch.arange(steps, device=x.device).unsqueeze(1) - torch.arange(len(filled), device=x.device)
        )
        near = (lags >= 0) & (lags <= self.window)
        seen = (near & filled.T.unsqueeze(1)).unsqueeze(1)  # (B, 1, T, W + T)
        carried = [cleared(state[name], state["filled"]).unbind(2) for name in ("keys", "values")]
        kept = []
        for layer, keys, values in zip(self.layers, *carried, strict=True):
            x, *slots = layer(x, keys, values, seen)
            kept.append([of_layer[steps:] for of_layer in slots])
        keys, values = (torch.stack(of_layers, 2) for of_layers in zip(*kept, strict=True))
        return self.norm(x), {"keys": keys, "values": values, "filled": filled[steps:]}


class Layer(nn.Module):
    """Attention and a feed-forward network, each added to x."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        size, all_heads = config.hidden_size, config.heads * config.head_size
        self.heads, self.dropout = config.heads, config.dropout
        self.norm = RMSNorm(size)
        self.q_proj, self.k_proj, self.v_proj = (Projection(size, all_heads) for _ in range(3))
        self.o_proj = Projection(all_heads, size)
        self.feedforward = FeedForward(size, config.feedforward_size or swiglu_size(size), config.dropout)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Read x (T, B, D) after W carried keys and values (W, B, heads · d); return x, and all keys and values."""
        u = self.norm(x)
        query, key, value = self.q_proj(u), self.k_proj(u), self.v_proj(u)
        keys, values = torch.cat([keys.to(key.dtype), key]), torch.cat([values.to(value.dtype), value])
        angles = rotary_angles(len(keys), keys.shape[-1] // self.heads, wide(keys))
        with no_autocast(x.device):
            q, k = turn(self._by_head(query), angles[-len(x) :]), turn(self._by_head(keys), angles)
            read = scaled_dot_product_attention(q, k, self._by_head(values), attn_mask=seen)
        x = x + dropout(self.o_proj(read.permute(2, 0, 1, 3).flatten(2)), self.dropout, self.training)
        x = self.feedforward(x)
        return x, keys, values

    def _by_head(self, x: Tensor) -> Tensor:
        """(T, B, heads · d) -> (B, heads, T, d)."""
        return x.view(*x.shape[:2], self.heads, -1).permute(1, 2, 0, 3)


def rotary_angles(places: int, size: int, like: Tensor) -> Tensor:
    """Return the angles place · base^(−2i/d), (places, d/2), for heads of `size` d units."""
    rates = ROTARY_BASE ** (-torch.arange(0, size, 2, device=like.device, dtype=like.dtype) / size)
    return torch.arange(places, device=like.device, dtype=like.dtype).unsqueeze(1) * rates


def turn(x: Tensor, angles: Tensor) -> Tensor:
    """Turn each pair of units (i, i + d/2) of x (…, T, d) by its angle (T, d/2)."""
    first, second = wide(x).chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)
