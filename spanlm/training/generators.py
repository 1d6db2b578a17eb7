"""The random number generators, as part of a checkpoint."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from spanlm.errors import InputError


def is_generator(name: str) -> bool:
    """Say whether a tensor of a checkpoint is a generator's state."""
    return name.startswith("generator.")


def generator_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the generators that training draws from."""
    states = {"generator.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["generator.cuda"] = torch.cuda.get_rng_state(device)
    return states


def refuse_another_device(carried: Collection[str], device: torch.device) -> None:
    """Refuse to go on on another kind of device than a checkpoint was made on: other generators drew there.

    Raises:
        InputError: names the field and the device.
    """
    before = "cuda" if "generator.cuda" in carried else "cpu"
    if device.type != before:
        raise InputError(
            f"training.device={device.type}: the run was trained on {before}, and its random numbers go on only there. "
            f"Use training.device={before}, or begin another run from its weights (training.start_from)."
        )


def restore_generators(carried: dict[str, Tensor], device: torch.device) -> None:
    """Undo `generator_states`."""
    torch.set_rng_state(carried["generator.cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(carried["generator.cuda"], device)
