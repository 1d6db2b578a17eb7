"""What a trainer tells whoever watches it. Library code does not print; the command line does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spanlm.training.run import Prepared


@dataclass(frozen=True)
class StepEvent:
    """After an optimiser step. Loss: mean NLL of the epoch so far, nats a token."""

    epoch: int
    epochs: int
    segment: int
    segments: int
    loss: float
    rate: float
    tokens: int
    tokens_per_second: float


@dataclass(frozen=True)
class EpochEvent:
    """After validation. Losses: mean NLL, nats a token; train_loss is that of the moving weights."""

    epoch: int
    train_loss: float
    valid_loss: float
    improved: bool
    tokens_per_second: float
    seconds: float


class Watcher:
    """Hears of a run's progress; does nothing."""

    def start(self, run: Prepared) -> None:
        """Before the first step of this process."""

    def step(self, event: StepEvent) -> None:
        """After every optimiser step."""

    def epoch(self, event: EpochEvent) -> None:
        """After every validation."""

    def note(self, text: str) -> None:
        """Something the user should know."""
