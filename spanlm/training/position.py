"""Where a run stands: everything of a checkpoint that is not a tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spanlm.errors import RunError

_LATEST = {"metrics_checksums", "config"}
_ADDED = {*_LATEST, "stage", "stage_began", "losses", "averaging_since", "late_rate", "best_weights", "parts"}
"""Fields that checkpoints of 0.1.0, and of the first versions, do not have."""


@dataclass
class Position:
    """Where a training run stands between two steps.

    Attributes:
        rate: the learning rate of this epoch.
        epoch: epochs finished.
        segment: segments of this epoch done.
        step: optimiser steps in all.
        epoch_nll: summed NLL of this epoch so far, in nats.
        epoch_tokens: predicted tokens of this epoch so far.
        logged_nll: the same sum at the last line of metrics.jsonl.
        logged_tokens: the same count at the last line of metrics.jsonl.
        best_loss: best validation loss so far, nats a token; infinite before the first.
        best_epoch: which epoch had it, counted from 1; 0 before the first.
        stale: epochs since then.
        metrics_size: bytes of metrics.jsonl.
        metrics_checksums: of its lines, as `MetricsLog` has them.
        config: digest of the run's configuration.
        data: what identifies the corpus; a resumed run must find the same.
        stage: 0, or the number of the finetune stage.
        stage_began: epochs that were finished when the stage began.
        losses: validation losses that the non-monotone test looks at: of the epochs before averages, or of the finetune
            stage.
        averaging_since: steps that were done when averages began; None before.
        late_rate: with averages and lagged rates, that of the next step.
        best_weights: SHA-256 of the best weights, as `model.safetensors` has it.
        parts: sums over this epoch so far of the head's metrics, by name.
    """

    rate: float
    epoch: int = 0
    segment: int = 0
    step: int = 0
    epoch_nll: float = 0.0
    epoch_tokens: int = 0
    logged_nll: float = 0.0
    logged_tokens: int = 0
    best_loss: float = math.inf
    best_epoch: int = 0
    stale: int = 0
    metrics_size: int = 0
    metrics_checksums: list[int] = field(default_factory=list)
    config: str = ""
    data: str = ""
    stage: int = 0
    stage_began: int = 0
    losses: list[float] = field(default_factory=list)
    averaging_since: int | None = None
    late_rate: float = 0.0
    best_weights: str = ""
    parts: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; JSON has no infinity."""
        return {**asdict(self), "best_loss": self.best_loss if self.best_epoch else None}

    @staticmethod
    def from_json(values: dict[str, Any]) -> Position:
        """Undo `to_json`; a run that began before there were stages and averages is in none of them.

        Raises:
            RunError: a field is missing or unknown.
        """
        wrong = set(Position.__dataclass_fields__) ^ set(values)
        if wrong and wrong not in (_LATEST, _ADDED):
            raise RunError(
                f"checkpoint: position.json: field {sorted(wrong)[0]}: was written by another version of spanlm."
            )
        best = math.inf if values["best_loss"] is None else values["best_loss"]
        return Position(**{**values, "best_loss": best})

    @property
    def averaged_steps(self) -> int | None:
        """Steps since averages began; None before."""
        return None if self.averaging_since is None else self.step - self.averaging_since

    @property
    def stage_epochs(self) -> int:
        """Epochs finished in this stage."""
        return self.epoch - self.stage_began

    def advance(self, nll: float, tokens: int, parts: Mapping[str, float]) -> None:
        """Add a step."""
        self.step += 1
        self.segment += 1
        self.epoch_nll += nll
        self.epoch_tokens += tokens
        self.parts = {name: self.parts.get(name, 0.0) + value for name, value in parts.items()}

    def next_epoch(self, loss: float) -> bool:
        """Close the epoch with its validation loss; say whether it is the best so far."""
        self.epoch += 1
        self.segment = 0
        self.epoch_nll = self.logged_nll = 0.0
        self.epoch_tokens = self.logged_tokens = 0
        self.parts = {}
        improved = loss < self.best_loss
        if improved:
            self.best_loss, self.best_epoch, self.stale = loss, self.epoch, 0
        else:
            self.stale += 1
        return improved

    def begin_averages(self) -> None:
        """From the next step on there are averages, which get the chance to be better than all weights before."""
        self.averaging_since, self.stale = self.step, 0

    def begin_stage(self, rate: float) -> None:
        """Begin the next finetune stage, at its first step."""
        self.stage += 1
        self.stage_began, self.losses, self.rate = self.epoch, [], rate
        self.begin_averages()
