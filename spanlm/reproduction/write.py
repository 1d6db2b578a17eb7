"""Writing the page and the figures of every table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spanlm.analysis.export import write_whole
from spanlm.analysis.figures import figure_bytes
from spanlm.reproduction.figures import figure, use_by_epoch
from spanlm.reproduction.page import markdown_page
from spanlm.reproduction.plan import Plan
from spanlm.reproduction.run import Outcome


def write_tables(plan: Plan, outcomes: Sequence[Outcome]) -> list[Path]:
    """Write page and figures (`figure-2c.md`, `figure-2c.svg`) of every table of the plan; return what was written.

    A table with span buffers has a second figure, `table-1-by-epoch.svg`.

    Raises:
        InputError: not allowed to write there.
        RunError: the disk refused.
    """
    plan.out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for table in plan.tables:
        page, picture, by_epoch = (plan.out / f"{table.file}{end}" for end in (".md", ".svg", "-by-epoch.svg"))
        drawn = {picture: figure(plan, table, outcomes), by_epoch: use_by_epoch(plan, table, outcomes)}
        for path, drawing in drawn.items():
            if drawing:
                write_whole(path, figure_bytes(drawing, ".svg"))
        names = (path.name if drawing else None for path, drawing in drawn.items())
        write_whole(page, markdown_page(plan, table, outcomes, *names).encode())
        written += [page, *(path for path, drawing in drawn.items() if drawing)]
    return written
