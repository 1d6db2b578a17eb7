"""Where a run stands, and all of it as a checkpoint: weights, optimiser, the streams' state, generators, position."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from spanlm.errors import InputError, RunError
from spanlm.models.interfaces import LMState
from spanlm.store.checkpoints import Checkpoint
from spanlm.store.run_folder import copy_weights
from spanlm.training.optimizers import NTASGD, expected_state, optimizer_state, restore_optimizer

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


def generator_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the random number generators that training draws from."""
    states = {"generator.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["generator.cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_generators(carried: Mapping[str, Tensor], device: torch.device) -> None:
    """Undo `generator_states`.

    Raises:
        InputError: they are of another kind of device, where other generators drew; names the field and the device.
    """
    before = "cuda" if "generator.cuda" in carried else "cpu"
    if device.type != before:
        raise InputError(
            f"training.device={device.type}: the run was trained on {before}, and its random numbers go on only there. "
            f"Use training.device={before}, or begin another run from its weights (training.start_from)."
        )
    torch.set_rng_state(carried["generator.cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(carried["generator.cuda"], device)


def as_checkpoint(
    model: nn.Module, optimizer: torch.optim.Optimizer, state: LMState, position: Position, device: torch.device
) -> Checkpoint:
    """Return all that a run needs to go on exactly from between two steps."""
    if isinstance(optimizer, NTASGD):
        position.late_rate = optimizer.late_rate
    return Checkpoint(
        weights=dict(model.named_parameters()),
        optimizer=optimizer_state(optimizer, model),
        carried={**state.flat(), **generator_states(device)},
        position=position.to_json(),
    )


def restore_checkpoint(
    checkpoint: Checkpoint,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    initial: LMState,
    position: Position,
    device: torch.device,
) -> LMState:
    """Undo `as_checkpoint` in a model and an optimiser just made; return the streams' state.

    Args:
        checkpoint: as it was read.
        model: gets its weights.
        optimizer: of the model.
        initial: what the streams' state is at first, which says what its parts are.
        position: that of the checkpoint.
        device: of the model.

    Raises:
        InputError: the run was trained on another kind of device, or weights do not fit.
        RunError: something is missing or unknown.
    """
    copy_weights(checkpoint.weights, model, "checkpoint")
    expected = expected_state(optimizer, model, position.step, position.averaged_steps)
    _require_names(checkpoint.optimizer, expected, "optimizer.safetensors")
    carried = checkpoint.carried
    _require_names(carried.keys() - {"generator.cuda"}, {*initial.flat(), "generator.cpu"}, "carried.safetensors")
    restore_generators(carried, device)
    restore_optimizer(optimizer, model, checkpoint.optimizer)
    if isinstance(optimizer, NTASGD):
        optimizer.averaged_steps, optimizer.late_rate = position.averaged_steps, position.late_rate
    return LMState.from_flat({name: x.to(device) for name, x in carried.items() if not name.startswith("generator.")})


def _require_names(found: Collection[str], expected: Collection[str], what: str) -> None:
    """Refuse a checkpoint that lacks something, or holds something unknown; RunError names the first difference."""
    wrong = sorted(set(found) ^ set(expected))
    if wrong:
        state = "is missing" if wrong[0] in expected else "is unknown"
        raise RunError(f"checkpoint: {what}: {wrong[0]} {state}; it is not one of this run. Use another --out.")
