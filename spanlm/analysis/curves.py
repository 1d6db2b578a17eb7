"""Learning curves: the perplexity of train and valid after each epoch, as metrics.jsonl has it."""

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
    """Perplexities of one run, or of several that differ in their seed alone; item i is of epoch i + 1."""

    name: str  # of the run, or of the folder of several
    by: By  # the unit of x
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
    return Curve(name, by, x, train, valid)


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
