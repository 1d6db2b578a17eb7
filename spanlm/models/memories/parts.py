"""Splitting an encoder's output into equal parts."""

from __future__ import annotations

from spanlm.errors import InputError


def part_size(hidden_size: int, parts: int, field: str) -> int:
    """Return the size of each of `parts` equal parts.

    Raises:
        InputError: `parts` does not divide `hidden_size`; names the two nearest sizes that work.
    """
    if hidden_size % parts:
        below = hidden_size // parts * parts
        raise InputError(
            f"{field}={parts} needs model.encoder.hidden_size divisible by {parts}, got {hidden_size}. "
            f"Use {below} or {below + parts}."
            if below
            else f"{field}={parts} needs model.encoder.hidden_size divisible by {parts}, got {hidden_size}. "
            f"Use {parts}."
        )
    return hidden_size // parts
