"""Gated DeltaNet (Yang, Kautz & Hatamizadeh, 2025, "Gated Delta Networks", equation 10): a memory that erases.

Each head has a matrix S of values by keys. A step lets all of it decay by α, erases a share β of what S holds under the
key k, writes that share of the value v there, and reads by the query q:

    S_t = S_{t−1} (α_t (I − β_t k_t k_tᵀ)) + β_t v_t k_tᵀ,        o_t = S_t q_t

q, k and v are projections of x, each channel of which a causal convolution over 4 steps and SiLU follow; then q and k
get length 1. β_t = σ(w_βᵀ x_t), α_t = exp(−e^A softplus(w_αᵀ x_t + b)) as in Mamba-2, and the layer's output is

    W_o (RMSNorm(o_t) ⊙ silu(W_g x_t))

The chunked form (section 3.3) has a loop over chunks of C steps instead of one over steps. Within a chunk that starts
with S, γ_t = α_1 … α_t, a step adds u_t k_tᵀ to what is left, and the u of all steps follow from one triangular system:

    u_t = β_t (v_t − γ_t S k_t − Σ_{i<t} (γ_t / γ_i) (k_iᵀ k_t) u_i)
    o_t = γ_t S q_t + Σ_{i≤t} (γ_t / γ_i) (k_iᵀ q_t) u_i,        S_C = γ_C S + Σ_i (γ_C / γ_i) u_i k_iᵀ

γ_t / γ_i is computed from a sum of log α over the steps between, since a difference of long sums would cancel. q is not
divided by √d, as in public code: the norm of o_t undoes that. e^A starts between 1 and 16, e^b between 0.001 and 0.1,
both uniform in the logarithm, nearly as in Mamba-2.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from spanlm.models.encoders.blocks import BlockConfig, BlockStack, Projection, RMSNorm
from spanlm.models.interfaces import Encoder, Init, Tensors
from spanlm.models.ops.precision import no_autocast, wide
from spanlm.options import at_least, option, options

CHUNK = 64
"""Most steps of a chunk."""
WIDTH = 4
"""Steps that the convolution reads."""


@options()
class DeltaConfig(BlockConfig):
    """Blocks around a matrix memory that erases before it writes (Yang et al., 2025)."""

    kind: Literal["delta"] = "delta"
    heads: int = option("memories of each layer", default=4, limit=at_least(1))
    head_size: int | None = option(
        "size of a head's keys, and half that of its values; null: 3/4 of hidden_size, divided by heads, as the paper",
        default=None,
        limit=at_least(1),
    )

    @property
    def key_size(self) -> int:
        return self.head_size or max(1, 3 * self.hidden_size // (4 * self.heads))

    @property
    def equation(self) -> str:
        return "S_t = S_{t−1} α_t (I − β_t k_t k_tᵀ) + β_t v_t k_tᵀ,  o_t = S_t q_t"

    @property
    def description(self) -> str:
        return f"Gated DeltaNet {self.sizes}, {self.heads} heads of {self.key_size}"

    def build(self, input_size: int, init: Init) -> BlockStack:
        size, heads, keys = self.hidden_size, self.heads, self.key_size
        return BlockStack(self, input_size, init, lambda: GatedDelta(size, heads, keys, 2 * keys))


class GatedDelta(Encoder):
    """x (T, B, D) -> (T, B, D); state: the convolution's last inputs (3, B, ·), and Sᵀ (1, B, heads, d_k, d_v).

    Under autocast only the projections are in the autocast type.
    """

    def __init__(self, size: int, heads: int, key_size: int, value_size: int) -> None:
        super().__init__()
        self.output_size: int = size
        self.shape: tuple[int, int, int] = (heads, key_size, value_size)
        keys, values = heads * key_size, heads * value_size
        self._convolved, self._split = [keys, keys, values], [2 * keys + values, values, heads, heads]
        self.in_proj: Projection = Projection(size, sum(self._split))  # q, k, v; W_g; w_α, w_β of each head
        self.conv: nn.Parameter = nn.Parameter(torch.empty(WIDTH, self._split[0]).uniform_(-0.5, 0.5))
        self.A_log: nn.Parameter = nn.Parameter(torch.empty(heads).uniform_(0, math.log(16)))
        self.dt_bias: nn.Parameter = nn.Parameter(torch.empty(heads).uniform_(math.log(0.001), math.log(0.1)))
        self.norm: RMSNorm = RMSNorm(value_size)
        self.o_proj: Projection = Projection(values, size)

    def init_state(self, batch_size: int) -> Tensors:
        zeros = self.conv.new_zeros
        return {"inputs": zeros(WIDTH - 1, batch_size, self._split[0]), "S": zeros(1, batch_size, *self.shape)}

    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        inputs, gate, alpha, beta = wide(self.in_proj(x)).split_with_sizes(self._split, -1)
        read = torch.cat([state["inputs"], inputs])
        taps = [tap * read[n : n + len(x)] for n, tap in enumerate(self.conv)]
        convolved = silu(torch.stack(taps).sum(0)).split_with_sizes(self._convolved, -1)
        q, k, v = (part.view(*x.shape[:2], self.shape[0], -1) for part in convolved)
        log_alpha = -self.A_log.exp() * softplus(alpha + self.dt_bias)
        with no_autocast(x.device):
            o, memory = delta_rule(_unit(q), _unit(k), v, log_alpha, beta.sigmoid(), state["S"][0])
        y = self.o_proj((self.norm(o) * silu(gate.view_as(o))).flatten(-2))
        return y, {"inputs": read[-WIDTH + 1 :], "S": memory.unsqueeze(0)}


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, beta: Tensor, memory: Tensor
) -> tuple[Tensor, Tensor]:
    """Return o (T, B, N, d_v) and Sᵀ after the last step.

    q and k (T, B, N, d_k) of N heads, v (T, B, N, d_v), log α and β (T, B, N), Sᵀ before the first step
    (B, N, d_k, d_v).
    """
    steps, count = len(q), -(-len(q) // CHUNK)
    size = -(-steps // count)
    q, k, v, log_alpha, beta = (_chunks(x, count, size) for x in (q, k, v, log_alpha, beta))
    past = torch.ones(size, size, dtype=torch.bool, device=q.device).tril()
    between = log_alpha.unsqueeze(-1).expand(*log_alpha.shape, size).tril(-1).cumsum(-2)
    decay = between.masked_fill(~past, -torch.inf).exp()  # γ_t / γ_i; no step writes what an earlier one reads
    left = log_alpha.cumsum(-1).exp().unsqueeze(-1)  # γ_t
    system, reads = beta.unsqueeze(-1) * decay * (k @ k.mT), decay * (q @ k.mT)
    outputs = []
    for n in range(count):
        u = beta[n].unsqueeze(-1) * (v[n] - left[n] * (k[n] @ memory))
        u = torch.linalg.solve_triangular(system[n].tril(-1), u, upper=False, unitriangular=True)
        outputs.append(left[n] * (q[n] @ memory) + reads[n] @ u)
        memory = left[n, ..., -1:, :] * memory + (k[n] * decay[n, ..., -1, :, None]).mT @ u
    return torch.stack(outputs).movedim(3, 1).flatten(0, 1)[:steps], memory


def _chunks(x: Tensor, count: int, size: int) -> Tensor:
    """(T, B, N, …) -> (count, B, N, size, …); steps after the last are zero, so that they keep S as it is."""
    missing = count * size - len(x)
    x = torch.cat([x, x.new_zeros(missing, *x.shape[1:])]) if missing else x
    return x.view(count, size, *x.shape[1:]).movedim(1, 3)
