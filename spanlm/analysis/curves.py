"""Learning curves: the perplexity of train and valid after each epoch, as metrics.jsonl has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from spanlm.errors import InputError, require
from spanlm.evaluation.scoring import perplexity
from spanlm.store.run_folder import METRICS, epoch_rows

By = Literal["epochs", "steps", "minutes"]
"""What a curve is drawn over; minutes: since the run's first epoch began, pauses included."""

LABELS: dict[By, str] = {"epochs": "epoch", "steps": "optimiser step", "minutes": "minutes (pauses included)"}


@dataclass(frozen=True)
class Curve:
    """Perplexities of one run, or of several that differ in their seed alone; item i is of epoch i + 1.

    Attributes:
        name: of the run, or of the folder of several.
        x: where each epoch ended, in the unit asked for; of several runs the mean.
        train: of the moving weights in the epoch, of each run.
        valid: after the epoch, of each run.
    """

    name: str
    x: tuple[float, ...]
    train: tuple[tuple[float, ...], ...]
    valid: tuple[tuple[float, ...], ...]


def curve_of(folder: Path, name: str, by: By = "epochs") -> Curve:
    """Read the learning curve of a run, or of the runs in a folder, as far as all of them are.

    Raises:
        InputError: neither a run nor a folder of runs, a damaged line, no epoch that is finished, or an unknown unit.
    """
    require(by in get_args(By), "by", by, ", ".join(get_args(By)))
    folders = [folder] if (folder / METRICS).exists() else sorted(path.parent for path in folder.glob(f"*/{METRICS}"))
    rows = [epoch_rows(each) for each in folders or [folder]]
    count = min(map(len, rows))
    if not count:
        raise InputError(f"{folder}: no epoch is finished yet, so there is nothing to draw")
    places = [_places(each[:count], by) for each in rows]
    x = tuple(sum(column) / len(column) for column in zip(*places, strict=True))
    train, valid = (
        tuple(tuple(perplexity(row[loss]) for row in each[:count]) for each in rows) for loss in ("train_loss", "loss")
    )
    return Curve(name, x, train, valid)


def _places(rows: Sequence[dict[str, Any]], by: By) -> list[float]:
    if by != "minutes":
        return [float(row["epoch" if by == "epochs" else "step"]) for row in rows]
    ends = [datetime.fromisoformat(row["time"]).timestamp() for row in rows]
    # the log has ends alone: the first epoch is taken to be as long as the second
    first = ends[1] - ends[0] if len(ends) > 1 else 0.0
    return [(end - ends[0] + first) / 60 for end in ends]
