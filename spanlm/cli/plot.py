"""`spanlm plot RUN … --out FILE`."""

from __future__ import annotations

import argparse
from pathlib import Path

from spanlm.cli.family import family_members
from spanlm.cli.options import check_output, run_names
from spanlm.cli.render import out
from spanlm.store.run_folder import METRICS, seed_folders


def run(options: argparse.Namespace) -> None:
    from spanlm.analysis.curves import curve_of
    from spanlm.analysis.export import write_whole
    from spanlm.analysis.figures import FIGURES, curves_figure, figure_bytes

    suffix = check_output(options.out, suffixes=FIGURES)
    options.runs = [run_folder for folder in options.runs for run_folder in _inside(folder)]
    for folder in options.runs:
        family_members(folder)  # rejects folders that are not one family
    names = run_names(options.runs)
    curves = [curve_of(folder, name, options.by) for folder, name in zip(options.runs, names, strict=True)]
    content = figure_bytes(curves_figure(curves), suffix)
    write_whole(options.out, content)
    for curve in curves:
        best = min(range(len(curve.x)), key=lambda at: sum(run[at] for run in curve.valid))
        mean = sum(run[best] for run in curve.valid) / len(curve.valid)
        seeds = f", mean of {len(curve.valid)} seeds" * (len(curve.valid) > 1)
        where = f"after epoch {curve.epochs[best]} of the {len(curve.x)} shown"
        out(f"{curve.name}: best valid perplexity {mean:.2f} {where}{seeds}")
    out(f"written: {options.out}")


def _inside(folder: Path) -> list[Path]:
    """Return the folder if it is a run or a family, else the runs and families in it."""
    if (folder / METRICS).exists() or seed_folders(folder, METRICS):
        return [folder]
    folders = sorted(path for path in folder.glob("*") if (path / METRICS).exists() or seed_folders(path, METRICS))
    return folders or [folder]
