"""Dropout masks of a segment.

A mask is 0 with probability `rate`, else 1 / (1 − rate), which keeps the expectation. It is drawn for every segment and
every stream. `rate` is rounded to a multiple of 2⁻¹⁶: on a processor a draw has 16 bits, so that a 64-bit number of the
generator gives four draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from spanlm.models.ops.precision import wide_dtype

_SHARE = ContextVar("share", default=(0, 1))


@contextmanager
def sharing_streams(rank: int, ranks: int) -> Iterator[None]:
    """Within the block, draw for the streams of all `ranks`; this process reads part number `rank` of them."""
    token = _SHARE.set((rank, ranks))
    try:
        yield
    finally:
        _SHARE.reset(token)


def drawn(draw: Callable[[Sequence[int]], Tensor], shape: Sequence[int], streams: int | None) -> Tensor:
    """Call `draw` for the shape over all ranks' streams; return this rank's part.

    `streams` is the dimension of the streams, here and below; None: all share the draw.
    """
    rank, ranks = _SHARE.get()
    if ranks == 1 or streams is None:
        return draw(shape)
    size = shape[streams]
    return draw([*shape[:streams], size * ranks, *shape[streams + 1 :]]).narrow(streams, rank * size, size).contiguous()


_VALUES = 2**16


def rounded(rate: float) -> float:
    """Round a rate to the nearest one below 1 that 16-bit draws can have."""
    return min(round(rate * _VALUES), _VALUES - 1) / _VALUES


def keep_mask(shape: Sequence[int], rate: float, device: torch.device, streams: int | None = None) -> Tensor:
    """Draw where a mask is not 0, as bool."""
    first = int((rounded(rate) - 0.5) * _VALUES)

    def draw(shape: Sequence[int]) -> Tensor:
        count = math.prod(shape)
        bits = torch.empty(-(-count // 4), dtype=torch.int64, device=device).random_(-(2**63), None)
        return bits.view(torch.int16)[:count].view(*shape) >= first

    return drawn(draw, shape, streams)


def dropout_mask(shape: Sequence[int], rate: float, like: Tensor, streams: int | None) -> Tensor:
    """Draw a mask on the device of `like`, of its type but for bfloat16: that would round 1 / (1 − rate)."""
    return _ones_and_zeros(shape, rate, like, streams).to(wide_dtype(like.dtype)).div_(1 - rounded(rate))


def _ones_and_zeros(shape: Sequence[int], rate: float, like: Tensor, streams: int | None) -> Tensor:
    return keep_mask(shape, rate, like.device, streams) if like.is_cpu else mask_on_gpu(shape, rate, like, streams)


def mask_on_gpu(shape: Sequence[int], rate: float, like: Tensor, streams: int | None) -> Tensor:
    """Draw 0 and 1 by one call, for each of which a GPU waits, where a processor's way has three."""
    return drawn(lambda shape: like.new_empty(shape).bernoulli_(1 - rounded(rate)), shape, streams)


def dropout(x: Tensor, rate: float, training: bool, streams: int | None = 1) -> Tensor:
    """Drop numbers of x (T, B, D) independently, or those of weights, with `streams` None."""
    if not training or not rate:
        return x
    return x * _ones_and_zeros(x.shape, rate, x, streams) / (1 - rounded(rate))


def locked_dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """Drop units of x (T, B, D) for all T steps: one mask (B, D) for the segment."""
    if not training or not rate:
        return x
    return (x * dropout_mask(x.shape[1:], rate, x, streams=0)).to(x.dtype)
