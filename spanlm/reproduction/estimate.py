"""How long a plan will take, from a few measured steps of every row."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from spanlm.data.corpora import Corpus
from spanlm.reproduction.tasks import Job
from spanlm.training.events import Watcher
from spanlm.training.trainer import Trainer

_WARM_UP, _STEPS = 2, 5
_EVALUATION_SHARE = 0.4
"""Of the time of a training step, for a token that is only scored: no gradients, no update."""


@dataclass(frozen=True)
class Estimate:
    """What a job would take from its start.

    Attributes:
        tokens_per_second: of training.
        epochs: at most; patience may end a run before.
        seconds: for these epochs, their validation, and the evaluation at the end.
    """

    tokens_per_second: float
    epochs: int
    seconds: float


def estimate(job: Job, corpus: Corpus) -> Estimate:
    """Time a few training steps of a job's model; nothing is written.

    Raises:
        InputError: the job cannot be trained as it is.
    """
    trainer = Trainer(job.config, corpus, Path(job.folder), Watcher())
    times, tokens = [], []
    for segment in islice(trainer.batcher.segments(), _WARM_UP + _STEPS):
        began = time.perf_counter()
        trainer.step(segment)
        times.append(time.perf_counter() - began)
        tokens.append(int(segment.mask.sum()))
    seconds = statistics.median(times[_WARM_UP:] or times)
    rate = statistics.fmean(tokens) / seconds
    epochs = job.config.training.epochs
    sizes = {split: len(part) for split, part in corpus.splits.items()}
    scored = sizes["valid"] * (epochs + 1) + sizes["test"]
    return Estimate(rate, epochs, trainer.segments * epochs * seconds + scored / rate * _EVALUATION_SHARE)
