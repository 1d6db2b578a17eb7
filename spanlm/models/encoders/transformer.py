"""A small Transformer that reads as the recurrent encoders do: step after step, with a state that is a value.

The layer of a block (`blocks`) is causal self-attention (Vaswani et al., 2017, Eq. 1) in heads of d units:

    W_o a,    a_t = Σ_j softmax_j(q_t · k_{t-j} / √d) v_{t-j},  j = 0 … W,    q, k, v = W_q x, W_k x, W_v x

without biases, and with rotary positions (Su et al., 2021): q and k are turned by angles that grow with their place, so
that q_t · k_{t-j} depends on the lag j alone. With the block around it this is Llama (Touvron et al., 2023), and with a
window Mistral.

`window` W is how many earlier steps a layer looks back at, as of the memories; each layer looks from what the layer
below saw, so L layers reach L · W steps. The state has the last W keys and values of every layer, before they are
turned: any cut of a text is the same stream. Gradients stop at a segment's start, as in Transformer-XL (Dai et al.,
2019), and keys that were carried are of the weights that made them. A word vector of another size than D is projected.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from spanlm.models.encoders.blocks import BlockConfig, BlockStack, Projection
from spanlm.models.interfaces import Encoder, Init, Tensors
from spanlm.models.ops.attention import cleared, with_steps
from spanlm.models.ops.precision import no_autocast, wide, wide_dtype
from spanlm.options import at_least, option, options

ROTARY_BASE = 10_000.0


@options()
class TransformerConfig(BlockConfig):
    """Blocks of causal self-attention over a window (Vaswani et al., 2017), as Llama has them."""

    kind: Literal["transformer"] = "transformer"
    heads: int = option("attention heads of a layer, each of hidden_size / heads units", default=4, limit=at_least(1))
    window: int = option(
        "earlier steps that each layer looks back at, which the state holds, so that there is no window without end; a "
        "sentence or segment that is not longer is seen whole",
        default=256,
        limit=at_least(1),
    )

    @property
    def head_size(self) -> int:
        """d, the units of a head: D / heads, rounded up to pairs, since rotary positions turn pairs of units."""
        return 2 * -(-self.hidden_size // (2 * self.heads))

    @property
    def equation(self) -> str:
        return "x ← x + W_o softmax(q·k/√d) v over t−W … t,  x ← x + SwiGLU(x),  h_t = norm(x_t)"

    @property
    def description(self) -> str:
        return f"Transformer {self.sizes}, {self.heads} heads, window {self.window}"

    def build(self, input_size: int, init: Init) -> BlockStack:
        return BlockStack(self, input_size, init, lambda: SelfAttention(self))


class SelfAttention(Encoder):
    """x (T, B, D) -> (T, B, D).

    State: `keys` and `values` (W, B, heads · d) of the last W steps, and which are `filled` (W, B).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.output_size: int = config.hidden_size
        self._window, self._heads, self._slot_size = config.window, config.heads, config.heads * config.head_size
        self.q_proj: Projection = Projection(config.hidden_size, self._slot_size)
        self.k_proj: Projection = Projection(config.hidden_size, self._slot_size)
        self.v_proj: Projection = Projection(config.hidden_size, self._slot_size)
        self.o_proj: Projection = Projection(self._slot_size, config.hidden_size)

    def init_state(self, batch_size: int) -> Tensors:
        slots = self.o_proj.weight.new_zeros(self._window, batch_size, self._slot_size)
        filled = torch.zeros(slots.shape[:2], dtype=torch.bool, device=slots.device)
        return {"keys": slots, "values": slots.clone(), "filled": filled}

    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        steps, filled = len(x), with_steps(state["filled"], len(x))
        queries = self.q_proj(x)
        carried = [cleared(state[name], state["filled"]).to(queries.dtype) for name in ("keys", "values")]
        keys, values = torch.cat([carried[0], self.k_proj(x)]), torch.cat([carried[1], self.v_proj(x)])
        places = torch.arange(len(filled), device=x.device)
        lags = places[-steps:].unsqueeze(1) - places
        seen = (lags >= 0) & (lags <= self._window) & filled.T.unsqueeze(1)  # (B, T, W + T)
        angles = rotary_angles(places, self._slot_size // self._heads, wide_dtype(keys.dtype))
        with no_autocast(x.device):
            q, k = turn(self._by_head(queries), angles[-steps:]), turn(self._by_head(keys), angles)
            read = scaled_dot_product_attention(q, k, self._by_head(values), attn_mask=seen.unsqueeze(1))
        y: Tensor = self.o_proj(read.permute(2, 0, 1, 3).flatten(2))
        return y, {"keys": keys[steps:], "values": values[steps:], "filled": filled[steps:]}

    def _by_head(self, x: Tensor) -> Tensor:
        """(T, B, heads · d) -> (B, heads, T, d)."""
        return x.view(*x.shape[:2], self._heads, -1).permute(1, 2, 0, 3)


def rotary_angles(places: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """Return the angles place · base^(−2i/d) of places (T,), (T, d/2), for heads of `size` d units."""
    rates = ROTARY_BASE ** (-torch.arange(0, size, 2, device=places.device, dtype=dtype) / size)
    return places.to(dtype).unsqueeze(1) * rates


def turn(x: Tensor, angles: Tensor) -> Tensor:
    """Turn each pair of units (i, i + d/2) of x (…, T, d) by its angle (T, d/2)."""
    first, second = wide(x).chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)
