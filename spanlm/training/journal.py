"""What a run tells: rows of metrics.jsonl, and events for whoever watches."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spanlm.errors import RunError
from spanlm.evaluation.parts import log_of, log_of_training
from spanlm.evaluation.scoring import Tally, perplexity
from spanlm.store.run_folder import METRICS, MetricsLog
from spanlm.training.clock import Clock
from spanlm.training.config import TrainingConfig
from spanlm.training.events import EpochEvent, Phase, StepEvent, Watcher
from spanlm.training.position import Position
from spanlm.training.signals import StopRequest


class Journal:
    """Keeps time and the metrics of one run, and tells its watcher.

    Args:
        training: of the run.
        watcher: told of progress.
        folder: the run's.
    """

    def __init__(self, training: TrainingConfig, watcher: Watcher, folder: Path) -> None:
        self._training, self._folder, self.watcher = training, folder, watcher
        self._clock = Clock()
        self.request = StopRequest()

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

    def open(self, position: Position) -> None:
        """Open metrics.jsonl, cut to what it was at the position."""
        self._metrics = MetricsLog(self._folder / METRICS, position.metrics_size, position.metrics_checksums)

    def sync(self, position: Position) -> None:
        """Wait until the disk has all rows, and say in the position what they are."""
        position.metrics_size, position.metrics_checksums = self.lasting(self._metrics.sync), self._metrics.checksums

    def close(self) -> None:
        """Close metrics.jsonl."""
        self._metrics.close()

    def begin_epoch(self) -> None:
        """Start the clock."""
        self._clock.start()

    def phase(self, position: Position) -> Phase:
        """Which part of the run the steps so far, and a validation now, belong to."""
        return Phase(position.stage, self._training.finetune.stages, position.averaging_since is not None)

    def step(self, position: Position, segments: int, rate: float, norm: float, tokens: int) -> None:
        """Tell of a step that was done: its rate, gradient norm and tokens; now and then write a row."""
        training = self._training
        self._clock.add(tokens)
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
                self._clock.rate,
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
        return EpochEvent(
            position.epoch,
            train_loss,
            found.loss,
            improved,
            self._clock.rate,
            self._clock.seconds,
            self.phase(position),
            train_parts,
            valid_parts,
        )

    def _write(self, event: str, position: Position, loss: float, **values: Any) -> None:
        row = {"event": event, "step": position.step, **values, "loss": loss, "perplexity": perplexity(loss)}
        if self._training.optimizer.kind == "nt_asgd":
            phase = self.phase(position)
            row |= {"stage": phase.stage, "averaged": phase.averaged}
        clock = {"tokens_per_second": round(self._clock.rate, 1), "time": datetime.now(UTC).isoformat()}
        self.lasting(lambda: self._metrics.write({**row, **clock}))
