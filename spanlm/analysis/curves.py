"""Numbers of a run after each epoch, as metrics.jsonl has them.

Learning curves have the perplexity of train and valid, and the utilisation of a span buffer is that of Li et al. (2020,
Figure 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from spanlm.errors import InputError, require
from spanlm.scoring.tally import perplexity
from spanlm.store.run_folder import METRICS, epoch_rows, seed_folders

By = Literal["tokens", "epochs", "steps", "seconds"]
"""What a curve is drawn over; seconds: since the run's first epoch began, pauses included."""

LABELS: dict[By, str] = {
    "tokens": "training tokens read",
    "epochs": "epoch",
    "steps": "optimiser step",
    "seconds": "seconds (pauses included)",
}
_FIELDS = {"tokens": "tokens", "epochs": "epoch", "steps": "step"}


@dataclass(frozen=True)
class Curve:
    """Perplexities of one run, or of several that differ in their seed alone."""

    name: str  # of the run, or of the folder of several
    by: By  # the unit of x
    epochs: tuple[int, ...]  # whose numbers there are, from 1; of several runs those of the first
    x: tuple[float, ...]  # where each epoch ended; of several runs the mean
    train: tuple[tuple[float, ...], ...]  # of the moving weights in the epoch, of each run
    valid: tuple[tuple[float, ...], ...]  # after the epoch, of each run


def curve_of(folder: Path, name: str, by: By = "tokens") -> Curve:
    """Read the learning curve of a run, or of the runs in a folder, as far as all of them are.

    Raises:
        InputError: neither a run nor a folder of runs, a damaged line, no epoch that is finished, or an unknown unit.
    """
    require(by in get_args(By), "by", by, ", ".join(get_args(By)))
    logs = _logs(folder)
    places = [_places(rows, by) for rows in logs]
    x = tuple(sum(column) / len(column) for column in zip(*places, strict=True))
    train, valid = (
        tuple(tuple(perplexity(row[loss]) for row in rows) for rows in logs) for loss in ("train_loss", "loss")
    )
    return Curve(name, by, tuple(row["epoch"] for row in logs[0]), x, train, valid)


def _logs(folder: Path) -> list[list[dict[str, Any]]]:
    seeds = [] if (folder / METRICS).exists() else seed_folders(folder, METRICS)
    logs = [epoch_rows(run) for run in seeds or [folder]]
    count = min(map(len, logs))
    if not count:
        raise InputError(f"{folder}: no epoch is finished yet, so there is nothing to draw")
    if any("train_loss" not in row for rows in logs for row in rows):
        raise InputError(f"{folder}: is an n-gram model, which is estimated without epochs; there is no curve to draw")
    return [rows[:count] for rows in logs]


def _places(rows: Sequence[Mapping[str, Any]], by: By) -> list[float]:
    if by != "seconds":
        return [float(row[_FIELDS[by]]) for row in rows]
    ends = [datetime.fromisoformat(row["time"]).timestamp() for row in rows]
    # the log has ends alone: the first epoch is taken to be as long as the second
    first = ends[1] - ends[0] if len(ends) > 1 else 0.0
    return [end - ends[0] + first for end in ends]


# --- the use of a span buffer ---

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
