"""Optimisers, their state by parameter name, and the learning-rate schedule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from spanlm.training.config import OptimizerConfig, ScheduleConfig
from spanlm.training.nt_asgd import NTASGD
from spanlm.training.position import Position


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Make the optimiser of the model's trainable parameters; one fused pass over them a step."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adam": torch.optim.Adam,
        "adagrad": torch.optim.Adagrad,
        "sgd": torch.optim.SGD,
        "nt_asgd": partial(NTASGD, lagged_rates=config.lagged_rates),
    }
    return kinds[config.kind](parameters, lr=config.lr, weight_decay=config.weight_decay, fused=True)


def optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Name every tensor of the optimiser's state `parameter/entry`."""
    return {
        f"{name}/{entry}": value
        for name, parameter in model.named_parameters()
        for entry, value in optimizer.state.get(parameter, {}).items()
        if value is not None
    }


_ENTRIES = {"adam": ("step", "exp_avg", "exp_avg_sq"), "adagrad": ("step", "sum"), "sgd": (), "nt_asgd": ("average",)}


def expected_state(config: OptimizerConfig, model: nn.Module, position: Position) -> set[str]:
    """Return the names that `optimizer_state` has at this position."""
    # Adagrad makes its state at once, the others with their first step or average
    begun = {"adagrad": True, "nt_asgd": bool(position.averaged_steps)}.get(config.kind, position.step > 0)
    if not begun:
        return set()
    trainable = (name for name, parameter in model.named_parameters() if parameter.requires_grad)
    return {f"{name}/{entry}" for name in trainable for entry in _ENTRIES[config.kind]}


def restore_optimizer(
    optimizer: torch.optim.Optimizer, model: nn.Module, state: dict[str, Tensor], position: Position
) -> None:
    """Undo `optimizer_state`, on the parameters' device."""
    if isinstance(optimizer, NTASGD):
        optimizer.averaged_steps, optimizer.late_rate = position.averaged_steps, position.late_rate
    parameters = dict(model.named_parameters())
    for key, value in state.items():
        name, entry = key.rsplit("/", 1)
        parameter = parameters[name]
        optimizer.state[parameter][entry] = value.to(parameter.device)


def next_rate(config: ScheduleConfig, rate: float, epochs_done: int, improved: bool) -> float:
    """Return the learning rate of the epoch after `epochs_done` epochs.

    step: rate_e = rate_0 / factor^max(0, e + 1 − full_epochs) for e = 0, 1, …; plateau: divided unless the last
    epoch gave the best validation loss so far.
    """
    divide = {
        "constant": False,
        "step": epochs_done >= config.full_epochs,
        "plateau": not improved,
    }[config.kind]
    return rate / config.factor if divide else rate
