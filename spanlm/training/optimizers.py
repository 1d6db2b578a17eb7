"""Optimisers, their state by parameter name, and the learning-rate schedule.

Non-monotonically triggered averaged SGD (Merity et al., 2018), as in the authors' code, is SGD until validation
stagnates (`position.stagnated`). Then SGD continues unchanged, and beside the weights w_k of step k the average

    w̄_K = (1/K) Σ_{k=1..K} w_k    over the K steps since then

is validated and saved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from spanlm.training.config import OptimizerConfig, ScheduleConfig

_COUNT = torch.zeros((), dtype=torch.float32)
"""Step counter of the type that the kernels expect."""


class Optimizer(ABC):
    """Updates parameters by the functional, fused optimisers of torch.optim: one pass per step.

    The classes of torch.optim call the same functions, but load torch's compiler at a process's first step, which takes
    seconds.

    Attributes:
        lr: η of the next step.
        state: the tensors of each parameter, by name.
    """

    entries: ClassVar[tuple[str, ...]] = ()
    """Names of the tensors that the kernel keeps for each parameter."""

    def __init__(self, parameters: Iterable[nn.Parameter], config: OptimizerConfig) -> None:
        self.parameters: list[Tensor] = list(parameters)
        self.config: OptimizerConfig = config
        self.lr: float = config.lr
        self.state: defaultdict[Tensor, dict[str, Tensor]] = defaultdict(dict)

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def begin(self) -> None:  # noqa: B027  # most have nothing to do, here and in `finish`
        """Set `lr` to the rate that this step uses."""

    @torch.no_grad()
    def update(self, lr: float | Tensor, unless: Tensor | None = None) -> None:
        """Move the parameters that have a gradient, unless `unless`, a float32, is 1: nothing waits for a GPU."""
        if pairs := [(parameter, parameter.grad) for parameter in self.parameters if parameter.grad is not None]:
            settings = {"fused": True, "lr": lr, "weight_decay": self.config.weight_decay, "maximize": False}
            self._move([parameter for parameter, _ in pairs], [grad for _, grad in pairs], found_inf=unless, **settings)

    def finish(self) -> None:  # noqa: B027
        """Do what follows an update that was done."""

    @abstractmethod
    def _move(self, parameters: list[Tensor], grads: list[Tensor], **settings: Any) -> None:
        """Call the fused kernel."""

    def _kept(self, parameters: Sequence[Tensor]) -> list[list[Tensor]]:
        for parameter in parameters:
            if parameter not in self.state:
                kinds = (_COUNT if name == "step" else parameter for name in self.entries)
                zeros = (torch.zeros_like(kind, device=parameter.device) for kind in kinds)
                self.state[parameter] = dict(zip(self.entries, zeros, strict=True))
        return [[self.state[parameter][name] for parameter in parameters] for name in self.entries]


class Adam(Optimizer):
    """Kingma & Ba (2015): betas 0.9 and `beta2`, epsilon 1e-8; L2 is added to the gradient."""

    entries: ClassVar[tuple[str, ...]] = ("step", "exp_avg", "exp_avg_sq")
    decoupled: ClassVar[bool] = False

    def _move(self, parameters: list[Tensor], grads: list[Tensor], **settings: Any) -> None:
        steps, means, squares = self._kept(parameters)
        betas: dict[str, Any] = {"beta1": 0.9, "beta2": self.config.beta2, "eps": 1e-8, "amsgrad": False}
        settings |= {"decoupled_weight_decay": self.decoupled}
        adam(parameters, grads, means, squares, [], steps, **betas, **settings)


class AdamW(Adam):
    """Loshchilov & Hutter (2019): w ← (1 − η · decay) w − η · Adam's move; no decay of biases and norms.

    Biases and norms are the parameters of fewer than two dimensions; the embedding is a matrix and decays.
    """

    decoupled = True

    def _move(self, parameters: list[Tensor], grads: list[Tensor], **settings: Any) -> None:
        pairs = list(zip(parameters, grads, strict=True))
        for decays in (True, False):
            if chosen := [pair for pair in pairs if (pair[0].dim() > 1) == decays]:
                decay = settings["weight_decay"] if decays else 0.0
                super()._move(*map(list, zip(*chosen, strict=True)), **{**settings, "weight_decay": decay})


class Adagrad(Optimizer):
    """Duchi et al. (2011): sums of squares from 0, epsilon 1e-10; L2 is added to the gradient."""

    entries: ClassVar[tuple[str, ...]] = ("step", "sum")

    def __init__(self, parameters: Iterable[nn.Parameter], config: OptimizerConfig) -> None:
        super().__init__(parameters, config)
        self._kept(self.parameters)  # checkpoints from before the first step contain this state

    def _move(self, parameters: list[Tensor], grads: list[Tensor], **settings: Any) -> None:
        steps, sums = self._kept(parameters)
        adagrad(parameters, grads, sums, steps, lr_decay=0.0, eps=1e-10, **settings)


class SGD(Optimizer):
    """w ← w − η (g + decay · w), without momentum."""

    def _move(self, parameters: list[Tensor], grads: list[Tensor], **settings: Any) -> None:
        momenta: list[Tensor | None] = [None] * len(grads)
        sgd(parameters, grads, momenta, momentum=0.0, dampening=0.0, nesterov=False, **settings)


class NTASGD(SGD):
    """SGD that can average its weights; the caller, who validates, decides when averages begin.

    The caller sets `lr` before each step; afterwards `lr` is the rate that the step used. `lagged_rates` imitates
    torch.optim.ASGD(t0=0, lambd=0), which updates η and the weight of the average after using them: each averaged step
    but the first uses the rate set for the step before, and the average leaves w_1 out.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], config: OptimizerConfig) -> None:
        super().__init__(parameters, config)
        # K; None before averages begin, 0 to begin with the next step, over no weights before it
        self.averaged_steps: int | None = None
        self.late_rate: float = config.lr  # with lagged rates, the rate of the next step

    def begin(self) -> None:
        wanted = self.lr
        if self.config.lagged_rates and self.averaged_steps:  # the first averaged step uses the rate as set
            self.lr: float = self.late_rate
        self.late_rate = wanted

    @torch.no_grad()
    def finish(self) -> None:
        if self.averaged_steps is None:
            return
        self.averaged_steps += 1
        weight = 1 / max(1, self.averaged_steps - self.config.lagged_rates)  # w̄ += (w − w̄) / K
        states = [self.state[parameter] for parameter in self.parameters]
        if "average" not in states[0]:
            for state, parameter in zip(states, self.parameters, strict=True):
                state["average"] = parameter.detach().clone()
        else:
            torch._foreach_lerp_([state["average"] for state in states], self.parameters, weight)

    @torch.no_grad()
    def exchange(self) -> None:
        """Swap weights and averages in place, so that pointers to weights, such as a fused kernel's, stay valid."""
        for parameter in self.parameters:
            average = self.state[parameter]["average"]
            weight = parameter.detach().clone()
            parameter.copy_(average)
            average.copy_(weight)


@contextmanager
def averaged(optimizer: Optimizer) -> Iterator[bool]:
    """Put the averages, if any, into the model within the block, then restore its weights; yield whether any exist."""
    if not (isinstance(optimizer, NTASGD) and optimizer.averaged_steps):
        yield False
        return
    optimizer.exchange()
    try:
        yield True
    finally:
        optimizer.exchange()


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "adam": Adam,
    "adamw": AdamW,
    "adagrad": Adagrad,
    "sgd": SGD,
    "nt_asgd": NTASGD,
}


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> Optimizer:
    return OPTIMIZERS[config.kind]([p for p in model.parameters() if p.requires_grad], config)


def optimizer_state(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Name every tensor of the optimiser's state `parameter/entry`."""
    return {
        f"{name}/{entry}": value
        for name, parameter in model.named_parameters()
        for entry, value in optimizer.state.get(parameter, {}).items()
    }


def expected_state(optimizer: Optimizer, model: nn.Module, steps: int, averaged_steps: int | None) -> dict[str, Tensor]:
    """Return tensors of the names, shapes and types of `optimizer_state` after so many steps and averaged steps."""
    # Adagrad creates its state at once, other optimisers at their first step or average
    entries = optimizer.entries if steps or isinstance(optimizer, Adagrad) else ()
    entries += ("average",) if averaged_steps else ()
    trainable = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {f"{name}/{entry}": _COUNT if entry == "step" else x for name, x in trainable.items() for entry in entries}


def restore_optimizer(optimizer: Optimizer, model: nn.Module, state: dict[str, Tensor]) -> None:
    """Undo `optimizer_state`, on the parameters' device."""
    parameters = dict(model.named_parameters())
    for key, value in state.items():
        name, entry = key.rsplit("/", 1)
        parameter = parameters[name]
        optimizer.state[parameter][entry] = value.to(parameter.device)


def next_rate(config: ScheduleConfig, rate: float, epochs_done: int, improved: bool) -> float:
    """Return the learning rate of the epoch after `epochs_done` epochs.

    step: rate_e = rate_0 / factor^max(0, e + 1 − full_epochs) for e = 0, 1, …; milestones: divided after each of these
    epochs; plateau: divided unless the last epoch gave the best validation loss so far. The rates of cosine do not
    follow from each other (`ScheduleConfig.cosine`).
    """
    reached = epochs_done in (config.milestones or ())
    falls = {"step": epochs_done >= config.full_epochs, "milestones": reached, "plateau": not improved}
    return rate / config.factor if falls.get(config.kind) else rate
