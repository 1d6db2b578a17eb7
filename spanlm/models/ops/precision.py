"""The precision of products and of results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, wraps
from typing import Any, TypeVar, cast, get_args

import torch
from torch import Tensor

from spanlm.errors import InputError
from spanlm.options import Precision

Gradients = TypeVar("Gradients")

CUDNN_WITH_BF16 = 91300
"""The first version of cuDNN whose LSTM torch uses in bfloat16."""


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Return an autocast to bfloat16 for bf16; it is disabled for fp32, and on devices without bf16."""
    if device.type == "meta":  # has no values, and knows no autocast
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=usable(precision, device) == "bf16")


def no_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which products keep the type of their factors."""
    return autocast(device, "fp32")


@contextmanager
def products(device: torch.device, precision: Precision) -> Iterator[None]:
    """Within the block, backward passes included, let a GPU compute float32 products in TF32 for tf32 alone.

    Torch's own default is TF32 in recurrent kernels, and float32 elsewhere.
    """
    if device.type != "cuda":
        yield
        return
    matmul, recurrent = torch.backends.cuda.matmul, cast(Any, torch.backends.cudnn).rnn
    before = matmul.fp32_precision, recurrent.fp32_precision
    matmul.fp32_precision = recurrent.fp32_precision = "tf32" if usable(precision, device) == "tf32" else "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision, recurrent.fp32_precision = before


def usable(precision: Precision, device: torch.device | str) -> Precision:
    """Return the precision that `device` uses for `precision`: fp32 if it lacks that, which is logged once."""
    if precision not in get_args(Precision):
        raise InputError("precision", precision, "must be fp32, tf32 or bf16")
    if reason := lacks(precision, device):
        _log_once(reason)
        return "fp32"
    return precision


def lacks(precision: Precision, device: torch.device | str) -> str:
    """Return why a device cannot compute in a precision; empty: it can."""
    device = torch.device(device)
    if precision == "fp32" or device.type == "meta":
        return ""
    if device.type == "cuda":
        return _gpu_lacks(precision, device)
    if precision == "tf32":
        return "tf32: only a GPU computes in it; fp32 is used instead"
    return "" if _processor_has_bf16() else "bf16: this processor cannot train an LSTM in it; fp32 is used instead"


@cache
def _log_once(text: str) -> None:
    logging.getLogger("spanlm").warning(text)


@cache
def _gpu_lacks(precision: Precision, device: torch.device) -> str:
    """Ask for the tensor cores of compute capability 8.0, and for bf16 also for a cuDNN whose LSTM has it."""
    major = torch.cuda.get_device_capability(device)[0]
    version = torch.backends.cudnn.version() or 0  # type: ignore[no-untyped-call]
    if major < 8:
        return f"{precision}: this GPU has no tensor cores for it (compute capability below 8.0); fp32 is used instead"
    if precision == "bf16" and version < CUDNN_WITH_BF16:
        return f"bf16: LSTMs need cuDNN 9.13 for it (here {version}); fp32 is used instead"
    return ""


@cache
def _processor_has_bf16() -> bool:
    """Try the LSTM kernel, which some lack (on x86 it needs AVX-512). Draws no random numbers."""
    x, h, *weights = (torch.zeros(size) for size in ((2, 2, 8), (1, 2, 8), (32, 8), (32, 8), (32,), (32,)))
    try:
        with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16):
            read = torch.lstm(x, (h, h), [w.requires_grad_() for w in weights], True, 1, 0.0, True, False, False)[0]
            torch.autograd.grad(read.sum(), weights)
    except RuntimeError:
        return False
    return True


def wide(tensor: Tensor) -> Tensor:
    """Convert a tensor to float32, unless it has at least as many bits."""
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of sums and logarithms over products in `dtype`."""
    return torch.promote_types(dtype, torch.float32)


def product_dtype(weight: Tensor) -> torch.dtype:
    """Return the type of a weight's products: the surrounding autocast's, else the weight's."""
    device = weight.device.type
    casts = device != "meta" and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if casts else weight.dtype


def learns(inputs: Iterable[Tensor | None]) -> bool:
    """Whether there will be a backward pass; inside an autograd function `no_grad` hides it."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)


def without_autocast(backward: Callable[..., Gradients]) -> Callable[..., Gradients]:
    """Run a hand-written gradient in its forward pass's precision, not in an autocast around `backward()`."""

    @wraps(backward)
    def plain(ctx: Any, *grads: Tensor) -> Gradients:
        with no_autocast(grads[0].device):
            return backward(ctx, *grads)

    return plain
