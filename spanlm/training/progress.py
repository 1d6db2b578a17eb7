"""The progress of a run: its position, its rows of metrics.jsonl, and the events that its watcher gets.

Library code does not print; a `Watcher` can.
"""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.errors import Interrupted, RunError
from spanlm.scoring.perplexity import log_of, log_of_training
from spanlm.scoring.tally import Tally, perplexity
from spanlm.store.run_folder import METRICS, MetricsLog
from spanlm.store.signals import StopRequest
from spanlm.training.config import TrainingConfig
from spanlm.training.setup import WarmStart

Result = TypeVar("Result")


@dataclass
class Position:
    """Where a training run stands between two steps. NLLs are sums in nats."""

    rate: float  # the learning rate of this epoch
    epoch: int = 0  # finished epochs
    segment: int = 0  # segments of this epoch that are done
    step: int = 0  # optimiser steps in all
    tokens: int = 0  # predicted tokens of training in all
    epoch_nll: float = 0.0  # of this epoch so far
    epoch_tokens: int = 0  # predicted tokens of this epoch so far
    logged_nll: float = 0.0  # both at the last row of metrics.jsonl
    logged_tokens: int = 0
    best_loss: float = math.inf  # best validation loss so far, nats a token
    best_epoch: int = 0  # the epoch that had it, counted from 1; 0 before the first
    stale: int = 0  # epochs since then
    metrics_size: int = 0  # bytes of metrics.jsonl
    metrics_checksum: int = 0  # their CRC-32
    config: str = ""  # digest of the run's configuration
    data: str = ""  # digest of the corpus; a resumed run must find the same
    stage: int = 0  # 0, or the number of the finetune stage
    stage_began: int = 0  # finished epochs when the stage began
    # validation losses for the non-monotone test: of the epochs before averages, or of the finetune stage
    losses: list[float] = field(default_factory=list)
    averaging_since: int | None = None  # optimiser steps when averages began; None before
    late_rate: float = 0.0  # with averages and lagged rates, the rate of the next step
    best_weights: str = ""  # SHA-256 of the best weights, as `model.safetensors` has it
    parts: dict[str, float] = field(default_factory=dict)  # sums over this epoch so far of the head's metrics

    def to_json(self) -> dict[str, Any]:
        """Return plain values; JSON has no infinity."""
        return {**asdict(self), "best_loss": self.best_loss if self.best_epoch else None}

    @staticmethod
    def from_json(values: dict[str, Any]) -> Position:
        """Undo `to_json`.

        Raises:
            RunError: a field is missing or unknown, or no value of a run.
        """
        wrong = set(Position.__dataclass_fields__) ^ set(values)
        if wrong:
            raise RunError(
                "checkpoint",
                limit=f"position.json: field {sorted(wrong)[0]}: was written by another version of spanlm.",
            )
        for name, value in values.items():
            kind = "float | None" if name == "best_loss" else str(Position.__dataclass_fields__[name].type)
            _require_value(_is_of(kind, value), name, value)
        best = math.inf if values["best_loss"] is None else values["best_loss"]
        at = Position(**{**values, "best_loss": best})
        for name, possible in {
            "rate": at.rate >= 0,
            "late_rate": at.late_rate >= 0,
            "best_loss": math.isfinite(at.best_loss) == (at.best_epoch > 0),
            "averaging_since": (at.averaging_since or 0) <= at.step,
            "stage_began": at.stage_began <= at.epoch,
            "best_epoch": at.best_epoch <= at.epoch,
            "epoch_tokens": at.logged_tokens <= at.epoch_tokens and (at.epoch_tokens > 0 or at.segment == 0),
        }.items():
            _require_value(possible, name, values[name])
        return at

    @property
    def averaged_steps(self) -> int | None:
        return None if self.averaging_since is None else self.step - self.averaging_since

    @property
    def stage_epochs(self) -> int:
        """Finished epochs of this stage."""
        return self.epoch - self.stage_began

    @property
    def averaged(self) -> bool:
        return self.averaging_since is not None

    def stage_over(self, training: TrainingConfig) -> bool:
        if self.stage:
            finetune = training.finetune
            return self.stage_epochs >= finetune.epochs or stagnated(self.losses, finetune.nonmonotone)
        return self.epoch >= training.epochs or self._impatient(training)

    def _impatient(self, training: TrainingConfig) -> bool:
        """Whether patience is at its end, which does not count before averages begin."""
        waiting = training.optimizer.kind == "nt_asgd" and not self.averaged
        return training.patience is not None and self.stale >= training.patience and not waiting

    def run_over(self, training: TrainingConfig) -> bool:
        return self.stage >= training.finetune.stages and self.stage_over(training)

    def why_over(self, training: TrainingConfig) -> str:
        """Say of a run that is over what ended its last stage, and what would go on."""
        if self.stage:
            if stagnated(self.losses, training.finetune.nonmonotone):
                return "the last stage of finetuning ended because valid stagnated"
            more = ": more of them go on" if self.stage == 1 else ""
            return f"training.finetune.epochs={training.finetune.epochs}{more}"
        impatient = self._impatient(training)
        if impatient and self.epoch >= training.epochs:
            return f"training.epochs={training.epochs}, training.patience={training.patience}: more of both go on"
        if impatient:
            return f"training.patience={training.patience}: a larger one goes on"
        return f"training.epochs={training.epochs}: more of them go on"

    def advance(self, nll: float, tokens: int, metrics: Mapping[str, float]) -> None:
        self.step += 1
        self.segment += 1
        self.tokens += tokens
        self.epoch_nll += nll
        self.epoch_tokens += tokens
        self.parts = {name: self.parts.get(name, 0.0) + value for name, value in metrics.items()}

    def next_epoch(self, loss: float) -> bool:
        """Close the epoch with its validation loss; return whether it is the best so far."""
        self.epoch += 1
        self.segment = self.epoch_tokens = self.logged_tokens = 0
        self.epoch_nll = self.logged_nll = 0.0
        self.parts = {}
        improved = loss < self.best_loss
        self.stale += 1
        if improved:
            self.best_loss, self.best_epoch, self.stale = loss, self.epoch, 0
        return improved

    def averages_begin(self, training: TrainingConfig, loss: float) -> bool:
        """Note an epoch's validation loss; if averages are due, begin them with the next step and return True.

        They begin once, never end, and contain no weights from before. From then on patience counts anew.
        """
        optimizer = training.optimizer
        if optimizer.kind != "nt_asgd":
            return False
        if self.stage or not self.averaged:
            self.losses.append(loss)
        last = optimizer.switch_after
        due = stagnated(self.losses, optimizer.nonmonotone) if last is None else self.epoch >= last
        if self.averaged or not due:
            return False
        self.averaging_since, self.stale = self.step, 0
        return True

    def begin_stage(self, rate: float) -> None:
        """Begin the next finetune stage at its first step; it averages from there."""
        self.stage += 1
        self.stage_began, self.losses, self.rate = self.epoch, [], rate
        self.averaging_since, self.stale = self.step, 0


def _require_value(possible: bool, name: str, value: object) -> None:
    if not possible:
        raise RunError(
            "checkpoint",
            limit=f"position.json: {name}={str(value)[:40]}: is no value of a run",
            way_out="Use another folder.",
        )


def _is_of(kind: str, value: object) -> bool:
    if isinstance(value, list | dict):
        outer, _, inner = kind.removesuffix("]").partition("[")
        values = value.values() if isinstance(value, dict) else value
        return outer == type(value).__name__ and all(_is_of(inner.removeprefix("str, "), each) for each in values)
    if isinstance(value, int | float) and not isinstance(value, bool):
        whole = isinstance(value, int) and value >= 0
        return abs(value) < 2**63 and (kind.startswith("float") or (whole and kind.startswith("int")))
    return kind.endswith("| None") if value is None else kind == "str" and isinstance(value, str)


def stagnated(losses: Sequence[float], n: int) -> bool:
    """Return whether the last validation loss is above the best of those more than n epochs before it.

    This needs a loss before the last n + 1: it is never so before epoch n + 2. The test is that of the authors' code
    (Merity et al., 2018): the paper prints the last n, which its authors call a misprint.
    """
    older = losses[: max(0, len(losses) - 1 - n)]
    return bool(older) and losses[-1] > min(older)


@dataclass(frozen=True)
class StepEvent:
    """An optimiser step; every `log_every`-th is a row of metrics.jsonl."""

    position: Position  # after the step, a copy
    segments: int  # of the epoch
    rate: float
    gradient_norm: float  # before clipping
    tokens: int  # predicted ones of the step
    tokens_per_second: float  # of the epoch, in this process

    def row(self) -> dict[str, Any]:
        """Return the row: its loss is the mean since the row before, its parts are of the epoch so far."""
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
        """Return the row; parts of a text too short for a span are left out."""
        at, parts = self.position, {"train": self.train_parts, "valid": self.valid_parts}
        parts = {split: values for split, values in parts.items() if values}
        begin = {"event": "valid", "step": at.step, "tokens": at.tokens, "epoch": at.epoch}
        fields = {"train_loss": self.train_loss, "rate": at.rate, **({"parts": parts} if parts else {})}
        return {**begin, **fields, **_losses(self.valid_loss)}


def _losses(loss: float) -> dict[str, float]:
    return {"loss": loss, "perplexity": perplexity(loss)}


class Watcher:
    """Is notified of a run's progress; this one does nothing."""

    pauses: Sequence[float] = (5, 10, 15)
    """Seconds to wait before each new attempt to write what the disk refused."""

    def start(
        self, config: RunConfig, corpus: Corpus, folder: Path, device: str, predicted: int, started: WarmStart | None
    ) -> None:
        """Called before the first step of this process; `predicted`: training tokens of an epoch."""

    def step(self, event: StepEvent) -> None:
        """Called after every optimiser step."""

    def epoch(self, event: EpochEvent) -> None:
        """Called after every validation."""

    def note(self, text: str) -> None:
        """Get a message for the user."""


class Journal:
    """Keeps the time and the metrics of one run, and notifies its watcher; `writes`: false where another rank does."""

    def __init__(self, training: TrainingConfig, watcher: Watcher, folder: Path, writes: bool = True) -> None:
        self._training, self._folder, self.watcher, self._writes = training, folder, watcher, writes
        self.request = StopRequest()
        self.begin_epoch()

    def lasting(self, write: Callable[..., Result], *arguments: Any) -> Result | None:
        """Call a function that writes; retry while the disk refuses for a moment. None: another rank writes.

        Raises:
            RunError: it refused for longer. Interrupted: the run was to end meanwhile.
        """
        if not self._writes:
            return None
        for pause in self.watcher.pauses:
            try:
                return write(*arguments)
            except RunError as error:
                if getattr(error.__cause__, "errno", None) not in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
                    raise
                self.watcher.note(f"{error} Trying again in {pause:g} s.")
                for _ in range(round(10 * pause)):
                    if (number := self.request.signal_number) is not None:
                        raise Interrupted(f"{error} Stopped while it was tried again", number) from error
                    time.sleep(0.1)
        return write(*arguments)

    @contextmanager
    def open(self, position: Position) -> Iterator[None]:
        """Open metrics.jsonl, cut to its size at the position, for the block."""
        if not self._writes:
            yield
            return
        self._metrics = MetricsLog(self._folder / METRICS, position.metrics_size, position.metrics_checksum)
        try:
            yield
        finally:
            self._metrics.close()

    def sync(self, position: Position) -> None:
        """Wait until the disk has all rows, and note their size and checksum in the position."""
        if self._writes:
            self.lasting(self._metrics.sync)
            position.metrics_size, position.metrics_checksum = self._metrics.size, self._metrics.checksum

    def begin_epoch(self) -> None:
        """Start the clock: an epoch begins, or goes on in this process."""
        self._began, self._tokens, self._seconds = time.perf_counter(), 0, 0.0

    @property
    def _speed(self) -> float:
        return self._tokens / self._seconds if self._tokens else 0.0

    def step(self, position: Position, segments: int, rate: float, norm: float, tokens: int) -> None:
        """Notify of a step (see `StepEvent`), and write a row after every `log_every` of them."""
        self._tokens += tokens
        self._seconds = time.perf_counter() - self._began
        event = StepEvent(copy(position), segments, rate, norm, tokens, self._speed)
        self.watcher.step(event)
        if position.step % self._training.log_every == 0:
            position.logged_nll, position.logged_tokens = position.epoch_nll, position.epoch_tokens
            self._write(event)

    def epoch(
        self, position: Position, found: Tally, improved: bool, train_loss: float, train_parts: Mapping[str, float]
    ) -> EpochEvent:
        """Write the row of an epoch that was just closed; return the event for after its checkpoint."""
        parts, pace = (train_parts, log_of(found.metrics, found.tokens)), (self._speed, self._seconds)
        event = EpochEvent(copy(position), train_loss, found.loss, improved, *pace, *parts)
        self._write(event)
        return event

    def _write(self, event: StepEvent | EpochEvent) -> None:
        row, position = event.row(), event.position
        if self._training.optimizer.kind == "nt_asgd":
            row |= {"stage": position.stage, "averaged": position.averaged}
        clock = {"tokens_per_second": round(event.tokens_per_second, 1), "time": datetime.now(UTC).isoformat()}
        if self._writes:
            self.lasting(self._metrics.write, {**row, **clock})


def training_seconds(epochs: Sequence[Mapping[str, Any]], tokens: int) -> float:
    """Return the seconds of all training steps, without validations, from targets a second; by default `tokens`.

    An epoch whose steps ran in a process that was killed before it closed has no speed: the mean of the others counts,
    and without others 0 is returned.
    """
    ends = [0, *(row.get("tokens", tokens * number) for number, row in enumerate(epochs, 1))]
    targets = [after - before for before, after in pairwise(ends)]
    rates = [row["tokens_per_second"] for row in epochs]
    timed = [(count, rate) for count, rate in zip(targets, rates, strict=True) if rate]
    seconds = math.fsum(count / rate for count, rate in timed)
    return seconds * sum(targets) / sum(count for count, _ in timed) if timed else 0.0
