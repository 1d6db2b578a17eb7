"""Activation regularisation (Merity et al., 2017), as in the code of AWD-LSTM.

    AR  = α · mean(f²)                f: what the head reads, after dropout
    TAR = β · mean((h_{t+1} − h_t)²)  h: what the encoder gave, before dropout

and, of a span buffer that says so (`model.memory.penalised`), both once more of what it reads.

The paper writes L2 norms; the code, and the published α = 2 and β = 1, mean over every element of (T, B, ·). Padding is
left out: of TAR a pair of steps counts where both are predicted. Both are given as sums over places, each the mean over
its features, so that groups of streams can be added up and divided once.
"""

from __future__ import annotations

from torch import Tensor

from spanlm.models.ops.precision import wide


def neighbours(mask: Tensor) -> Tensor:
    """(T - 1, B): where a step of `mask` (T, B) and the one after it both count."""
    return mask[1:] & mask[:-1]


def activation(features: Tensor, mask: Tensor) -> Tensor:
    """Σ over the places of `mask` (T, B) of the mean of features² (T, B, D), in float32 or float64."""
    return _over(wide(features), mask)


def temporal_activation(hidden: Tensor, mask: Tensor) -> Tensor:
    """Σ over neighbouring steps of the mean of (h_{t+1} − h_t)², of hidden (T, B, H); 0 where T = 1."""
    hidden = wide(hidden)
    return _over(hidden[1:] - hidden[:-1], neighbours(mask))


def _over(x: Tensor, mask: Tensor) -> Tensor:
    return x.square().mean(-1).where(mask, 0).sum()
