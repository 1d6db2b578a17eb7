"""Which device a model runs on."""

from __future__ import annotations

import torch

from spanlm.errors import InputError


def pick_device(name: str, field: str) -> torch.device:
    """Return the device of that name; auto is a GPU if there is one.

    Args:
        name: auto, cpu, cuda, cuda:1, …
        field: where the name was given, for messages.

    Raises:
        InputError: no such device here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()  # from `meta`, which computes nothing, nothing can be copied
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(f"{field}={name}: there is no such device here. Use auto or cpu.") from None
    return device


def with_threads(device: torch.device | str) -> str:
    """Name a device for people: `cpu, 2 threads`, `cuda:0`."""
    count = torch.get_num_threads()
    return f"{device}, {count} thread{'s' * (count > 1)}" if str(device) == "cpu" else str(device)
