"""Which precision a hand-written gradient is computed in: the one its forward pass chose, not its caller's."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

Gradients = TypeVar("Gradients")


def without_autocast(backward: Callable[..., Gradients]) -> Callable[..., Gradients]:
    """Keep a backward pass out of the autocast that may surround the call to `backward()`."""

    @wraps(backward)
    def plain(ctx: Any, *grads: Tensor) -> Gradients:
        with torch.autocast(grads[0].device.type, enabled=False):
            return backward(ctx, *grads)

    return plain
