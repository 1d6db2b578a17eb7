"""Training steps from CUDA graphs: one call of the driver where Python would start hundreds of small kernels.

A graph is the list of kernels of one step (forward pass, loss, gradients, clip and update) with the addresses that they
read and write. So all that differs between two steps of a shape stands in memory of its own: the segment, the state
and the learning rate are copied there before a replay. Random numbers go on from the device's generator, so that a
resumed run continues as without graphs. Each length of a segment needs its own graph; all share their scratch memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from spanlm.data.batching import Segment
from spanlm.errors import RunError
from spanlm.models.interfaces import LMState

MOST = 16
"""Graphs of a training. Drawn lengths are many more: the first that recur are recorded, the others run without."""

USUAL = 3
"""Steps of a shape that run before it is recorded: in the first ones libraries choose kernels and allocate memory."""

_READ = ("inputs", "targets", "mask")
"""Tensors of a segment that a step reads."""

Rate = float | Tensor
Shape = tuple[torch.Size, ...]


class Computed(NamedTuple):
    """What a step gives besides new weights, on its device.

    Attributes:
        numbers: NLL, tokens, norm of the gradient and the sums of the metrics, float64; read once, at the step's end.
        state: after the last step of the segment.
        names: of the metrics.
    """

    numbers: Tensor
    state: LMState
    names: tuple[str, ...]


Compute = Callable[[Segment, LMState, Rate], Computed]
"""Does a whole step on tensors of the device, without waiting for it."""


class RecordedSteps(ABC):
    """Steps of a training, each recorded when its shape has come often enough, and then replayed."""

    def __init__(self, compute: Compute, device: torch.device) -> None:
        self.compute: Compute = compute
        self.device: torch.device = device
        self.rate: Tensor = torch.zeros((), device=device)
        self.recorded: dict[Shape, tuple[Segment, LMState, Callable[[], Computed]]] = {}
        self._seen = Counter[Shape]()

    def __call__(self, segment: Segment, state: LMState, rate: float) -> Computed:
        """Do a step on a segment, which is still on the processor."""
        self.rate.fill_(rate)
        shape = segment.inputs.shape, *(x.shape for x in state.flat().values())
        if shape not in self.recorded:
            self._seen[shape] += 1
            if self._seen[shape] <= USUAL or len(self.recorded) >= MOST:
                return self.compute(segment.to(self.device), state, self.rate)
            parts = {name: getattr(segment, name).to(self.device, copy=True) for name in _READ}
            held = replace(segment, **parts), state.map(torch.clone)
            self.recorded[shape] = *held, self.record(*held)
        read, before, replay = self.recorded[shape]
        for name in _READ:
            getattr(read, name).copy_(getattr(segment, name), non_blocking=True)
        torch._foreach_copy_([*before.flat().values()], [*state.flat().values()])
        return replay()

    @abstractmethod
    def record(self, segment: Segment, state: LMState) -> Callable[[], Computed]:
        """Record `compute` on this memory without doing it; return how to replay it."""


class Graphs(RecordedSteps):
    """CUDA graphs. All steps run on one stream of their own, which graphs need."""

    def __init__(self, compute: Compute, device: torch.device) -> None:
        super().__init__(compute, device)
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, segment: Segment, state: LMState, rate: float) -> Computed:
        others = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(others)
        with torch.cuda.stream(self._stream):
            computed = super().__call__(segment, state, rate)
        others.wait_stream(self._stream)
        return computed

    def record(self, segment: Segment, state: LMState) -> Callable[[], Computed]:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                computed = self.compute(segment, state, self.rate)
        except RuntimeError as error:  # the allocator and the generator may be left as they were in the middle
            why = f"a step of this model cannot be recorded as a CUDA graph: {str(error).splitlines()[0]}"
            raise RunError(
                f"training.graph=auto: {why}. Go on from the last checkpoint with training.graph=off."
            ) from error

        def replay() -> Computed:
            graph.replay()
            return computed

        return replay
