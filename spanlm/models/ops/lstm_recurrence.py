"""What feeds back in an LSTM layer: the loop over time, given what the inputs say to the gates.

    [a_i; a_f; a_g; a_o] = inputs_t + W (h_{t-1} ⊙ z)
    c̃_t = σ(a_f) ⊙ c_{t-1} + σ(a_i) ⊙ tanh(a_g),        h̃_t = σ(a_o) ⊙ tanh(c̃_t)
    c_t = d_c ⊙ c_{t-1} + (1 − d_c) ⊙ c̃_t,              h_t = d_h ⊙ h_{t-1} + (1 − d_h) ⊙ h̃_t

The gradient is written by hand so that ∂/∂W is one product over all steps: summed up step by step, at 1500 units it
took longer than all else together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from spanlm.models.ops.precision import learns, product_dtype, without_autocast

GATES = 4
"""Input, forget, candidate, output: the library's order."""


def _read(h: Tensor, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """What each gate reads of h (…, B, H): (4, …, B, H)."""
    if mask is None:
        return h.to(dtype).expand(GATES, *h.shape)
    return (h * mask.view(len(mask), *[1] * (h.dim() - 2), *mask.shape[1:])).to(dtype).expand(GATES, *h.shape)


def _mixed(old: Tensor, new: Tensor, kept: Tensor | None) -> Tensor:
    return new if kept is None else torch.lerp(new, old, kept)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        h: Tensor,
        c: Tensor,
        weight: Tensor,
        mask: Tensor | None,
        kept_h: Tensor | None,
        kept_c: Tensor | None,
        dtype: torch.dtype,
        learning: bool,
    ) -> tuple[Tensor, Tensor]:
        matrices = weight.view(GATES, *h.shape[1:], -1).to(dtype)
        hs, cs, activations, squashed = [h], [c], [], []
        for t, given in enumerate(inputs.unbind(1)):
            gates = torch.bmm(_read(hs[-1], mask, dtype), matrices.transpose(1, 2)).to(h.dtype) + given
            i, f, g, o = gates[0].sigmoid_(), gates[1].sigmoid_(), gates[2].tanh_(), gates[3].sigmoid_()
            cell = f * cs[-1] + i * g
            output = cell.tanh()
            if learning:
                activations.append(gates)
                squashed.append(output)
            cs.append(_mixed(cs[-1], cell, None if kept_c is None else kept_c[t]))
            hs.append(_mixed(hs[-1], o * output, None if kept_h is None else kept_h[t]))
        if learning:
            before = torch.stack(hs[:-1]), torch.stack(cs[:-1])
            ctx.save_for_backward(*before, matrices, mask, kept_h, kept_c, *activations, *squashed)
        return torch.stack(hs[1:]), cs[-1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    @without_autocast
    def backward(  # type: ignore[override]  # the decorator hides the signature
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        given_h, grad_c = grads
        before_h, before_c, matrices, mask, kept_h, kept_c, *saved = ctx.saved_tensors
        steps, streams, size = before_h.shape
        at_gates = before_h.new_empty(GATES, steps, streams, size)
        grad_h = torch.zeros_like(given_h[0])
        for t in reversed(range(steps)):
            (i, f, g, o), squashed = saved[t], saved[steps + t]
            grad_h = grad_h + given_h[t]
            new_h, old_h = _split(grad_h, None if kept_h is None else kept_h[t])
            new_c, old_c = _split(grad_c, None if kept_c is None else kept_c[t])
            new_c = new_c + new_h * o * (1 - squashed * squashed)
            at_gates[0, t] = new_c * g * i * (1 - i)
            at_gates[1, t] = new_c * before_c[t] * f * (1 - f)
            at_gates[2, t] = new_c * i * (1 - g * g)
            at_gates[3, t] = new_h * squashed * o * (1 - o)
            read = torch.bmm(at_gates[:, t].to(matrices.dtype), matrices).to(grad_h.dtype)
            grad_h = (read if mask is None else read * mask).sum(0) + old_h
            grad_c = new_c * f + old_c
        factors = at_gates.to(matrices.dtype).flatten(1, 2).transpose(1, 2)
        grad_weight = torch.bmm(factors, _read(before_h, mask, matrices.dtype).flatten(1, 2)).flatten(0, 1)
        return at_gates, grad_h, grad_c, grad_weight.to(grad_h.dtype), None, None, None, None, None


def _split(grad: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor | float]:
    """What of a gradient goes to the new value, and what to the one that was kept."""
    if kept is None:
        return grad, 0.0
    old = grad * kept
    return grad - old, old


_apply: Callable[..., tuple[Tensor, Tensor]] = _Recurrence.apply  # the library leaves it untyped


def lstm_recurrence(
    inputs: Tensor,
    h: Tensor,
    c: Tensor,
    weight: Tensor,
    mask: Tensor | None = None,
    kept_h: Tensor | None = None,
    kept_c: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the loop.

    Under autocast the products run in the autocast type; sums, gates, states and outputs are float32.

    Args:
        inputs: (4, T, B, H), what the gates are told besides h, biases included; float32 or float64, as h and c.
        h: (B, H), the output before the first step.
        c: (B, H), the cell before the first step.
        weight: (4H, H).
        mask: z, (4, B, H), or (1, B, H) for all gates; None: nothing is dropped.
        kept_h: d_h, (T, B, H); None: nothing is kept.
        kept_c: d_c, likewise.

    Returns:
        h_1 … h_T (T, B, H) and c_T (B, H).
    """
    dtype = product_dtype(weight)
    with torch.autocast(h.device.type, enabled=False):
        return _apply(inputs, h, c, weight, mask, kept_h, kept_c, dtype, learns((inputs, h, c, weight)))
