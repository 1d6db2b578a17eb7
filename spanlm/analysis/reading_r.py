"""The readings of a table for R, beside the script `reading.R`, which fits the same models with `lm` or lme4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from spanlm.analysis.export import write_whole
from spanlm.analysis.reading import NestedModels
from spanlm.errors import InputError
from spanlm.scoring.resampling import Array
from spanlm.store.plain import cells_line

SCRIPT = "reading.R"


def write_r(
    folder: Path,
    models: NestedModels,
    items: Sequence[str],
    subjects: Sequence[str],
    baseline: Mapping[str, Array],
    surprisals: Mapping[str, Array],
) -> None:
    """Write N times and their predictors as `readings.csv`, and the script.

    Args:
        folder: to make, or an empty one.
        models: those of the times.
        items: the text of each time.
        subjects: its reader; of means there are none.
        baseline: columns (N,) by name.
        surprisals: bits of each run, (N, K + 1).
    """
    if taken := sorted({"time", "item", "subject", "fold"} & {*baseline}):
        raise InputError(
            "baseline", taken[0], "is the name of another column of readings.csv", "Rename it in the table"
        )
    columns: dict[str, Sequence[object]] = {"time": models.times.values.tolist(), "item": items}
    columns |= {"subject": [f"s{name}" for name in subjects]} if subjects else {}
    columns |= {"fold": (models.folds[models.times.items] + 1).tolist()}
    columns |= {name: column.tolist() for name, column in baseline.items()}
    for run, values in surprisals.items():
        columns |= {f"surprisal{f'_prev{lag}' * (lag > 0)}:{run}": x.tolist() for lag, x in enumerate(values.T)}
    folder.mkdir(exist_ok=True)
    lines = [cells_line(columns, ","), *(cells_line(row, ",") for row in zip(*columns.values(), strict=True))]
    write_whole(folder / "readings.csv", "".join(lines).encode())
    write_whole(folder / SCRIPT, Path(__file__).with_name(SCRIPT).read_bytes())
