"""What one rank of a training does: the trainings of a plan, in float64, each in a folder of its own.

`torchrun … -m tests.training.ranks PLAN`, or a task of `processes`; the plan is JSON: a list of the arguments of
`train_one`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from spanlm.errors import SpanlmError
from spanlm.training.distributed import Ranks, found, joined
from spanlm.training.progress import StepEvent, Watcher
from spanlm.training.run import train
from tests.training.small import RUNS, make_corpus, one_thread, with_batching, with_training

Json = dict[str, Any]


class _Killer(Watcher):
    """Sends a signal to a rank after a step, once: a training that is started again lives."""

    def __init__(self, folder: Path, step: int, rank: int, number: int) -> None:
        self.mark, self.at, self.rank, self.number = folder.with_suffix(".killed"), step, rank, number

    def step(self, event: StepEvent) -> None:
        if event.position.step == self.at and not self.mark.exists():
            self.mark.touch()
            os.kill(int(self.mark.with_suffix(f".{self.rank}").read_text()), self.number)


def train_one(name: str, folders: list[str], ranks: Ranks, batching: Json, training: Json, kill: list[int]) -> None:
    """Train one of `RUNS` in 4 streams, or go on with it; `kill`: step, rank and signal.

    Each rank has a folder, which should be the same.
    """
    folder = Path(folders[ranks.rank % len(folders)])
    config = with_training(with_batching(RUNS[name](), **{"batch_size": 4, **batching}), precision="fp32", **training)
    folder.with_suffix(f".{ranks.rank}").write_text(str(os.getpid()))
    train(config, make_corpus(), folder, _Killer(folder, *kill) if kill else None, resume=True, ranks=ranks)


def main(plan: str) -> int:
    """Do the trainings of a plan, as the rank that the environment says."""
    one_thread()
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


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
