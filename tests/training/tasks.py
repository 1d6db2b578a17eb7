"""What `processes` runs: a training run, a rank of one, or the command line; killed at a moment, or with a full disk.

`torchrun … -m tests.training.tasks PLAN` runs a rank.
"""

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import spanlm
from spanlm.cli.main import main
from spanlm.errors import SpanlmError
from spanlm.training.distributed import Ranks, found, joined
from spanlm.training.run import train
from tests.training.small import RUNS, Heard, make_corpus, with_batching, with_training

_WATCHED = (str(Path(spanlm.__file__).parent), shutil.__file__)
TORN_BYTES = 9


def train_run(
    name: str, folder: str, fields: dict[str, Any] | None = None, kill_at: int | None = None, survey: str | None = None
) -> int:
    """Train, or go on with, one of `RUNS`; kill this process at moment `kill_at`, or write down all moments."""
    torch.set_num_threads(1)
    config = with_training(RUNS[name](), **fields or {})
    moments: list[str] = []
    if kill_at is not None:
        sys.setprofile(_moments(lambda number, frame, event, argument: _kill(number == kill_at, event, argument)))
    if survey is not None:
        sys.setprofile(_moments(lambda number, frame, event, argument: moments.append(_label(frame, event, argument))))
    try:
        train(config, make_corpus(), Path(folder), resume=True)
    except SpanlmError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    finally:
        sys.setprofile(None)
    if survey is not None:
        Path(survey).write_text(json.dumps(moments))
    return 0


def train_one(
    name: str, folders: list[str], ranks: Ranks, batching: dict[str, Any], training: dict[str, Any], kill: list[int]
) -> None:
    """Train one of `RUNS` in 4 streams, or go on with it; each rank has a folder, which should be the same.

    `kill`: after a step a rank gets a signal, once: a training that is started again lives.
    """
    folder = Path(folders[ranks.rank % len(folders)])
    config = with_training(with_batching(RUNS[name](), **{"batch_size": 4, **batching}), precision="fp32", **training)
    folder.with_suffix(f".{ranks.rank}").write_text(str(os.getpid()))
    mark, (step, rank, number) = folder.with_suffix(".killed"), kill or (None, 0, 0)

    def end() -> None:
        if not mark.exists():
            mark.touch()
            os.kill(int(folder.with_suffix(f".{rank}").read_text()), number)

    train(config, make_corpus(), folder, Heard(step, end), resume=True, ranks=ranks)


def rank(plan: str) -> int:
    """Do the trainings of a plan in float64, as the rank that the environment says; by default the only one.

    The plan is a file of JSON: a list of the arguments of `train_one`.
    """
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    ranks = found()
    try:
        with joined(ranks):
            for one in json.loads(Path(plan).read_text()):
                train_one(ranks=ranks, **one)
    except SpanlmError as error:
        print(f"spanlm: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def command(arguments: list[str], largest_file: int | None = None) -> int:
    """Run the command line; no file may grow beyond `largest_file` bytes, as on a full disk."""
    torch.set_num_threads(1)
    if largest_file is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    return main(arguments)


def measured(arguments: list[str], report: str, seconds: int = 60) -> int:
    """Run the command line with 3 GB of address space to grow into; write down how it ended and what it took, in MB."""
    signal.alarm(seconds)
    held = _kilobytes("VmSize:")
    resource.setrlimit(resource.RLIMIT_AS, (held * 1024 + 3 * 2**30,) * 2)
    before = _kilobytes("VmRSS:")
    status = command(arguments)
    Path(report).write_text(json.dumps({"status": status, "grown": (_kilobytes("VmHWM:") - before) / 1024}))
    return status


def _kilobytes(name: str) -> int:
    words = Path("/proc/self/status").read_text().split()
    return int(words[words.index(name) + 1])


def hold(folder: str) -> int:
    from spanlm.store.run_folder import locked

    with locked(Path(folder)):
        (Path(folder) / "held").touch()
        signal.pause()
    return 0


Moment = Callable[[int, FrameType, str, Any], None]


def _moments(seen: Moment) -> Callable[[FrameType, str, Any], None]:
    """Number every entry to and return from a function of the library, and of any C function that it calls."""
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if frame.f_code.co_filename.startswith(_WATCHED):
            seen(count, frame, event, argument)
            count += 1

    return profile


def _label(frame: FrameType, event: str, argument: Any) -> str:
    called = f" {argument.__name__}" if event.startswith("c_") else ""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname} {event}{called}"


def _kill(now: bool, event: str, argument: Any) -> None:
    if not now:
        return
    if event == "c_return" and argument.__name__ == "flush":
        # as if the kernel had taken only part of what was written
        descriptor = argument.__self__.fileno()
        os.ftruncate(descriptor, max(os.fstat(descriptor).st_size - TORN_BYTES, 0))
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(rank(*sys.argv[1:]))
