"""What verbs that score short texts take: runs, several as one or side by side, and n-gram models in ARPA files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spanlm.cli.options import ATTENTION, load_run, load_runs, run_names
from spanlm.errors import InputError
from spanlm.store.run_folder import CONFIG

if TYPE_CHECKING:
    from spanlm.runs.arpa import ArpaFile
    from spanlm.runs.trained_model import LoadedModel

SCORERS = "A model may be an n-gram model, too: FILE.arpa [.gz]"


def is_arpa(path: Path) -> bool:
    """Whether a file is an ARPA file by its name, FILE.arpa or FILE.arpa.gz."""
    return path.name.lower().removesuffix(".gz").endswith(".arpa")


def scorers_and_files(options: argparse.Namespace) -> tuple[list[Path], list[str]]:
    """Split the operands of `add_runs` into models (runs and ARPA files) and the files after them."""
    more: list[str] = options.more

    def is_model(name: str) -> bool:
        return is_arpa(Path(name)) or (Path(name) / CONFIG).is_file()

    count = next((place for place, name in enumerate(more) if not is_model(name)), len(more))
    return [options.run, *map(Path, more[:count])], more[count:]


def load_scorers(
    models: Sequence[Path], options: argparse.Namespace, *, as_one: bool
) -> list[tuple[str, LoadedModel | ArpaFile]]:
    """Load models with their names: each by itself, or all runs as one.

    Raises:
        InputError: see `load`, `load_ensemble` and `ArpaFile`; an ARPA file among several that are to be one.
    """
    from spanlm.runs.arpa import ArpaFile

    files = [path for path in models if is_arpa(path)]
    if as_one and len(models) > 1 and files:
        raise InputError(f"{files[0]}: an n-gram model cannot be combined with others here; name it alone")
    if files and vars(options).get("attention") is not None:
        raise InputError(f"{ATTENTION}: an n-gram model, such as {files[0]}, does not attend; name runs alone")
    if as_one and not files:
        return [("", load_runs(models, options))]
    runs = [path for path in models if path not in files]
    names = dict(zip(runs, run_names(runs), strict=True)) if runs else {}
    names |= {path: path.name.removesuffix(".gz").removesuffix(".arpa") for path in files}
    return [
        (names[path], ArpaFile(path) if path in files else load_run(path, options.device, options.gate_temperature))
        for path in models
    ]
