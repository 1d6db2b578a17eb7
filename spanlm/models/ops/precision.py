"""Shared arithmetic: the precision of results, the faster product of a CPU, and dropout masks of a segment.

The library multiplies float32 matrices with MKL, which is slower on AMD's processors than its other kernel, oneDNN.
That kernel has no gradients of its own, so they are written here. The choice depends on the processor's maker, not on
timing, so that a machine gives the same numbers every time.

A mask holds 0 with probability `rate`, else 1 / (1 − rate), which keeps the expectation. It is drawn anew for every
segment and every stream. A draw has 16 bits, so that one number of the generator gives four, and `rate` is rounded to a
multiple of 2⁻¹⁶.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor
from torch.nn import functional

from spanlm.errors import InputError
from spanlm.store.machine import processor_fields

Gradients = TypeVar("Gradients")
Precision = Literal["fp32", "bf16"]


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Products in bfloat16 for bf16; the model's own precision for fp32, and where a processor has no bf16."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=usable(precision, device) == "bf16")


def usable(precision: Precision, device: torch.device | str) -> Precision:
    """Return the precision that `device` computes in when asked for `precision`: fp32 where a processor has no bf16."""
    if precision not in get_args(Precision):
        raise InputError(f"precision={precision}: must be fp32 or bf16")
    doubtful = precision == "bf16" and torch.device(device).type == "cpu"
    return "fp32" if doubtful and not _processor_has_bf16() else precision


@cache
def _processor_has_bf16() -> bool:
    """Try the kernel that some lack, an LSTM's (on x86 it takes AVX-512); log if it fails. Draws no random numbers."""
    x, h, *weights = (torch.zeros(size) for size in ((2, 2, 8), (1, 2, 8), (32, 8), (32, 8), (32,), (32,)))
    try:
        with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16):
            read = torch.lstm(x, (h, h), [w.requires_grad_() for w in weights], True, 1, 0.0, True, False, False)[0]
            torch.autograd.grad(read.sum(), weights)
    except RuntimeError:
        logging.getLogger("spanlm").warning("bf16: this processor cannot train an LSTM in it; fp32 is used instead")
        return False
    return True


def wide(tensor: Tensor) -> Tensor:
    """Return a tensor in float32, or as it is where it has at least as many bits."""
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of sums and logarithms over products in `dtype`."""
    return torch.promote_types(dtype, torch.float32)


def product_dtype(weight: Tensor) -> torch.dtype:
    """Return the type of a weight's products: that of the autocast around the call, else its own."""
    device = weight.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype


def learns(inputs: Iterable[Tensor | None]) -> bool:
    """Whether there will be a backward pass; inside an autograd function `no_grad` hides it."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)


def without_autocast(backward: Callable[..., Gradients]) -> Callable[..., Gradients]:
    """Compute a hand-written gradient in the precision of its forward pass, not of the autocast around `backward()`."""

    @wraps(backward)
    def plain(ctx: Any, *grads: Tensor) -> Gradients:
        with torch.autocast(grads[0].device.type, enabled=False):
            return backward(ctx, *grads)

    return plain


LEAST_PRODUCTS = 2**20
"""Multiplications of a product below which the call of the kernel costs more than it saves."""


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        return _product(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    @without_autocast
    def backward(  # type: ignore[override]  # the decorator hides the signature
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows = grads[0].flatten(0, -2)
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            _product(rows, weight.t(), None).view_as(x) if for_x else None,
            _product(rows.t(), x.flatten(0, -2).t(), None) if for_weight else None,
            rows.sum(0) if ctx.biased and for_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if not (weight.is_contiguous() or weight.t().is_contiguous()):
        weight = weight.contiguous()  # the kernel has nothing but plain loops for gaps between rows
    return _kernel(x, weight, bias)


def _kernel(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is not None:
        bias = bias.contiguous()  # whose stride the kernel does not look at
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return result


_linear: Callable[..., Tensor] = _Linear.apply  # the library leaves it untyped


@cache
def _library_is_slower() -> bool:
    mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return mkl and processor_fields().get("vendor_id") == "AuthenticAMD"


@cache
def _has_kernel() -> bool:
    built: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return built and all(hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight"))


def _faster(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.shape[-1] == weight.shape[-1]
        and (bias is None or (bias.dtype == torch.float32 and bias.shape == weight.shape[:1]))
        and not torch.is_autocast_enabled("cpu")
        and x.numel() * len(weight) >= LEAST_PRODUCTS
        and _library_is_slower()
        and _has_kernel()
    )


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b of x (N, D), W (D', D) and b (D',), for gradients that are written by hand: it has none."""
    if _faster(x, weight, bias):
        return _product(x, weight, bias)
    return torch.mm(x, weight.t()) if bias is None else torch.addmm(bias, x, weight.t())


def crossed(large: Tensor, small: Tensor) -> Tensor:
    """Return Aᵀ B of A (N, D') and B (N, D), without gradients; only B may be copied on the way."""
    if _faster(small.t(), large.t()):
        return _product(small.t(), large.t(), None).t()
    return torch.mm(large.t(), small)


def prepared(weight: Tensor, pays: bool) -> Callable[..., Tensor]:
    """Return `product` of this W (D', D), which may be a transpose; like it, without gradients.

    oneDNN reads W in an order of its own. If it `pays`, a copy in that order is made once, which does not follow W.
    """
    if not (pays and _can_be_ordered(weight)):
        return lambda x, bias=None: product(x, weight, bias)
    ordered = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
    return lambda x, bias=None: _kernel(x, ordered, bias)


def _can_be_ordered(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or weight.numel() * 32 < LEAST_PRODUCTS or not _has_kernel():
        return False
    if weight.dtype == torch.bfloat16:  # elsewhere nothing was measured
        return torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return weight.dtype == torch.float32 and _library_is_slower()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x Wᵀ + b of x (…, D), W (D', D) and b (D',), but for rounding as torch does; first derivatives only."""
    if x.dim() > 1 and weight.dim() == 2 and _faster(x, weight, bias):
        return _linear(x, weight, bias)
    return functional.linear(x, weight, bias)


_SHARE = ContextVar("share", default=(0, 1))


@contextmanager
def sharing_streams(rank: int, ranks: int) -> Iterator[None]:
    """Draw in the block for `ranks` times the streams that are read; those that are read are part number `rank`."""
    token = _SHARE.set((rank, ranks))
    try:
        yield
    finally:
        _SHARE.reset(token)


def drawn(draw: Callable[[Sequence[int]], Tensor], shape: Sequence[int], streams: int) -> Tensor:
    """Return what `draw` draws of a shape, whose streams lie along the dimension `streams`."""
    rank, ranks = _SHARE.get()
    if ranks == 1:
        return draw(shape)
    own = shape[streams]
    return draw([*shape[:streams], own * ranks, *shape[streams + 1 :]]).narrow(streams, rank * own, own).contiguous()


_VALUES = 2**16


def rounded(rate: float) -> float:
    """Return the nearest rate below 1 that draws of 16 bits have."""
    return min(round(rate * _VALUES), _VALUES - 1) / _VALUES


def keep_mask(shape: Sequence[int], rate: float, device: torch.device, streams: int | None = None) -> Tensor:
    """Draw where a mask is not 0, as bool; `streams`: their dimension, None: all share."""
    first = int((rounded(rate) - 0.5) * _VALUES)

    def draw(shape: Sequence[int]) -> Tensor:
        count = math.prod(shape)
        bits = torch.empty(-(-count // 4), dtype=torch.int64, device=device).random_(-(2**63), None)
        return bits.view(torch.int16)[:count].view(*shape) >= first

    return draw(shape) if streams is None else drawn(draw, shape, streams)


def dropout_mask(shape: Sequence[int], rate: float, like: Tensor, streams: int | None) -> Tensor:
    """Draw a mask of a shape, in the type and on the device of `like`; `streams`: their dimension, None: all share."""
    return keep_mask(shape, rate, like.device, streams).to(like.dtype).div_(1 - rounded(rate))


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """Drop numbers of x (T, B, D), each by itself."""
    if not training or not rate:
        return x
    return x * keep_mask(x.shape, rate, x.device, streams=1) / (1 - rounded(rate))


def locked_dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """Drop units of x (T, B, D) for all T steps: one mask (B, D) for the segment."""
    if not training or not rate:
        return x
    return x * dropout_mask(x.shape[1:], rate, x, streams=0)
