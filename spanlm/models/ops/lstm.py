"""Two hand-written loops over time for an LSTM layer, with their gradients.

`lstm_recurrence` is the recurrence of a layer with masks and zoneout, given the inputs' part of the gates:

    [a_i; a_f; a_g; a_o] = inputs_t + W (h_{t-1} ⊙ z)
    c̃_t = σ(a_f) ⊙ c_{t-1} + σ(a_i) ⊙ tanh(a_g),        h̃_t = σ(a_o) ⊙ tanh(c̃_t)
    c_t = d_c ⊙ c_{t-1} + (1 − d_c) ⊙ c̃_t,              h_t = d_h ⊙ h_{t-1} + (1 − d_h) ⊙ h̃_t

`lstm_layer` is a whole plain layer on a CPU where torch's kernel is slow: in reduced precision, and for a few words at
a time, since the kernel reorders the weights at every call.

    [a_i; a_f; a_g; a_o] = W_ih x_t + W_hh h_{t-1} + b
    c_t = σ(a_f) ⊙ c_{t-1} + σ(a_i) ⊙ tanh(a_g),        h_t = σ(a_o) ⊙ tanh(c_t)

One product computes the inputs' part of the gates of all steps, and one product each the gradients of x and of each
weight; the loops contain only the feedback. torch's tanh takes seven times as long as its σ, so tanh a = 1 − 2 σ(−2a)
is kept as

    r = σ(−2a),    o ⊙ tanh a = o − 2 o ⊙ r,    tanh' a = 4 r (1 − r)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from spanlm.models.kernels import prepared, product
from spanlm.models.ops.precision import learns, no_autocast, product_dtype, without_autocast

GATES = 4
"""Input, forget, candidate, output: torch's order."""

OFTEN, OFTEN_BACK = 16, 64
"""Steps from which on W_hh is reordered once; more in the backward pass, which transposes W_hh first."""


def _read(h: Tensor, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return h (…, B, H) as each gate reads it: (4, …, B, H)."""
    read = h if mask is None else h * mask.view(len(mask), *[1] * (h.dim() - 2), *mask.shape[1:])
    return read.to(dtype).expand(GATES, *h.shape)


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
        for t, from_input in enumerate(inputs.unbind(1)):
            gates = torch.bmm(_read(hs[-1], mask, dtype), matrices.transpose(1, 2)).to(h.dtype) + from_input
            i, f, g, o = gates[0].sigmoid_(), gates[1].sigmoid_(), gates[2].tanh_(), gates[3].sigmoid_()
            cell = f * cs[-1] + i * g
            output = cell.tanh()
            if learning:
                activations.append(gates)
                squashed.append(output)
            new = o * output
            cs.append(cell if kept_c is None else torch.lerp(cell, cs[-1], kept_c[t]))
            hs.append(new if kept_h is None else torch.lerp(new, hs[-1], kept_h[t]))
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


def _split(grad: Tensor, share: Tensor | None) -> tuple[Tensor, Tensor | float]:
    if share is None:
        return grad, 0.0
    old = grad * share
    return grad - old, old


_recurrence: Callable[..., tuple[Tensor, Tensor]] = _Recurrence.apply  # the library leaves it untyped


def lstm_recurrence(
    inputs: Tensor,
    h: Tensor,
    c: Tensor,
    weight: Tensor,
    mask: Tensor | None = None,
    kept_h: Tensor | None = None,
    kept_c: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return h_1 … h_T (T, B, H) and c_T (B, H) of the recurrence.

    `inputs` (4, T, B, H), the inputs' part of the gates, biases included; h and c (B, H) before the first step, all in
    float32 or float64; W (4H, H); the mask z is (4, B, H), or (1, B, H) for all gates; d_h and d_c (T, B, H). Under
    autocast the products run in the autocast type; sums, gates, states and outputs are float32.
    """
    dtype = product_dtype(weight)
    with no_autocast(h.device):
        return _recurrence(inputs, h, c, weight, mask, kept_h, kept_c, dtype, learns((inputs, h, c, weight)))


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        weight_ih: Tensor,
        bias: Tensor,
        weight_hh: Tensor,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        steps, (streams, size) = len(x), c.shape
        below, matrix_ih, matrix_hh = x.to(dtype).flatten(0, 1), weight_ih.to(dtype), weight_hh.to(dtype)
        from_below = product(below, matrix_ih) + bias
        gates, rs = from_below.view(steps, streams, GATES, size), c.new_empty(steps, streams, size)
        hs, cs = c.new_empty(steps + 1, streams, size, dtype=dtype), c.new_empty(steps + 1, streams, size)
        hs[0], cs[0] = h, c
        _loop(prepared(matrix_hh, steps >= OFTEN), gates, rs, hs, cs)
        ctx.save_for_backward(below, matrix_ih, matrix_hh, gates, rs, hs, cs)
        return hs[1:], cs[-1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    @without_autocast
    def backward(  # type: ignore[override]  # the decorator hides the signature
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        given_h, grad_c = grads
        below, matrix_ih, matrix_hh, gates, rs, hs, cs = ctx.saved_tensors
        times = prepared(matrix_hh.t(), len(rs) >= OFTEN_BACK)
        at_gates, grad_bias, grad_c = _loop_back(given_h, grad_c.clone(), times, gates, rs, cs)
        grad_h, rows = product(at_gates[0], matrix_hh.t()), at_gates.flatten(0, 1)
        grad_x = product(rows, matrix_ih.t()).view(*at_gates.shape[:2], -1)
        grad_ih, grad_hh = (product(rows.t(), read.t()) for read in (below, hs[:-1].flatten(0, 1)))
        return grad_x, grad_h, grad_c, grad_ih, grad_bias, grad_hh, None


def _loop(times: Callable[[Tensor], Tensor], gates: Tensor, rs: Tensor, hs: Tensor, cs: Tensor) -> None:
    """Replace the inputs' part of the gates by σ(a), for a_g by r; write r of c, h and c of every step."""
    h = torch.empty_like(cs[0])
    products, parts, outputs, cells = gates.flatten(2).unbind(), gates.unbind(), hs.unbind(), cs.unbind()
    for t, (gates_t, r) in enumerate(zip(parts, rs.unbind(), strict=True)):
        products[t].add_(times(outputs[t]))
        i, f, g, o = gates_t.unbind(1)
        g.mul_(-2)
        gates_t.sigmoid_()
        torch.addcmul(i, i, g, value=-2, out=cells[t + 1]).addcmul_(f, cells[t])
        torch.mul(cells[t + 1], -2, out=r).sigmoid_()
        outputs[t + 1].copy_(torch.addcmul(o, o, r, value=-2, out=h))


def _slopes(gates: Tensor, rs: Tensor, cs: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for all steps, ∂c_t/∂a of i, f and g, ∂h_t/∂a of o, and a fourth of ∂h_t/∂c_t."""
    i, _, g, o = gates.unbind(2)
    slopes = torch.addcmul(gates, gates, gates, value=-1)
    of_i, of_f, of_g, of_o = slopes.unbind(2)
    torch.addcmul(of_i, of_i, g, value=-2, out=of_i)
    of_f.mul_(cs[:-1])
    of_g.mul_(i).mul_(4)
    torch.addcmul(of_o, of_o, rs, value=-2, out=of_o)
    return slopes, torch.addcmul(rs, rs, rs, value=-1).mul_(o)


def _loop_back(
    given_h: Tensor,
    grad_c: Tensor,
    times: Callable[[Tensor], Tensor],
    gates: Tensor,
    rs: Tensor,
    cs: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ∂/∂a (T, B, 4H) in the type of h and the products, ∂/∂b, and ∂/∂c_0, which overwrites ∂/∂c_T."""
    slopes, to_c = _slopes(gates, rs, cs)
    at_gates = torch.empty_like(gates.flatten(2), dtype=given_h.dtype)
    wide, summed = torch.empty_like(gates[0]), torch.zeros_like(gates[0])
    of_c, of_h, every_c = wide[:, :-1], wide[:, -1], grad_c.unsqueeze(1)
    to_gates = zip(slopes[:, :, :-1].unbind(), slopes[:, :, -1].unbind(), to_c.unbind(), strict=True)
    steps = list(zip(given_h.to(cs.dtype).unbind(), gates[:, :, 1].unbind(), at_gates.unbind(), to_gates, strict=True))
    after: Tensor | None = None
    for grad_output, forget, at, (slopes_c, slopes_h, slope) in reversed(steps):
        grad_h = grad_output if after is None else grad_output + times(after)
        grad_c.addcmul_(grad_h, slope, value=4)
        torch.mul(every_c, slopes_c, out=of_c)
        torch.mul(grad_h, slopes_h, out=of_h)
        grad_c.mul_(forget)
        summed.add_(wide)
        after = at.copy_(wide.flatten(1))
    return at_gates, summed.sum(0).flatten(), grad_c


_layer: Callable[..., tuple[Tensor, Tensor]] = _Layer.apply  # the library leaves it untyped


def lstm_layer(
    x: Tensor, h: Tensor, c: Tensor, weight_ih: Tensor, bias: Tensor, weight_hh: Tensor
) -> tuple[Tensor, Tensor]:
    """Return h_1 … h_T (T, B, H) and c_T (B, H) of a layer over a segment.

    x (T, B, E); h and c (B, H) before the first step; W_ih (4H, E), b (4H,), W_hh (4H, H). Under autocast the products
    and h, like torch's, are in the autocast type; gates, cells, their gradients and the biases' are float32. First
    derivatives only.
    """
    return _layer(x, h, c.to(weight_hh.dtype), weight_ih, bias, weight_hh, product_dtype(weight_hh))
