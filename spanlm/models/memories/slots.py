"""What memories share: slots of which some hold nothing, and an output in equal parts."""

from __future__ import annotations

import torch
from torch import Tensor

from spanlm.errors import InputError


def cleared(slots: Tensor, filled: Tensor) -> Tensor:
    """Put zero in empty slots.

    Args:
        slots: (L, B) or (L, B, D).
        filled: (L, B) bool.
    """
    # where, not a product: nothing that stands in an empty slot can leak, NaN included
    return torch.where(filled.view(*filled.shape, *[1] * (slots.dim() - 2)), slots, 0)


def with_steps(filled: Tensor, steps: int) -> Tensor:
    """Say which slots hold something once `steps` more do: (L + T, B)."""
    return torch.cat([filled, filled.new_ones(steps, filled.shape[1])])


def part_size(hidden_size: int, parts: int, field: str) -> int:
    """Return the size of each of `parts` equal parts.

    Raises:
        InputError: `parts` does not divide `hidden_size`; names the two nearest sizes that work.
    """
    if hidden_size % parts:
        below = hidden_size // parts * parts
        use = f"{below} or {below + parts}" if below else parts
        # a memory does not know which encoder it reads
        raise InputError(
            f"{field}={parts} needs model.encoder.hidden_size divisible by {parts}, got {hidden_size} (awd_lstm: "
            f"model.encoder.last_size). Use {use}."
        )
    return hidden_size // parts
