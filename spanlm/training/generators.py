"""The random number generators, as part of a checkpoint."""

from __future__ import annotations

import torch
from torch import Tensor


def is_generator(name: str) -> bool:
    """Say whether a tensor of a checkpoint is a generator's state."""
    return name.startswith("generator.")


def generator_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the generators that training draws from."""
    states = {"generator.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["generator.cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_generators(carried: dict[str, Tensor], device: torch.device) -> None:
    """Undo `generator_states`."""
    torch.set_rng_state(carried["generator.cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(carried["generator.cuda"], device)
