"""One training in several processes: the ranks that `torchrun` starts.

Each rank reads its share of the streams in every pass, and an all-reduce adds up the gradients. Loss, penalties and
counts are those of the whole batch, so the number of ranks changes only the order of sums. All ranks have the same
weights, optimiser and random numbers, and do the same steps.

Each rank draws the dropout masks of all streams and keeps those of its streams (`models.ops.dropout.drawn`), so the
draws equal those of one process. Only rank 0 writes and prints. The others wait while it prepares the run, then read
the folder, which every rank must see. A checkpoint has the state of all streams: any number of ranks can resume.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from spanlm.config import RunConfig
from spanlm.data.batching import Segment
from spanlm.errors import InputError, RunError, SpanlmError, named, require
from spanlm.models.interfaces import LMState
from spanlm.scoring.tally import Tally
from spanlm.store.signals import StopRequest
from spanlm.training.config import BatchingConfig

Value = TypeVar("Value")

_WAIT = timedelta(days=1)
"""Timeout of messages: rank 0 may read a large text, or wait for disk space. A dead rank is noticed at once."""

_NUMBERS, _ADDRESS = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"), ("MASTER_ADDR", "MASTER_PORT")


class RankError(RunError):
    """A failure of one rank, which prints it; other errors are the same on every rank."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a training, seen from one of them; by default there is only one."""

    rank: int = 0
    count: int = 1
    agreed: StopRequest = field(default_factory=StopRequest)
    """With several ranks: a signal that any of them got before their last all-reduce."""

    def refuse_unfit(self, config: RunConfig) -> None:
        if self.count == 1:
            return
        batching = config.training.batching
        name = "batch_size" if batching.group_size is None else "group_size"
        size, limit = getattr(batching, name), f"a multiple of the {self.count} processes that torchrun started"
        require(size % self.count == 0, f"training.batching.{name}", size, limit)

    def refuse_shared_gpu(self, device: torch.device) -> None:
        """Refuse two ranks on one GPU; `joined` assigns one to each rank."""
        if self.count == 1 or device.type != "cuda":
            return
        processes, gpus = int(os.environ["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
        if processes > gpus or device.index is not None:
            raise InputError(
                "training.device",
                device,
                f"{processes} processes here, {gpus} GPU{'s' * (gpus > 1)}, and no two of them may use the same",
                "Give torchrun a smaller --nproc-per-node, and take training.device=cuda, or cpu.",
            )

    def _shares(self, batching: BatchingConfig) -> Tensor:
        """Return stream numbers, (groups, ranks, streams of a rank in a group)."""
        size = min(batching.group_size or batching.batch_size, batching.batch_size)
        return torch.arange(batching.batch_size).view(-1, self.count, size // self.count)

    def streams(self, batching: BatchingConfig) -> Tensor:
        """Return the streams of the batch that this rank reads: a share of each group."""
        return self._shares(batching)[:, self.rank].flatten()

    def share(self, segments: Iterable[Segment]) -> Iterator[Segment]:
        """Yield this rank's streams of each segment of an evaluation.

        A rank without any reads one stream masked, so that all ranks have the same metrics and states.
        """
        for segment in segments:
            first, last = (len(segment.reset) * n // self.count for n in (self.rank, self.rank + 1))
            share = taken(segment, slice(first, max(last, first + 1)))
            yield share if last > first else replace(share, mask=torch.zeros_like(share.mask))

    def total(self, model: nn.Module, sums: Sequence[Tensor], request: StopRequest) -> list[Tensor]:
        """Add up all ranks' gradients in place, and return the totals of a step's `sums`.

        Float32 gradients and float64 sums are two messages; the second also says whether any rank must stop.
        """
        if self.count == 1:
            return list(sums)
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        sizes = [x.numel() for x in sums]
        requested = flat.new_tensor([request.signal_number is not None], dtype=torch.float64)
        numbers = torch.cat([*(x.double().flatten() for x in sums), requested])
        self._add(flat, numbers)
        for gradient, whole in zip(gradients, flat.split_with_sizes([x.numel() for x in gradients]), strict=True):
            gradient.copy_(whole.view_as(gradient))
        *totals, stop = numbers.split_with_sizes([*sizes, 1])
        self._agree(bool(stop.item()), request)
        return [whole.view_as(x) for whole, x in zip(totals, sums, strict=True)]

    def tally(self, part: Tally, request: StopRequest) -> Tally:
        """Add up all ranks' sums over a text; if a rank got a signal, return `part`, since the text may be unread."""
        if self.count == 1:
            return part
        tallies, requests = zip(*self._of_all((part, request.signal_number is not None)), strict=True)
        self._agree(any(requests), request)
        if any(requests):
            return part
        numbers = [astuple(tally)[:-1] for tally in tallies]
        sums: list[Any] = [sum(column) for column in zip(*numbers, strict=True)]
        return replace(
            Tally(*sums), metrics={name: sum(tally.metrics[name] for tally in tallies) for name in part.metrics}
        )

    def stop(self, request: StopRequest) -> StopRequest:
        """Return the stop request for a loop of steps, so that all ranks stop after the same step."""
        return request if self.count == 1 else self.agreed

    def _agree(self, stop: bool, request: StopRequest) -> None:
        if stop:
            self.agreed.signal_number = request.signal_number or signal.SIGTERM

    def _add(self, *tensors: Tensor) -> None:
        with self._together():
            for work in [dist.all_reduce(x, async_op=True) for x in tensors]:
                work.wait()

    @contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # the libraries have no type for a lost process
            raise RankError(
                f"rank {self.rank}: lost another process of this training, which has ended or cannot be reached. "
                f"Start again with {named('resume=True')}; torchrun --max-restarts does so by itself."
            ) from error

    def _of_all(self, value: Value) -> list[Value]:
        """Return all ranks' values in order; every rank waits for the last one."""
        values: list[Any] = [None] * self.count
        with self._together():
            dist.all_gather_object(values, value)
        return values

    def from_first(self, text: str = "here") -> str:
        """Return rank 0's text, for which the others wait."""
        return text if self.count == 1 else self._of_all(text)[0]

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """Run the block on rank 0 before the other ranks, which end silently if rank 0 fails."""
        if self.count == 1:
            yield
            return
        if self.rank and (status := int(self.from_first())):
            raise SystemExit(status)
        status = 1
        try:
            yield
            status = 0
        except SpanlmError as error:
            if self.rank:
                raise RankError(f"rank {self.rank}: {error}") from error
            status = error.exit_status
            raise
        finally:
            if self.rank == 0:
                self.from_first(str(status))

    def require_equal(self, state: str) -> None:
        """Refuse to train unless `state` (step, weights, device, precision) is the same on every rank."""
        first = self.from_first(state)
        if state != first:
            raise RankError(
                f"rank {self.rank}: stands at {state}, and rank 0 at {first}. Every process must see the same folder "
                "of the run and the same text, run the same version, and compute on the same kind of device."
            )

    def gathered(self, state: LMState, batching: BatchingConfig) -> LMState:
        """Return the state of all streams, in order."""
        if self.count == 1:
            return state
        parts = self._of_all({name: x.cpu() for name, x in state.flat().items()})
        order = self._shares(batching).transpose(0, 1).flatten().argsort()
        return LMState.beside([*map(LMState.from_flat, parts)]).select(order)


ALONE = Ranks()


def taken(segment: Segment, streams: slice) -> Segment:
    cut = {name: getattr(segment, name)[:, streams].contiguous() for name in ("inputs", "targets", "mask", "place")}
    return replace(segment, reset=segment.reset[streams], **cut)


def found() -> Ranks:
    """Return this process's rank among those that torchrun started.

    Raises:
        InputError: `WORLD_SIZE` is not a number, or above 1 without torchrun's other variables.
    """
    world, variables = os.environ.get("WORLD_SIZE") or "1", os.environ
    if world == "1":
        return ALONE
    wrong = [name for name in _NUMBERS if not variables.get(name, "").isdecimal()]
    wrong += [name for name in _ADDRESS if not variables.get(name)]
    limit = f"1 without {', '.join(wrong)}: each process would train the same model. Start several with torchrun"
    require(world.isdecimal() and not wrong, "WORLD_SIZE", world, limit if wrong else "a whole number")
    return Ranks(int(variables["RANK"]), int(world))


@contextmanager
def joined(ranks: Ranks) -> Iterator[None]:
    """Connect the ranks within the block; an error that all ranks share is raised only on rank 0."""
    if ranks.count == 1:
        yield
        return
    gpus = torch.cuda.device_count()
    if gpus:  # first, so that each rank allocates memory only on its own GPU
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % gpus)
    with ranks._together():
        store, *_ = next(rendezvous("env://", ranks.rank, ranks.count, timeout=_WAIT))
        # after a restart, torchrun's store may still have the addresses of the old processes
        store = PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
        backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
        dist.init_process_group(backend, store=store, timeout=_WAIT, rank=ranks.rank, world_size=ranks.count)
    try:
        yield
    except SpanlmError as error:
        if ranks.rank and not isinstance(error, RankError):
            raise SystemExit(error.exit_status) from None
        raise
    finally:
        dist.destroy_process_group()
