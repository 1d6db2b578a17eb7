"""Optimisers, their state by parameter name, and the learning-rate schedule.

Non-monotonically triggered averaged SGD (Merity et al., 2018), as in the authors' code, is SGD until validation
stagnates (`progress.stagnated`). Then SGD continues unchanged, and beside the weights w_k of step k the average

    w̄_K = (1/K) Σ_{k=1..K} w_k    over the K steps since then

is validated and saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from spanlm.training.config import OptimizerConfig, ScheduleConfig


class NTASGD(torch.optim.SGD):
    """SGD that can begin to average; the caller, who validates, decides when.

    Args:
        lr: η; to be set in `param_groups` before each step, after which it is the rate that the step had.
        weight_decay: L2, added to the gradient.
        lagged_rates: be torch.optim.ASGD(t0=0, lambd=0), which refreshes η and the weight of the average after it has
            used them: each averaged step but the first has the rate that was asked for at the one before, and the
            average leaves w_1 out.

    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float = 0.0,
        lagged_rates: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, fused=fused)
        self.lagged_rates = lagged_rates
        # K; None before averages begin, 0 to begin with the next step, over no weights before it
        self.averaged_steps: int | None = None
        self.late_rate = lr  # with lagged rates, that of the next step

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do a step of SGD, and bring the average up to date."""
        (group,) = self.param_groups
        asked = group["lr"]
        if self.lagged_rates and self.averaged_steps:  # the first rate is taken as asked
            group["lr"] = self.late_rate
        loss = super().step(closure)
        self.late_rate = asked
        self._average()
        return loss

    @torch.no_grad()
    def _average(self) -> None:
        """w̄ += (w − w̄) / K, in place: one copy of the weights however long it goes on."""
        if self.averaged_steps is None:
            return
        self.averaged_steps += 1
        weight = 1 / max(1, self.averaged_steps - self.lagged_rates)
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if "average" in state:
                state["average"].lerp_(parameter, weight)
            else:
                state["average"] = parameter.detach().clone()

    @torch.no_grad()
    def exchange(self) -> None:
        """Swap weights and averages in place, so that pointers to the weights (a fused kernel's buffer) stay valid."""
        for parameter in self.param_groups[0]["params"]:
            average = self.state[parameter]["average"]
            weight = parameter.detach().clone()
            parameter.copy_(average)
            average.copy_(weight)


@contextmanager
def averaged(optimizer: torch.optim.Optimizer) -> Iterator[bool]:
    """Put averages, if there are any, into the model for the block, then its own weights; yield whether there are."""
    if not (isinstance(optimizer, NTASGD) and optimizer.averaged_steps):
        yield False
        return
    optimizer.exchange()
    try:
        yield True
    finally:
        optimizer.exchange()


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Make the optimiser of the model's trainable parameters, with one fused pass over them a step."""
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


def expected_state(
    optimizer: torch.optim.Optimizer, model: nn.Module, steps: int, averaged_steps: int | None
) -> set[str]:
    """Return the names in `optimizer_state` after a number of steps, and a number of averaged steps."""
    # Adagrad makes its state at once, the others with their first step or average
    begun, entries = {
        torch.optim.Adam: (steps > 0, ("step", "exp_avg", "exp_avg_sq")),
        torch.optim.Adagrad: (True, ("step", "sum")),
        torch.optim.SGD: (False, ()),
        NTASGD: (bool(averaged_steps), ("average",)),
    }[type(optimizer)]
    trainable = (name for name, parameter in model.named_parameters() if parameter.requires_grad)
    return {f"{name}/{entry}" for name in trainable for entry in entries if begun}


def restore_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, state: dict[str, Tensor]) -> None:
    """Undo `optimizer_state`, on the parameters' device."""
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
    divide = {"constant": False, "step": epochs_done >= config.full_epochs, "plateau": not improved}[config.kind]
    return rate / config.factor if divide else rate
