"""The utilisation of a span buffer after each epoch of a training (Li et al., 2020, Figure 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanlm.errors import InputError
from spanlm.store.run_folder import epoch_rows

EXPLAINED = (
    "PoU: the share of the words of valid at which the gate prefers the buffer (λ ≥ ½); oracle: at which the buffer is "
    "better"
)


@dataclass(frozen=True)
class Utilisation:
    """Utilisation of the span buffer in a run's validations; item i belongs to epoch i + 1."""

    name: str  # of the run
    learned: tuple[float, ...]  # PoU, the share of words with λ ≥ ½ (Eq. 15), of those with a span in the buffer.
    oracle: tuple[float, ...]  # oracle PoU, the share of them with q > p

    def __len__(self) -> int:
        return len(self.learned)


def utilisation_of(rows: Sequence[Mapping[str, Any]], name: str) -> Utilisation | None:
    """Return the utilisation of a run's span buffer; None without a buffer, or if it never held a span."""
    validations = [row["parts"]["valid"] for row in rows if "valid" in row.get("parts", {})]
    learned, oracle = (tuple(parts[which] for parts in validations) for which in ("utilisation", "oracle_utilisation"))
    return Utilisation(name, learned, oracle) if validations else None


def read_utilisation(folder: Path, name: str) -> Utilisation:
    """Read the utilisation of the span buffer of the run in `folder`; it may be in training."""
    rows = epoch_rows(folder)
    if utilisation := utilisation_of(rows, name):
        return utilisation
    if not rows:
        why = "has finished no epoch yet"
    elif any("parts" in row for row in rows):
        why = (
            "its span buffer never held a span of the validation text, which is too short for one in each of its "
            "streams (training.batching.eval_batch_size), so there is nothing to show by epoch"
        )
    else:
        why = "has no span buffer to show by epoch: train one with model.memory.kind=span_buffer"
    raise InputError(f"{folder}: {why}")


def spread_epochs(count: int, most: int) -> list[int]:
    """Return at most `most` of the epochs 0 … `count` − 1, evenly, the first and the last among them."""
    steps = min(count, most) - 1
    return sorted({round(n * (count - 1) / steps) for n in range(steps + 1)}) if steps else [0]
