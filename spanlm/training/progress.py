"""The progress of a run: events for its watcher, and rows of metrics.jsonl.

Library code does not print; a `Watcher` may.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.scoring.perplexity import log_of, log_of_training
from spanlm.scoring.tally import Tally, perplexity
from spanlm.store.run_folder import METRICS, MetricsLog
from spanlm.training.config import TrainingConfig
from spanlm.training.position import Position
from spanlm.training.setup import WarmStart


@dataclass(frozen=True)
class StepEvent:
    """An optimiser step; every `log_every`-th is a row of metrics.jsonl."""

    position: Position  # after the step, a copy
    segments: int  # of the epoch
    rate: float
    gradient_norm: float  # before clipping
    tokens: int  # predicted tokens of the step
    tokens_per_second: float  # of the epoch, in this process

    def row(self) -> dict[str, Any]:
        """Return the row: the loss is the mean since the last row, the parts are means over the epoch so far."""
        at = self.position
        loss = (at.epoch_nll - at.logged_nll) / (at.epoch_tokens - at.logged_tokens)
        parts = log_of_training(at.parts)
        fields = {"epoch": at.epoch + 1, "rate": self.rate, "gradient_norm": self.gradient_norm}
        return {"event": "train", "step": at.step, **fields, **({"parts": parts} if parts else {}), **_losses(loss)}


@dataclass(frozen=True)
class EpochEvent:
    """A validation, which is a row of metrics.jsonl. Losses: mean NLL, nats a token."""

    position: Position  # after the epoch, a copy
    train_loss: float  # of the weights as they moved through the epoch
    valid_loss: float  # of the weights after it, or of their averages
    improved: bool
    tokens_per_second: float  # of the epoch's training, in this process
    seconds: float
    train_parts: Mapping[str, float] = field(default_factory=dict)
    valid_parts: Mapping[str, float] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """Return the row; it lacks the parts if the text is too short for a span."""
        at, parts = self.position, {"train": self.train_parts, "valid": self.valid_parts}
        parts = {split: values for split, values in parts.items() if values}
        begin = {"event": "valid", "step": at.step, "tokens": at.tokens, "epoch": at.epoch}
        fields = {"train_loss": self.train_loss, "rate": at.rate, **({"parts": parts} if parts else {})}
        return {**begin, **fields, **_losses(self.valid_loss)}


def _losses(loss: float) -> dict[str, float]:
    return {"loss": loss, "perplexity": perplexity(loss)}


class Watcher:
    """Base class for progress callbacks; every method is a no-op."""

    def start(
        self, config: RunConfig, corpus: Corpus, folder: Path, device: str, predicted: int, started: WarmStart | None
    ) -> None:
        """Called before the first step of this process; `predicted`: training tokens of an epoch."""

    def step(self, event: StepEvent) -> None:
        """Called after every optimiser step."""

    def epoch(self, event: EpochEvent) -> None:
        """Called after every validation."""

    def note(self, text: str) -> None:
        """Called with a message for the user."""


class Journal:
    """Times one run, writes its metrics and notifies its watcher."""

    def __init__(self, training: TrainingConfig, watcher: Watcher) -> None:
        self._training, self._watcher = training, watcher
        self._metrics: MetricsLog | None = None
        self.begin_epoch()

    @contextmanager
    def open(self, folder: Path, position: Position) -> Iterator[None]:
        """Write rows to metrics.jsonl within the block; first truncate the file to its size at the position."""
        with closing(MetricsLog(folder / METRICS, position.metrics_size, position.metrics_checksum)) as self._metrics:
            yield

    def sync(self, position: Position) -> None:
        """Wait until all rows are on the disk, and record their size and checksum in the position."""
        if self._metrics is not None:
            self._metrics.sync()
            position.metrics_size, position.metrics_checksum = self._metrics.size, self._metrics.checksum

    def begin_epoch(self) -> None:
        """Start the clock at the start of an epoch, or of its rest in this process."""
        self._began, self._tokens, self._seconds = time.perf_counter(), 0, 0.0

    @property
    def _speed(self) -> float:
        return self._tokens / self._seconds if self._tokens else 0.0

    def step(self, position: Position, segments: int, rate: float, norm: float, tokens: int) -> None:
        """Notify the watcher of a step (see `StepEvent`); every `log_every` steps write a row."""
        self._tokens += tokens
        self._seconds = time.perf_counter() - self._began
        event = StepEvent(copy(position), segments, rate, norm, tokens, self._speed)
        self._watcher.step(event)
        if position.step % self._training.log_every == 0:
            position.logged_nll, position.logged_tokens = position.epoch_nll, position.epoch_tokens
            self._write(event)

    def epoch(
        self, position: Position, valid: Tally, improved: bool, train_loss: float, train_parts: Mapping[str, float]
    ) -> EpochEvent:
        """Write the row of a closed epoch; return its event, which the watcher gets after the checkpoint."""
        parts, pace = (train_parts, log_of(valid.metrics, valid.tokens)), (self._speed, self._seconds)
        event = EpochEvent(copy(position), train_loss, valid.loss, improved, *pace, *parts)
        self._write(event)
        return event

    def _write(self, event: StepEvent | EpochEvent) -> None:
        row, position = event.row(), event.position
        if self._training.optimizer.kind == "nt_asgd":
            row |= {"stage": position.stage, "averaged": position.averaged}
        clock = {"tokens_per_second": round(event.tokens_per_second, 1), "time": datetime.now(UTC).isoformat()}
        if self._metrics is not None:
            self._metrics.write({**row, **clock})


def training_seconds(epochs: Sequence[Mapping[str, Any]], tokens: int) -> float:
    """Return the seconds of all training steps, without validations, from the epochs' speeds.

    `tokens` is the number of targets of an epoch whose row lacks it. An epoch without a speed, since its process was
    killed, counts with the mean speed of the others; if all lack one, the result is 0.
    """
    ends = [0, *(row.get("tokens", tokens * number) for number, row in enumerate(epochs, 1))]
    targets = [after - before for before, after in pairwise(ends)]
    rates = [row["tokens_per_second"] for row in epochs]
    timed = [(count, rate) for count, rate in zip(targets, rates, strict=True) if rate]
    seconds = math.fsum(count / rate for count, rate in timed)
    return seconds * sum(targets) / sum(count for count, _ in timed) if timed else 0.0
