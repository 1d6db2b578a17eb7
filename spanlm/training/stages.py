"""The stages of a run: the main one, and those that finetune its best weights (Merity et al., 2018)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from spanlm.config import RunConfig
from spanlm.errors import InputError, require, require_defaults
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.training.config import TrainingConfig
from spanlm.training.nt_asgd import stagnated
from spanlm.training.position import Position

Part = TypeVar("Part", bound=Any)


def stage_config(config: RunConfig, stage: int) -> RunConfig:
    """Return what a stage trains: the run's own configuration, but for what `training.finetune` changes.

    Args:
        config: the run's.
        stage: 0 for the main one.

    Raises:
        InputError: a change that the model or the batches of this run cannot have.
    """
    if stage == 0:
        return config
    training, finetune = config.training, config.training.finetune
    head: dict[str, float | None] = {"adversarial": finetune.adversarial}
    if stage == finetune.stages:
        head["latent_dropout"] = finetune.last_latent_dropout
    try:
        model = _changed(config.model, input_noise=finetune.input_noise)
        model = replace(model, head=_changed(config.model.head, **head))
        batching = _changed(training.batching, partial_shuffle=finetune.partial_shuffle)
    except InputError as error:
        raise InputError(f"training.finetune: {error}") from None
    optimizer = _changed(training.optimizer, lr=finetune.lr)
    return replace(config, model=model, training=replace(training, batching=batching, optimizer=optimizer))


def refuse_unfit(config: RunConfig) -> None:
    """Refuse finetune stages that change what a run does not have, and what is said of margins it has not.

    Raises:
        InputError: names the field.
    """
    head, finetune = config.model.head, config.training.finetune
    require(
        finetune.last_latent_dropout is None or isinstance(head, MixtureOfSoftmaxesConfig),
        "training.finetune.last_latent_dropout",
        finetune.last_latent_dropout,
        f"null with model.head.kind={head.kind}; only mixture_of_softmaxes has latents",
    )
    for stage in range(1, finetune.stages + 1):
        stage_config(config, stage)
    if not (head.adversarial or finetune.adversarial):
        _refuse_margins(config)


def _refuse_margins(config: RunConfig) -> None:
    """Refuse, in a run without an adversarial softmax, what only changes something about its margins."""
    why = "without an adversarial softmax. Use model.head.adversarial or training.finetune.adversarial above 0"
    require_defaults(config.model.head, "model.head", ["adversarial_direction", "adversarial_gate"], why)


def _changed(part: Part, **values: object) -> Part:
    """Copy a part of a configuration with those values that are not None."""
    return replace(part, **{name: value for name, value in values.items() if value is not None})


def stage_over(position: Position, training: TrainingConfig) -> bool:
    """Whether the stage in which a run stands has ended."""
    if position.stage:
        finetune = training.finetune
        return position.stage_epochs >= finetune.epochs or stagnated(position.losses, finetune.nonmonotone)
    waiting = training.optimizer.kind == "nt_asgd" and position.averaging_since is None
    impatient = training.patience is not None and position.stale >= training.patience
    return position.epoch >= training.epochs or (impatient and not waiting)


def run_over(position: Position, training: TrainingConfig) -> bool:
    """Whether the last stage has ended."""
    return position.stage >= training.finetune.stages and stage_over(position, training)


def averages_begin(position: Position, training: TrainingConfig, loss: float) -> bool:
    """Note the validation loss of an epoch; say whether, and let, averages begin with the next one.

    They begin once, never end, and take nothing over from the weights before.
    """
    optimizer = training.optimizer
    if optimizer.kind != "nt_asgd":
        return False
    before = position.averaging_since is None
    if before or position.stage:
        position.losses.append(loss)
    if not before:
        return False
    last = optimizer.switch_after
    due = stagnated(position.losses, optimizer.nonmonotone) if last is None else position.epoch >= last
    if due:
        position.begin_averages()
    return due
