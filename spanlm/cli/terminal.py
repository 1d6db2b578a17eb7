"""Printing: plain lines, tables, a console. No torch here: every verb prints, not every verb computes."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.segment import Segment
from rich.table import Column, Table

from spanlm.store.plain import finite, visible

PLAIN_SECONDS = 60.0
"""How often a line is printed where there is no terminal to draw a bar on."""

FILE_COLUMNS = 1_000_000
"""Columns of what is no terminal: wider than any table, so that each is printed as wide as its cells need."""


def out(text: str = "") -> None:
    """Print a line of plain text to standard output."""
    print(visible(text), flush=True)


def note(text: str) -> None:
    """Print a line beside the output, to standard error: progress, or what a reader of the output should know."""
    print(text, file=sys.stderr, flush=True)


def out_json(value: Any) -> None:
    """Print a value as one line of JSON; a number that is not finite, which JSON has no word for, becomes null."""
    out(json.dumps(finite(value), allow_nan=False))


def table(rows: list[tuple[str, str]]) -> None:
    """Print two columns of names and values; a terminal's lines are broken between words."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        for n, line in enumerate(_lines(value, width + 2)):
            out(f"{name if n == 0 else '':<{width}}  {line}")


def paragraph(text: str) -> None:
    """Print prose; a terminal's lines are broken between words."""
    for line in _lines(text, 0):
        out(line)


def _lines(text: str, indent: int) -> list[str]:
    """Break a text to the width of the terminal; a file or a pipe has none."""
    if not sys.stdout.isatty():
        return [text]
    width = max(shutil.get_terminal_size().columns - indent, 20)
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def columns(left: Iterable[str], right: Iterable[str], title: str | None = None) -> Table:
    """Begin a table without lines: columns of text, then columns of numbers."""
    begun = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in left:
        begun.add_column(name)
    for name in right:
        begun.add_column(name, justify="right")
    return begun


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave a reader that is gone to `main`, which knows the exit status."""
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Show control characters of what is printed; rich's own go through."""
        for part in super().render(renderable, options):
            yield part if part.control else part._replace(text=visible(part.text))


def console() -> Console:
    """Return a console on standard output as it is now, on which every verb prints its tables.

    A terminal's lines are as long as it is wide, so a table that is wider breaks its cells there. A file or a pipe has
    no width: neither a cell nor a title is ever broken, and a line of the table is a line of the file. Nor has it bars
    or colours, whatever the environment asks for.
    """
    if sys.stdout.isatty():
        return _Console(file=getattr(sys.stdout, "terminal", None), highlight=False, markup=False)
    return _Console(width=FILE_COLUMNS, force_terminal=False, highlight=False, markup=False, soft_wrap=True)


def bars(*columns: ProgressColumn) -> Progress:
    """Return live bars for tasks, and columns behind them; in a narrow terminal the bar is what shrinks."""
    what, bar = TextColumn("{task.description}"), BarColumn(bar_width=None, table_column=Column(max_width=24))
    return Progress(what, bar, *columns, console=console(), transient=True)
