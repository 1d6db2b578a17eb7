"""What `torchrun` starts: the trainings of a plan, in float64, each in a folder of its own.

`torchrun … -m tests.training.ranks PLAN`; the plan is JSON: a list of the arguments of `train_one`.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from spanlm.errors import SpanlmError
from spanlm.training.distributed import Ranks, found, joined
from spanlm.training.progress import StepEvent, Watcher
from spanlm.training.run import train
from tests.training.small import RUNS, make_corpus, one_thread, with_batching, with_training


class _Killer(Watcher):
    """Ends a process after a step of rank 0: rank 0 itself, or another by its id; once, so that a restart lives."""

    def __init__(self, folder: Path, step: int, number: int) -> None:
        self.mark, self.at, self.number = folder.with_suffix(".killed"), step, number

    def step(self, event: StepEvent) -> None:
        if event.position.step == self.at and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), self.number)


def train_one(name: str, folder: str, ranks: Ranks, batching: dict[str, Any], training: dict[str, Any]) -> None:
    """Train one of `RUNS`, or go on with it, in 4 streams; `kill`: [step, signal] that rank 0 sends to itself."""
    kill = training.pop("kill", None)
    config = with_training(with_batching(RUNS[name](), **{"batch_size": 4, **batching}), **training)
    config = replace(config, training=replace(config.training, precision="fp32"))
    watcher = Watcher() if kill is None else _Killer(Path(folder), *kill)
    train(config, make_corpus(), Path(folder), watcher, resume=True, ranks=ranks)


def main() -> int:
    one_thread()
    torch.set_default_dtype(torch.float64)
    ranks = found()
    try:
        with joined(ranks):
            for plan in json.loads(Path(sys.argv[1]).read_text()):
                train_one(ranks=ranks, **plan)
    except SpanlmError as error:
        print(f"spanlm: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
