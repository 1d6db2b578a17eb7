"""Where a run stands: everything of a checkpoint that is not a tensor."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from spanlm.errors import RunError


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
        data: what identifies the corpus; a resumed run must find the same.
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
    data: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values; JSON has no infinity."""
        return {**asdict(self), "best_loss": self.best_loss if self.best_epoch else None}

    @staticmethod
    def from_json(values: dict[str, Any]) -> Position:
        """Undo `to_json`.

        Raises:
            RunError: a field is missing or unknown.
        """
        names = set(Position.__dataclass_fields__)
        if names != set(values):
            wrong = sorted(names ^ set(values))[0]
            raise RunError(f"checkpoint: position.json: field {wrong}: was written by another version of spanlm.")
        best = math.inf if values["best_loss"] is None else values["best_loss"]
        return Position(**{**values, "best_loss": best})

    def advance(self, nll: float, tokens: int) -> None:
        """Add a step."""
        self.step += 1
        self.segment += 1
        self.epoch_nll += nll
        self.epoch_tokens += tokens

    def next_epoch(self, loss: float) -> bool:
        """Close the epoch with its validation loss; say whether it is the best so far."""
        self.epoch += 1
        self.segment = 0
        self.epoch_nll = self.logged_nll = 0.0
        self.epoch_tokens = self.logged_tokens = 0
        improved = loss < self.best_loss
        if improved:
            self.best_loss, self.best_epoch, self.stale = loss, self.epoch, 0
        else:
            self.stale += 1
        return improved

    def is_last(self, epochs: int, patience: int | None) -> bool:
        """Whether a run ends here: all epochs done, or no improvement for `patience` of them."""
        return self.epoch >= epochs or (patience is not None and self.stale >= patience)
