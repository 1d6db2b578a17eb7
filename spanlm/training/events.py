"""What a trainer tells whoever watches it. Library code does not print; the command line does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spanlm.training.run import Prepared


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

    def start(self, run: Prepared) -> None:
        """Before the first step of this process."""

    def step(self, event: StepEvent) -> None:
        """After every optimiser step."""

    def epoch(self, event: EpochEvent) -> None:
        """After every validation."""

    def note(self, text: str) -> None:
        """Something the user should know."""
