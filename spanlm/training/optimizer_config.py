"""The configuration of what moves weights: optimiser, schedule and further stages. No torch here."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from spanlm.errors import InputError, as_written, require, require_defaults

USUAL_PAST = 5
"""n of the non-monotone test (Merity et al., 2018)."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """How a gradient becomes an update.

    Attributes:
        kind: adam (Kingma & Ba, 2015; betas 0.9 and 0.999, epsilon 1e-8), adagrad (Duchi et al., 2011; sums of
            squares from 0, epsilon 1e-10), sgd (no momentum) or nt_asgd (Merity et al., 2018: sgd that, once
            validation stagnates, is judged and saved by the average of its weights over all steps since then).
        lr: learning rate at the start.
        weight_decay: L2, added to the gradient after clipping.
        clip: largest global gradient norm; null: never clipped.
        nonmonotone: of nt_asgd, n: averages begin after an epoch whose validation loss is above the best of all epochs
            but the last n before it.
        switch_after: of nt_asgd: averages begin after this many epochs instead, whatever the losses; fewer than
            training.epochs.
        lagged_rates: of nt_asgd: averages as torch.optim.ASGD, which the published numbers come from. Each step but
            the first has the rate of the step before (which matters where rates follow the drawn length), and the
            average leaves the first weights out.
    """

    kind: Literal["adam", "adagrad", "sgd", "nt_asgd"] = "adam"
    lr: float = 0.001
    weight_decay: float = 0.0
    clip: float | None = 5.0
    nonmonotone: int = USUAL_PAST
    switch_after: int | None = None
    lagged_rates: bool = False

    def __post_init__(self) -> None:
        """Refuse values that cannot train, and those of averages where there are none."""
        require(0 < self.lr < math.inf, "training.optimizer.lr", self.lr, "positive and finite")
        require(
            0 <= self.weight_decay < math.inf, "training.optimizer.weight_decay", self.weight_decay, "0 or positive"
        )
        require(self.clip is None or self.clip > 0, "training.optimizer.clip", self.clip, "positive, or null")
        require(self.nonmonotone >= 1, "training.optimizer.nonmonotone", self.nonmonotone, "at least 1")
        require(
            self.switch_after is None or self.switch_after >= 1,
            "training.optimizer.switch_after",
            self.switch_after,
            "at least 1, or null",
        )
        if self.kind != "nt_asgd":
            of_averages = "nonmonotone", "switch_after", "lagged_rates"
            require_defaults(self, "training.optimizer", of_averages, "unless training.optimizer.kind is nt_asgd")
        require(
            self.switch_after is None or self.nonmonotone == USUAL_PAST,
            "training.optimizer.nonmonotone",
            self.nonmonotone,
            f"{USUAL_PAST}, its default, with training.optimizer.switch_after={self.switch_after}: averages then begin "
            "whatever the losses are. Use training.optimizer.switch_after=null for another",
        )


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """How the learning rate changes from epoch to epoch.

    Attributes:
        kind: constant; step: divided by `factor` after every epoch once `full_epochs` epochs had the full rate;
            plateau: divided by `factor` after every epoch whose validation loss is not the best so far.
        factor: what the rate is divided by (Zaremba's medium model: 1.2, large: 1.15).
        full_epochs: for step. The published codes count from 0, so their "max_epoch" m means m + 1 here.
        warmup: optimiser steps at the start over which the rate rises from 0, in a line; 0: it is there at once.
    """

    kind: Literal["constant", "step", "plateau"] = "constant"
    factor: float = 2.0
    full_epochs: int = 5
    warmup: int = 0

    def __post_init__(self) -> None:
        """Refuse a rate that would grow, and numbers of another kind of schedule."""
        require(1 <= self.factor < math.inf, "training.schedule.factor", self.factor, "at least 1")
        require(self.full_epochs >= 1, "training.schedule.full_epochs", self.full_epochs, "at least 1")
        require(self.warmup >= 0, "training.schedule.warmup", self.warmup, "0 or more optimiser steps")
        for name, kinds in (("factor", ("step", "plateau")), ("full_epochs", ("step",))):
            if self.kind not in kinds:
                unless = f"unless training.schedule.kind is {' or '.join(kinds)}"
                require_defaults(self, "training.schedule", [name], unless)


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """Further stages of a run of nt_asgd, one after the other (Merity et al., 2018; Wang et al., 2019).

    Each loads the best weights so far and averages from its first step on. It ends when the test of
    `training.optimizer.nonmonotone`, here over its own validation losses, says so, or at `epochs`. Without stages all
    other fields keep their defaults; a run without stages may be given some later, with any of them.

    Attributes:
        stages: how many; 0: none.
        lr: of every stage; null: training.optimizer.lr.
        epochs: of a stage, at most.
        nonmonotone: n of the test that ends a stage.
        adversarial: ε of the adversarial softmax from the first stage on; null: as before.
        input_noise: model.input_noise from the first stage on; null: as before.
        last_latent_dropout: model.head.latent_dropout in the last stage; null: as before.
        partial_shuffle: training.batching.partial_shuffle from the first stage on; null: as before.
    """

    stages: int = 0
    lr: float | None = None
    epochs: int = 1000
    nonmonotone: int = USUAL_PAST
    adversarial: float | None = None
    input_noise: float | None = None
    last_latent_dropout: float | None = None
    partial_shuffle: bool | None = None

    def __post_init__(self) -> None:
        """Refuse stages that cannot train, and settings of none; overrides are refused by the fields they stand for."""
        require(self.stages >= 0, "training.finetune.stages", self.stages, "0 or more")
        require(
            self.lr is None or 0 < self.lr < math.inf, "training.finetune.lr", self.lr, "positive and finite, or null"
        )
        require(self.epochs >= 1, "training.finetune.epochs", self.epochs, "at least 1")
        require(self.nonmonotone >= 1, "training.finetune.nonmonotone", self.nonmonotone, "at least 1")
        if not self.stages:
            self._refuse_settings()

    def _refuse_settings(self) -> None:
        """Refuse what no stage is there for, all of it in one message: a preset may have set several."""
        named = (
            (f"training.finetune.{field.name}", getattr(self, field.name), field.default) for field in fields(self)
        )
        idle = [
            f"{name}={as_written(value)} (default {as_written(default)})"
            for name, value, default in named
            if value != default
        ]
        if idle:
            raise InputError(
                f"training.finetune.stages=0: nothing is finetuned, so that this does nothing: {', '.join(idle)}. "
                "Use training.finetune.stages=1 or more, or the defaults."
            )
