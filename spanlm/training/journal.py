"""What a run tells: rows of metrics.jsonl, and events for whoever watches. Library code does not print."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.errors import RunError
from spanlm.evaluation.parts import log_of, log_of_training
from spanlm.evaluation.scoring import Tally, perplexity
from spanlm.store.process import StopRequest
from spanlm.store.run_folder import METRICS, MetricsLog
from spanlm.training.config import TrainingConfig
from spanlm.training.position import Position
from spanlm.training.setup import WarmStart


@dataclass(frozen=True)
class Phase:
    """Which part of a run an epoch belongs to.

    Attributes:
        stage: 0, or the number of the finetune stage.
        stages: how many finetune stages there are to be.
        averaged: whether averages of the weights are validated and saved.
    """

    stage: int = 0
    stages: int = 0
    averaged: bool = False

    def __str__(self) -> str:
        """Say it in words; empty where there is nothing to say."""
        stage = f"finetune {self.stage}/{self.stages}" if self.stage else ""
        return ", ".join(filter(None, [stage, "averaged" if self.averaged else ""]))


@dataclass(frozen=True)
class StepEvent:
    """After an optimiser step, which had `tokens`. Loss: mean NLL of the epoch so far, nats a token.

    Epochs are those of the stage.
    """

    epoch: int
    epochs: int
    segment: int
    segments: int
    loss: float
    rate: float
    tokens: int
    epoch_tokens: int
    tokens_per_second: float
    phase: Phase = Phase()


@dataclass(frozen=True)
class EpochEvent:
    """After validation. Losses: mean NLL, nats a token; train_loss is that of the moving weights.

    Epochs are counted through all stages. `train_parts` and `valid_parts` are `evaluation.parts.log_of`.
    """

    epoch: int
    train_loss: float
    valid_loss: float
    improved: bool
    tokens_per_second: float
    seconds: float
    phase: Phase = Phase()
    train_parts: Mapping[str, float] = field(default_factory=dict)
    valid_parts: Mapping[str, float] = field(default_factory=dict)


class Watcher:
    """Hears of a run's progress; does nothing."""

    pauses: Sequence[float] = (5, 10, 15)
    """Seconds to wait, each time, before what the disk refused for a moment is written again."""

    def start(
        self, config: RunConfig, corpus: Corpus, folder: Path, device: str, predicted: int, started: WarmStart | None
    ) -> None:
        """Before the first step of this process.

        Args:
            config: the whole run's.
            corpus: what it trains on.
            folder: where.
            device: where it is trained.
            predicted: how many training tokens an epoch predicts.
            started: what it begins with if that is another run.
        """

    def step(self, event: StepEvent) -> None:
        """After every optimiser step."""

    def epoch(self, event: EpochEvent) -> None:
        """After every validation."""

    def note(self, text: str) -> None:
        """Something the user should know."""


class Journal:
    """Keeps time and the metrics of one run, and tells its watcher.

    Args:
        training: of the run.
        watcher: told of progress.
        folder: the run's.
    """

    def __init__(self, training: TrainingConfig, watcher: Watcher, folder: Path) -> None:
        self._training, self._folder, self.watcher = training, folder, watcher
        self.request = StopRequest()
        self.begin_epoch()

    def lasting(self, write: Callable[[], Any]) -> Any:
        """Write something of the run; what the disk refuses for a moment is tried again, unless the run is to end."""
        for pause in self.watcher.pauses:
            try:
                return write()
            except RunError as error:
                if getattr(error.__cause__, "errno", None) not in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
                    raise
                self.watcher.note(f"{error} Trying again in {pause:g} s.")
                for _ in range(round(10 * pause)):
                    if self.request.signal_number is not None:
                        raise
                    time.sleep(0.1)
        return write()

    @contextmanager
    def open(self, position: Position) -> Iterator[None]:
        """Open metrics.jsonl, cut to what it was at the position, for the block."""
        self._metrics = MetricsLog(self._folder / METRICS, position.metrics_size, position.metrics_checksums)
        try:
            yield
        finally:
            self._metrics.close()

    def sync(self, position: Position) -> None:
        """Wait until the disk has all rows, and say in the position what they are."""
        position.metrics_size, position.metrics_checksums = self.lasting(self._metrics.sync), self._metrics.checksums

    def begin_epoch(self) -> None:
        """Start the clock: an epoch begins, or goes on in this process."""
        self._began, self._tokens, self._seconds = time.perf_counter(), 0, 0.0

    @property
    def speed(self) -> float:
        """Tokens a second of the epoch since this process began it; 0 before the first step."""
        return self._tokens / self._seconds if self._tokens else 0.0

    def phase(self, position: Position) -> Phase:
        """Which part of the run the steps so far, and a validation now, belong to."""
        return Phase(position.stage, self._training.finetune.stages, position.averaging_since is not None)

    def step(self, position: Position, segments: int, rate: float, norm: float, tokens: int) -> None:
        """Tell of a step that was done: its rate, gradient norm and tokens; now and then write a row."""
        training = self._training
        self._tokens += tokens
        self._seconds = time.perf_counter() - self._began
        self.watcher.step(
            StepEvent(
                position.stage_epochs + 1,
                training.finetune.epochs if position.stage else training.epochs,
                position.segment,
                segments,
                position.epoch_nll / position.epoch_tokens,
                rate,
                tokens,
                position.epoch_tokens,
                self.speed,
                self.phase(position),
            )
        )
        if position.step % training.log_every == 0:
            recent = (position.epoch_nll - position.logged_nll) / (position.epoch_tokens - position.logged_tokens)
            position.logged_nll, position.logged_tokens = position.epoch_nll, position.epoch_tokens
            fields: dict[str, Any] = {"epoch": position.epoch + 1, "rate": rate, "gradient_norm": norm}
            if parts := log_of_training(position.parts):
                fields["parts"] = parts  # of the epoch so far
            self._write("train", position, recent, **fields)

    def epoch(
        self, position: Position, found: Tally, improved: bool, train_loss: float, train_parts: Mapping[str, float]
    ) -> EpochEvent:
        """Write the row of an epoch that was just closed; return what its watcher is to hear once it is saved."""
        valid_parts = log_of(found.metrics, found.tokens)
        fields: dict[str, Any] = {"epoch": position.epoch, "train_loss": train_loss, "rate": position.rate}
        # a part of whose streams none is as long as a span has nothing to tell
        if parts := {name: told for name, told in (("train", train_parts), ("valid", valid_parts)) if told}:
            fields["parts"] = parts
        self._write("valid", position, found.loss, **fields)
        phase, seconds = self.phase(position), self._seconds
        losses = train_loss, found.loss
        return EpochEvent(position.epoch, *losses, improved, self.speed, seconds, phase, train_parts, valid_parts)

    def _write(self, event: str, position: Position, loss: float, **values: Any) -> None:
        row = {"event": event, "step": position.step, **values, "loss": loss, "perplexity": perplexity(loss)}
        if self._training.optimizer.kind == "nt_asgd":
            row |= {"stage": position.stage, "averaged": position.averaging_since is not None}
        clock = {"tokens_per_second": round(self.speed, 1), "time": datetime.now(UTC).isoformat()}
        self.lasting(lambda: self._metrics.write({**row, **clock}))
