"""Use of a span buffer by epoch as files: a figure (.svg, .png) and data (.csv, .json)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from spanlm.analysis.figure_files import drawn
from spanlm.analysis.files import checked_suffix, csv_bytes, json_bytes, write_whole
from spanlm.analysis.utilisation import Utilisation
from spanlm.analysis.utilisation_figure import utilisation_figure

CSV_COLUMNS = ("run", "epoch", "utilisation", "oracle_utilisation")
_TITLE = "Use of the span buffer by epoch"


def save_utilisation(measured: Sequence[Utilisation], path: Path) -> None:
    """Write several runs as the suffix of `path` says; shares in data are of 1.

    Raises:
        InputError: the suffix is unknown, the folder is missing or closed, there are too many runs for a figure, or
            matplotlib is missing.
        RunError: writing fails.
    """
    render = _UTILISATION[checked_suffix(path, UTILISATION_SUFFIXES)]
    write_whole(path, render(measured))


def _csv(measured: Sequence[Utilisation]) -> bytes:
    rows = (
        (one.name, epoch, learned, oracle)
        for one in measured
        for epoch, (learned, oracle) in enumerate(zip(one.learned, one.oracle, strict=True), start=1)
    )
    return csv_bytes([CSV_COLUMNS, *rows])


def _json(measured: Sequence[Utilisation]) -> bytes:
    runs = [{"run": one.name, "utilisation": one.learned, "oracle_utilisation": one.oracle} for one in measured]
    return json_bytes({"split": "valid", "runs": runs})


_UTILISATION: dict[str, Callable[[Sequence[Utilisation]], bytes]] = {
    **drawn(partial(utilisation_figure, _TITLE)),
    ".csv": _csv,
    ".json": _json,
}

UTILISATION_SUFFIXES = tuple(_UTILISATION)
"""What `save_utilisation` can write."""
