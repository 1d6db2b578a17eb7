"""Which device a model runs on."""

from __future__ import annotations

import torch

from spanlm.errors import InputError


def pick_device(name: str) -> torch.device:
    """Return the device of that name; auto is a GPU if there is one.

    Raises:
        InputError: no such device here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"training.device={name}: cannot be used here ({reason}). Use auto or cpu.") from None
    return device
