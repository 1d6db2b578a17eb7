"""A whole LSTM layer on a CPU where the library's kernel is slow: the loop over time by hand.

It is slow in reduced precision, and for a few words at a time: at every call it puts the weights in an order of its
own.

    [a_i; a_f; a_g; a_o] = W_ih x_t + W_hh h_{t-1} + b
    c_t = σ(a_f) ⊙ c_{t-1} + σ(a_i) ⊙ tanh(a_g),        h_t = σ(a_o) ⊙ tanh(c_t)

One product tells the gates of all steps what is below; in the loop, forwards and backwards, there is one product a
step; the gradients of x, W_ih and W_hh are one product each. What does not depend on the gradient from above is worked
out for all steps at once. The library's tanh takes seven times as long as its σ, so tanh a = 1 − 2 σ(−2a) is kept as

    r = σ(−2a),    o ⊙ tanh a = o − 2 o ⊙ r,    tanh' a = 4 r (1 − r)

The masks of each gate and zoneout are `lstm_recurrence`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from spanlm.models.ops.lstm_recurrence import GATES
from spanlm.models.ops.precision import product_dtype, without_autocast

LOOP_FROM = {1: 480, 2: 640}
"""Threads, and from how many units on the loop trains a layer faster than the library's kernel, in bfloat16."""

FEW, FEW_FROM = 10, 480
"""Steps times streams of a segment, and from how many units on the loop is then faster in float32, too."""


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
        told = torch.mm(below, matrix_ih.t()) + bias
        gates, rs = told.view(steps, streams, GATES, size), c.new_empty(steps, streams, size)
        hs, cs = c.new_empty(steps + 1, streams, size, dtype=dtype), c.new_empty(steps + 1, streams, size)
        hs[0], cs[0] = h, c
        _loop(matrix_hh, gates, rs, hs, cs)
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
        at_gates, grad_bias, grad_c = _loop_back(given_h.to(cs.dtype), grad_c.clone(), matrix_hh, gates, rs, cs)
        grad_h, rows = torch.mm(at_gates[0], matrix_hh), at_gates.flatten(0, 1)
        grad_x = torch.mm(rows, matrix_ih).view(*at_gates.shape[:2], -1)
        grad_ih, grad_hh = torch.mm(rows.t(), below), torch.mm(rows.t(), hs[:-1].flatten(0, 1))
        return grad_x, grad_h, grad_c, grad_ih, grad_bias, grad_hh, None


def _loop(matrix: Tensor, gates: Tensor, rs: Tensor, hs: Tensor, cs: Tensor) -> None:
    """Turn what the inputs say to the gates into σ(a) of each, r for a_g; write r of c, h and c of every step."""
    read, h = matrix.t(), torch.empty_like(cs[0])
    products, parts, outputs, cells = gates.flatten(2).unbind(), gates.unbind(), hs.unbind(), cs.unbind()
    for t, (gates_t, r) in enumerate(zip(parts, rs.unbind(), strict=True)):
        products[t].add_(torch.mm(outputs[t], read))
        i, f, g, o = gates_t.unbind(1)
        g.mul_(-2)
        gates_t.sigmoid_()
        torch.addcmul(i, i, g, value=-2, out=cells[t + 1]).addcmul_(f, cells[t])
        torch.mul(cells[t + 1], -2, out=r).sigmoid_()
        outputs[t + 1].copy_(torch.addcmul(o, o, r, value=-2, out=h))


def _slopes(gates: Tensor, rs: Tensor, cs: Tensor) -> tuple[Tensor, Tensor]:
    """Return ∂c_t/∂a of i, f and g, ∂h_t/∂a of o, and a fourth of ∂h_t/∂c_t: of all steps at once."""
    i, _, g, o = gates.unbind(2)
    slopes = torch.addcmul(gates, gates, gates, value=-1)
    of_i, of_f, of_g, of_o = slopes.unbind(2)
    torch.addcmul(of_i, of_i, g, value=-2, out=of_i)
    of_f.mul_(cs[:-1])
    of_g.mul_(i).mul_(4)
    torch.addcmul(of_o, of_o, rs, value=-2, out=of_o)
    return slopes, torch.addcmul(rs, rs, rs, value=-1).mul_(o)


def _loop_back(
    given_h: Tensor, grad_c: Tensor, matrix: Tensor, gates: Tensor, rs: Tensor, cs: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ∂/∂a (T, B, 4H) in the type of the products, ∂/∂b, and ∂/∂c_0, which takes the place of ∂/∂c_T."""
    slopes, to_c = _slopes(gates, rs, cs)
    at_gates = matrix.new_empty(*gates.shape[:2], len(matrix))
    wide, summed = torch.empty_like(gates[0]), torch.zeros_like(gates[0])
    of_c, of_h, every_c = wide[:, :-1], wide[:, -1], grad_c.unsqueeze(1)
    to_gates = zip(slopes[:, :, :-1].unbind(), slopes[:, :, -1].unbind(), to_c.unbind(), strict=True)
    steps = list(zip(given_h.unbind(), gates[:, :, 1].unbind(), at_gates.unbind(), to_gates, strict=True))
    after: Tensor | None = None
    for given, kept, at, (slopes_c, slopes_h, slope) in reversed(steps):
        grad_h = given if after is None else given + torch.mm(after, matrix)
        grad_c.addcmul_(grad_h, slope, value=4)
        torch.mul(every_c, slopes_c, out=of_c)
        torch.mul(grad_h, slopes_h, out=of_h)
        grad_c.mul_(kept)
        summed.add_(wide)
        after = at.copy_(wide.flatten(1))
    return at_gates, summed.sum(0).flatten(), grad_c


_apply: Callable[..., tuple[Tensor, Tensor]] = _Layer.apply  # the library leaves it untyped


def lstm_layer(
    x: Tensor, h: Tensor, c: Tensor, weight_ih: Tensor, bias: Tensor, weight_hh: Tensor
) -> tuple[Tensor, Tensor]:
    """Run a layer over a segment.

    Under autocast the products run in the autocast type, and so is h, as the library's; gates, cells, their gradients
    and the biases' are float32. There are first derivatives only.

    Args:
        x: (T, B, E).
        h: (B, H), the output before the first step.
        c: (B, H), the cell before the first step.
        weight_ih: (4H, E).
        bias: (4H,).
        weight_hh: (4H, H).

    Returns:
        h_1 … h_T (T, B, H) and c_T (B, H).
    """
    return _apply(x, h, c.to(weight_hh.dtype), weight_ih, bias, weight_hh, product_dtype(weight_hh))


def square_units(input_size: int, hidden_size: int) -> float:
    """Return how many units a layer with as many weights has that reads as many as it has: what `LOOP_FROM` counts.

    Layers of 20 streams of 35 and of 70 steps, one thread, loop against kernel: 1150 → 400 units (557) -47 and -51 %,
    1150 → 280 (447) -11 and -34 %, 650 → 400 (458) -4 and -24 %, 300 → 480 (433) +14 and +3 %, 200 → 200 +67 and +47 %.
    """
    return math.sqrt(hidden_size * (input_size + hidden_size) / 2)


def loop_is_faster(units: float, x: Tensor) -> bool:
    """Whether this loop reads x (T, B, E) faster than the library's kernel, where a gradient is asked for, on a CPU.

    Long segments in bfloat16, from some size on. Whole training steps, torch 2.13, two cores of an AMD EPYC (Zen 5),
    loop against kernel, least time of each. Two layers, 20 streams of 35 steps, 10,000 words, one thread: 400 units
    +2 %, 450 -5 %, 512 -16 %, 650 -34 %; two threads: 576 +13 %, 650 -3 to +2 %, 700 +3 %, 1500 -51 %; 64 streams of 20
    steps: 800 units -11 %. An EPYC of Zen 4, where a large product has half of that speed, two threads: 500 units -11
    to +4 %, 576 -5 to +5 %, 650 -15 to -7 %, 700 -25 to -11 %, 780 -24 to -14 %; 12 streams of 70 steps: 576 -8 to +13
    %, 700 -29 to -1 %; 64 of 20: 700 -9 to -5 %; under the published mixture of softmaxes (280 → 960 → 960 → 620 units,
    12 streams of 70) a loop for all three layers, beside one for the middle layer alone, -12 to -10 %.

    Short segments, such as dynamic evaluation has, in float32, too. A layer alone on Zen 4, 5 steps of one stream,
    forwards and backwards, one thread: 230 units -59 to -14 %, 400 -62 to +15 %, 500 -63 to -43 %, 650 -67 to -49 %,
    1150 -68 %, 1500 -58 to -54 %; two threads: 230 0 to +2 %, 400 +11 to +33 %, 500 -73 to -7 %, 650 -66 to -14 %, 1150
    -65 to -63 %; 5 steps of 2 streams: 500 units -55 to -20 %; in bfloat16 from 500 units on -45 to -85 %. 20 steps
    with two threads, and 35 of 4 streams with either, are the kernel's again.

    With more threads nothing was measured, and the kernel stays. It does, too, in other types and without gradients.
    """
    if x.device.type != "cpu" or not torch.is_grad_enabled():
        return False
    reduced = torch.is_autocast_enabled("cpu")
    if (torch.get_autocast_dtype("cpu") if reduced else x.dtype) != (torch.bfloat16 if reduced else torch.float32):
        return False
    long = LOOP_FROM.get(torch.get_num_threads(), math.inf)
    if len(x) * x.shape[1] <= FEW:
        return long < math.inf and units >= FEW_FROM
    return reduced and units >= long
