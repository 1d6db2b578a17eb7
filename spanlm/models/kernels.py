"""What depends on the processor: faster matrix products and LSTM layers for some.

`SPANLM_KERNELS=0` in the environment selects plain torch everywhere. The choice of a kernel depends on the processor's
maker, on sizes and on the number of threads, never on timing, so that a machine always gives the same numbers
(results/speed.md).

torch multiplies float32 matrices with MKL, which is slower on AMD's processors than torch's other library, oneDNN. The
operators of oneDNN, `mkldnn._linear_pointwise` and `mkldnn._reorder_linear_weight` (torch 2.11), are private and have
no gradients: the gradients are here, and torch's own product replaces a missing operator. torch's LSTM layer reorders
its weights at every call; a loop over steps is faster where that is much of the work.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from spanlm.models.ops.precision import without_autocast
from spanlm.store.machine import processor_fields

KERNELS = os.environ.get("SPANLM_KERNELS", "1") != "0"
"""Whether to use anything but plain torch."""

GPU_ELEMENTS = 2**27
"""Most numbers that a GPU computes at once (512 MB of float32) where a loop would save memory but call many kernels."""

_GPU_COPIES = 32
"""Share of a GPU's memory that these numbers may take: one in so many, since gradients and others need as much."""

LEAST_PRODUCTS = 2**20
"""Multiplications in a product below which a call of the kernel costs more than it saves."""


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
        weight = weight.contiguous()  # the kernel is slow for gaps between rows
    return _kernel(x, weight, bias)


def _kernel(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is not None:
        bias = bias.contiguous()  # the kernel ignores the bias's stride
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return result


_linear: Callable[..., Tensor] = _Linear.apply  # the library leaves it untyped


@cache
def gpu_elements(device: torch.device) -> int:
    """Return how many numbers a device other than a processor computes at once; fewer if its memory is small."""
    if device.type != "cuda":
        return GPU_ELEMENTS
    whole = torch.cuda.get_device_properties(device).total_memory
    return min(GPU_ELEMENTS, whole // (_GPU_COPIES * torch.float32.itemsize))


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
        KERNELS
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.shape[-1] == weight.shape[-1]
        and (bias is None or (bias.dtype == torch.float32 and bias.shape == weight.shape[:1]))
        and not torch.is_autocast_enabled("cpu")
        and x.numel() * len(weight) >= LEAST_PRODUCTS
        and _library_is_slower()
        and _has_kernel()
    )


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b of x (N, D), W (D', D) and b (D',), without gradients, for use in hand-written ones."""
    if _faster(x, weight, bias):
        return _product(x, weight, bias)
    return torch.mm(x, weight.t()) if bias is None else torch.addmm(bias, x, weight.t())


def crossed(large: Tensor, small: Tensor) -> Tensor:
    """Return Aᵀ B of A (N, D') and B (N, D), without gradients; only B may be copied on the way."""
    if _faster(small.t(), large.t()):
        return _product(small.t(), large.t(), None).t()
    return torch.mm(large.t(), small)


def prepared(weight: Tensor, pays: bool) -> Callable[..., Tensor]:
    """Return the function `product` of this W (D', D), which may be a transpose; without gradients.

    oneDNN reads W in its own order. With `pays`, W is copied in that order once; later changes of W have no effect.
    """
    if not (pays and _can_be_ordered(weight)):
        return lambda x, bias=None: product(x, weight, bias)
    ordered = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
    return lambda x, bias=None: _kernel(x, ordered, bias)


def _can_be_ordered(weight: Tensor) -> bool:
    if not KERNELS or weight.device.type != "cpu" or weight.numel() * 32 < LEAST_PRODUCTS or not _has_kernel():
        return False
    if weight.dtype == torch.bfloat16:  # not measured on other processors
        return torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return weight.dtype == torch.float32 and _library_is_slower()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b of x (…, D), W (D', D) and b (D',), equal to torch's up to rounding; first derivatives only."""
    if x.dim() > 1 and weight.dim() == 2 and _faster(x, weight, bias):
        return _linear(x, weight, bias)
    return functional.linear(x, weight, bias)


# --- LSTM layers ---

LOOP_FROM = {1: 490, 2: 640}
"""By threads: the number of units from which the loop trains a layer faster than torch's kernel, in bfloat16."""

FEW, FEW_FROM = 10, 480
"""For at most `FEW` steps · streams, the loop is also faster in float32, from `FEW_FROM` units on."""

STREAMS = 16
"""Most streams of a single step that torch's LSTM cell reads faster than its kernel."""


def one_step_of_few(x: Tensor) -> bool:
    """Whether torch's LSTM cell reads x (T, B, E) faster than its kernel, as in sampling word by word.

    The kernel reorders the weights at every call, which matters less with more streams.
    """
    few = KERNELS and len(x) == 1 and x.shape[1] <= STREAMS
    return few and x.device.type == "cpu" and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def loop_is_faster(units: float, x: Tensor) -> bool:
    """Whether `lstm_layer` reads x (T, B, E) and learns faster than torch's kernel (results/speed.md).

    `units` are √(H · max(E, H)) of a layer E → H. Only on a CPU: for long segments in bfloat16, and for a few words, as
    in dynamic evaluation, also in float32. More than two threads were not measured: torch's kernel stays.
    """
    if not KERNELS or x.device.type != "cpu" or not torch.is_grad_enabled():
        return False
    reduced = torch.is_autocast_enabled("cpu")
    if (torch.get_autocast_dtype("cpu") if reduced else x.dtype) != (torch.bfloat16 if reduced else torch.float32):
        return False
    long = LOOP_FROM.get(torch.get_num_threads(), math.inf)
    if len(x) * x.shape[1] <= FEW:
        return long < math.inf and units >= FEW_FROM
    return reduced and units >= long
