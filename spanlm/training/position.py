"""The position of a training between two steps, and the rules that end epochs, stages and the run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from spanlm.errors import RunError
from spanlm.training.config import TrainingConfig


@dataclass
class Position:
    """The position of a training run between two steps. NLLs are sums in nats."""

    rate: float  # the learning rate of this epoch
    epoch: int = 0  # finished epochs
    segment: int = 0  # segments of this epoch that are done
    step: int = 0  # optimiser steps in all
    tokens: int = 0  # predicted tokens of training in all
    epoch_nll: float = 0.0  # of this epoch so far
    epoch_tokens: int = 0  # predicted tokens of this epoch so far
    logged_nll: float = 0.0  # `epoch_nll` and `epoch_tokens` at the last row of metrics.jsonl
    logged_tokens: int = 0
    best_loss: float = math.inf  # best validation loss so far, nats a token
    best_epoch: int = 0  # the epoch with the best loss, from 1; 0 before the first
    stale: int = 0  # epochs since the best, or since averages began
    metrics_size: int = 0  # bytes of metrics.jsonl
    metrics_checksum: int = 0  # CRC-32 of these bytes
    config: str = ""  # digest of the run's configuration
    data: str = ""  # digest of the corpus; a resumed run must find the same
    stage: int = 0  # 0, or the number of the finetune stage
    stage_began: int = 0  # finished epochs when the stage began
    # validation losses for the non-monotone test, of the epochs before averages, or of the finetune stage
    losses: list[float] = field(default_factory=list)
    averaging_since: int | None = None  # optimiser steps when averages began; None before
    late_rate: float = 0.0  # with averages and lagged rates, the rate of the next step
    best_weights: str = ""  # SHA-256 of the best weights, as `model.safetensors` has it
    parts: dict[str, float] = field(default_factory=dict)  # sums of the head's metrics over this epoch so far

    def to_json(self) -> dict[str, Any]:
        """Return plain values; JSON has no infinity."""
        return {**asdict(self), "best_loss": self.best_loss if self.best_epoch else None}

    @staticmethod
    def from_json(values: dict[str, Any]) -> Position:
        """Undo `to_json`.

        Raises:
            RunError: a field is missing or unknown, or has an impossible value.
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
        """Whether patience has run out; with nt_asgd it counts only after averages begin."""
        waiting = training.optimizer.kind == "nt_asgd" and not self.averaged
        return training.patience is not None and self.stale >= training.patience and not waiting

    def run_over(self, training: TrainingConfig) -> bool:
        return self.stage >= training.finetune.stages and self.stage_over(training)

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
        """Record an epoch's validation loss; if averages are due, begin them with the next step and return True.

        Averages begin once, never end, and contain no earlier weights. Patience restarts when they begin.
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
        """Begin the next finetune stage, which averages from its first step on."""
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
        return outer == type(value).__name__ and all(_is_of(inner.removeprefix("str, "), item) for item in values)
    if isinstance(value, int | float) and not isinstance(value, bool):
        whole = isinstance(value, int) and value >= 0
        return abs(value) < 2**63 and (kind.startswith("float") or (whole and kind.startswith("int")))
    return kind.endswith("| None") if value is None else kind == "str" and isinstance(value, str)


def stagnated(losses: Sequence[float], n: int) -> bool:
    """Return whether the last validation loss is above the best loss of more than n epochs ago.

    The first epoch that can stagnate is n + 2. This is the test of the authors' code (Merity et al., 2018); the paper
    prints the last n epochs, which its authors call a misprint.
    """
    older = losses[: max(0, len(losses) - 1 - n)]
    return bool(older) and losses[-1] > min(older)
