"""Writing the page and the figure of every table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spanlm.analysis.drawing import Drawing
from spanlm.analysis.svg import render_svg
from spanlm.errors import RunError
from spanlm.files import replace_file
from spanlm.reproduction.figures import figure
from spanlm.reproduction.page import markdown_page
from spanlm.reproduction.plan import Plan
from spanlm.reproduction.run import Outcome


def write_tables(plan: Plan, outcomes: Sequence[Outcome]) -> list[Path]:
    """Write `figure-NAME.md` and `figure-NAME.svg` for every table of the plan; return what was written.

    Raises:
        RunError: the disk refused.
    """
    written: list[Path] = []
    for table in plan.tables:
        drawing = figure(plan, table, outcomes)
        stem = f"figure-{table.name}"
        picture = _write_figure(plan.out / f"{stem}.svg", drawing) if drawing else None
        page = plan.out / f"{stem}.md"
        _write(page, markdown_page(plan, table, outcomes, picture.name if picture else None))
        written += [page, *([picture] if picture else [])]
    return written


def _write_figure(path: Path, drawing: Drawing) -> Path:
    _write(path, render_svg(drawing))
    return path


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
    except OSError as error:
        raise RunError(f"{path}: could not be written: {error.strerror}. Make room, or choose another --out.") from None
