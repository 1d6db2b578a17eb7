"""Writing the page and the figure of every table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spanlm.analysis.files import write_whole
from spanlm.analysis.svg import render_svg
from spanlm.reproduction.figures import figure
from spanlm.reproduction.page import markdown_page
from spanlm.reproduction.plan import Plan
from spanlm.reproduction.run import Outcome


def write_tables(plan: Plan, outcomes: Sequence[Outcome]) -> list[Path]:
    """Write page and figure (`figure-2c.md`, `figure-2c.svg`) of every table of the plan; return what was written.

    Raises:
        InputError: not allowed to write there.
        RunError: the disk refused.
    """
    plan.out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for table in plan.tables:
        page, picture = (plan.out / f"{table.file}.{suffix}" for suffix in ("md", "svg"))
        drawing = figure(plan, table, outcomes)
        if drawing:
            write_whole(picture, render_svg(drawing).encode())
        write_whole(page, markdown_page(plan, table, outcomes, picture.name if drawing else None).encode())
        written += [page, picture] if drawing else [page]
    return written
