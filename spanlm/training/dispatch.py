"""What a training step asks of a GPU: the operations that it starts, and how often it waits for a result.

A step of small kernels takes as long as Python needs to start them, so their number is its speed. It is counted without
a GPU: on torch's device `meta` tensors have shapes and no values, and a model takes the ways that it takes on a GPU.

*Operations* are torch's dispatched calls, forward, backward and update. Views start no kernel and are not counted;
torch's LSTM and RNN are one call of cuDNN each way; a call may start several kernels. All is in float32: `meta` knows
no autocast, whose casts are further operations. *Waits* are reads of a value: a number for Python (`item`, `tolist`), a
copy to the processor, a mask's places (`nonzero`). Python then waits until the GPU has done all that was started. A
value that is read is 1 here, and a mask is true everywhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from spanlm.data.batching import Segment
from spanlm.models.counting import shapes_alone
from spanlm.training.optimizers import build_optimizer
from spanlm.training.setup import hold_all_but_new
from spanlm.training.trainer import Trainer

CUDNN = ("lstm", "rnn_tanh")
"""Torch's recurrent kernels."""


@dataclass
class DispatchedStep:
    """What a training step asks of a GPU: operations by name, and waits."""

    operations: Counter[str] = field(default_factory=Counter)
    waits: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the number of operations and waits, and the operations by name, the most frequent first."""
        return {"operations": self.operations.total(), "waits": self.waits, "by_name": self.operations.most_common()}


def dispatched(trainer: Trainer, segment: Segment) -> DispatchedStep:
    """Count the second step of a trainer on a GPU, the first of which creates the optimiser's state.

    The trainer has no weights afterwards.
    """
    trainer.device, trainer.graphs = torch.device("meta"), None
    trainer.model = shapes_alone(trainer.config.model, len(trainer.corpus.vocabulary)).train()
    if trainer.config.training.learns == "memory":
        hold_all_but_new(trainer.model)
    trainer.optimizer = build_optimizer(trainer.config.training.optimizer, trainer.model)
    trainer.state = trainer.initial = trainer.model.init_state(len(trainer.streams))
    with counted():
        trainer.step(segment)
    with counted() as step:
        trainer.step(segment)
    return step


@contextmanager
def counted() -> Iterator[DispatchedStep]:
    """Count what is called inside on tensors of the device `meta`."""
    step = DispatchedStep()
    with _Called(step), _Dispatched(step):
        yield step


class _Called(TorchFunctionMode):
    """Counts what is not dispatched as a whole: recurrent kernels and `tolist`."""

    def __init__(self, step: DispatchedStep) -> None:
        super().__init__()
        self.counted = step

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is Tensor.tolist and args[0].is_meta:
            self.counted.waits += 1
            return np.ones(args[0].shape).tolist()
        if getattr(func, "__name__", "") in CUDNN and args[0].is_meta:
            x, states, weights, *_ = args
            states = states if isinstance(states, tuple) else (states,)
            return _recurrent(self.counted, len(states), x, *states, *weights)
        return func(*args, **(kwargs or {}))


class _Recurrent(torch.autograd.Function):
    """The shapes of a recurrent kernel's results and gradients: x (T, B, E), states (layers, B, H) and weights."""

    @staticmethod
    def forward(ctx: Any, step: DispatchedStep, states: int, x: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.step = step
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, *inputs)
        step.operations["cudnn_rnn"] += 1
        return x.new_empty(*x.shape[:2], inputs[0].shape[-1]), *map(torch.empty_like, inputs[:states])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ctx.step.operations["cudnn_rnn_backward"] += 1
        return None, None, *map(torch.empty_like, ctx.saved_tensors)


_recurrent: Callable[..., Any] = _Recurrent.apply  # the library leaves it untyped


class _Dispatched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what is dispatched, and gives values to those who read them."""

    def __init__(self, step: DispatchedStep) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counted = step

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = str(func), kwargs or {}
        on_meta = any(getattr(x, "device", x) == torch.device("meta") for x in tree_leaves((args, kwargs)))
        if on_meta and name.startswith("aten.") and not func.is_view and not re.search("empty|detach", name):
            self.counted.operations[name.removeprefix("aten.")] += 1
        if isinstance(x := args[0] if args else None, Tensor) and x.is_meta:
            if name == "aten._local_scalar_dense.default":
                self.counted.waits += 1
                return np.ones((), dtype=str(x.dtype).removeprefix("torch.")).item()
            if name == "aten.nonzero.default":
                self.counted.waits += 1
                return x.new_empty((x.numel(), x.dim()), dtype=torch.int64)
            if torch.device(kwargs.get("device") or x.device).type == "cpu":
                self.counted.waits += 1
                return torch.ones_like(x, **kwargs)
        if "_fused" in name:  # torch has no shapes of fused updates, which are in place
            return None
        return func(*args, **kwargs)
