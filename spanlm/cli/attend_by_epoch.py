"""`spanlm attend --by-epoch`: how often a span buffer was used, from what the run told; no model is loaded."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from spanlm.analysis.export import save_utilisation
from spanlm.analysis.utilisation import EXPLAINED, Utilisation, longest, read_utilisation, spread_epochs
from spanlm.cli.arguments import run_names
from spanlm.cli.terminal import out

ROWS = 30
"""Epochs that are printed; a file has all of them."""


def show_by_epoch(options: argparse.Namespace) -> None:
    """Print the table and write the file."""
    named = zip(run_names(options.runs), options.runs, strict=True)
    measured = [read_utilisation(folder, name) for name, folder in named]
    _print(measured)
    if options.out is not None:
        save_utilisation(measured, options.out)


def _print(measured: Sequence[Utilisation]) -> None:
    """Print two columns for each run."""
    out("use of the span buffer on valid, in percent")
    heads = [head for one in measured for head in (one.name, "oracle")]
    widths = [max(len(head), 6) for head in heads]
    out(f"  {'epoch':>5}" + "".join(f"  {head:>{width}}" for head, width in zip(heads, widths, strict=True)))
    for epoch in spread_epochs(longest(measured), ROWS):
        cells = [cell for one in measured for cell in (_cell(one.learned, epoch), _cell(one.oracle, epoch))]
        out(f"  {epoch + 1:>5}" + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True)))
    out(EXPLAINED)


def _cell(shares: Sequence[float], epoch: int) -> str:
    return f"{100 * shares[epoch]:.1f}" if epoch < len(shares) else ""
