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
        use = f"{below} or {below + parts}" if below else parts
        # a memory does not know which encoder it reads
        raise InputError(
            f"{field}={parts} needs model.encoder.hidden_size divisible by {parts}, got {hidden_size} (awd_lstm: "
            f"model.encoder.last_size). Use {use}."
        )
    return hidden_size // parts
