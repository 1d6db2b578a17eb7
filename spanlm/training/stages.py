"""The stages of a run: the main one, and those that finetune its best weights (Merity et al., 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from spanlm.config import RunConfig
from spanlm.errors import InputError, require, require_defaults
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.training.config import TrainingConfig
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
        why = "without an adversarial softmax. Use model.head.adversarial or training.finetune.adversarial above 0"
        require_defaults(head, "model.head", ["adversarial_direction", "adversarial_gate"], why)


def _changed(part: Part, **values: object) -> Part:
    """Copy a part of a configuration with those values that are not None."""
    return replace(part, **{name: value for name, value in values.items() if value is not None})


def stagnated(losses: Sequence[float], n: int) -> bool:
    """Say whether the last of these validation losses is above the best of those more than n epochs before it.

    With the n losses just before it left out there must be one left: never before epoch n + 2. The test is that of the
    authors' code: the paper prints the last n, which its authors call a misprint.
    """
    older = losses[: max(0, len(losses) - 1 - n)]
    return bool(older) and losses[-1] > min(older)


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
    optimizer, averaged = training.optimizer, position.averaging_since is not None
    if optimizer.kind != "nt_asgd":
        return False
    if position.stage or not averaged:
        position.losses.append(loss)
    last = optimizer.switch_after
    due = stagnated(position.losses, optimizer.nonmonotone) if last is None else position.epoch >= last
    if averaged or not due:
        return False
    position.begin_averages()
    return True
