"""How long a plan will take, from a few measured steps of every row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from spanlm.benchmark.clock import timed
from spanlm.benchmark.recipe import scoring_seconds, spread, step_speed, warm_up
from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.evaluation.dynamic.evaluate import adapted_tally
from spanlm.evaluation.dynamic.statistics import STREAMS, gather_statistics
from spanlm.evaluation.dynamic.update import DynamicConfig
from spanlm.evaluation.protocol import STANDARD
from spanlm.reproduction.scale import DynamicSearch
from spanlm.reproduction.tasks import Job
from spanlm.runs.texts import Texts
from spanlm.store.machine import pick_device
from spanlm.training.events import Watcher
from spanlm.training.setup import build_model
from spanlm.training.trainer import Trainer

_STEPS = 5
_LESSONS = 40


@dataclass(frozen=True)
class Estimate:
    """What a job would take from its start.

    Attributes:
        tokens_per_second: of training.
        epochs: at most, those of finetuning included; patience may end a run before.
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
    warm_up(trainer)
    rate = step_speed(trainer, spread(trainer.batcher, _STEPS)).tokens_per_second
    finetune = job.config.training.finetune
    epochs = job.config.training.epochs + finetune.stages * finetune.epochs
    texts = Texts(corpus.vocabulary, job.config, Path(job.folder))
    model, final = trainer.model, texts.protocol(corpus, "valid").batcher(corpus, "valid")
    valid, test = (len(corpus.splits[split]) for split in ("valid", "test"))
    validations = epochs * valid * scoring_seconds(model, trainer.valid, job.config.training.precision)
    evaluations = (valid + test) * scoring_seconds(model, final)
    return Estimate(rate, epochs, trainer.batcher.targets * epochs / rate + validations + evaluations)


def dynamic_seconds(
    config: RunConfig, corpus: Corpus, search: DynamicSearch, published: DynamicConfig | None = None
) -> float:
    """Return how long dynamic evaluation with its search takes, from a few lessons of an untrained model.

    Valid is read once for the search and, as test, once for its result with the trained weights throughout, and as
    often with weights that adapt as there are finalists, of which one is its result; a search that must read on after
    them takes longer.
    """
    model = build_model(config, len(corpus.vocabulary)).to(pick_device(config.training.device, "training.device"))
    spent, statistics = timed(
        lambda: gather_statistics(model, corpus, segments=_STEPS),
        model.device,
    )
    gathering = spent / _STEPS
    still = DynamicConfig(rate=0.0)
    batcher = STANDARD.batcher(corpus, "valid", length=still.length)
    unk_id, most = corpus.vocabulary.unk_id, _LESSONS * still.length
    spent, read = timed(lambda: adapted_tally(model, batcher, statistics, still, unk_id, most=most), model.device)
    token = spent / read.tokens
    valid, test = (len(corpus.splits[split]) for split in ("valid", "test"))
    points, first = len(search.grid(published)), min(search.first_tokens, valid)
    tuning = points * first + (max(min(search.finalists, points), 1) * valid if first < valid else 0)
    segments = math.ceil(len(corpus.splits["train"]) / (STREAMS * still.length))
    gathered = gathering * min(segments, search.statistics or segments)
    plain = scoring_seconds(model, STANDARD.batcher(corpus, "valid")) * (2 * valid + test)
    return gathered + token * (tuning + test) + plain
