"""Lines, tables, JSON and progress, as all verbs print them; imports no torch, which `--help` would wait for."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from io import StringIO
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

from spanlm.store.plain import finite, visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID
    from rich.text import Text

PLAIN_SECONDS = 60.0
"""Seconds between lines of progress if standard output is not a terminal."""

_NAME = 16
"""Least width of the column of names, if a name has a longer word: names are folded, numbers never."""

_UNLIMITED = 10**6
"""Columns of a file or a pipe."""

_BAR = 10
"""Least width of a bar, in columns."""


def out(text: str = "") -> None:
    """Print a line of plain text to standard output."""
    print(visible(text), flush=True)


def note(*lines: str) -> None:
    """Print progress or notes to standard error."""
    for line in lines:
        print(line, file=sys.stderr, flush=True)


def quiet() -> None:
    """Print and log only errors from here on: another process prints the same output."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 -- stays open for the rest of the process
    logging.getLogger("spanlm").setLevel(logging.ERROR)


def out_json(value: Any) -> None:
    """Print a value as one line of JSON; NaN and infinities, which JSON lacks, become null."""
    out(json.dumps(finite(value), allow_nan=False))


def paragraph(*texts: str) -> None:
    """Print prose; lines are wrapped only on a terminal."""
    for text in texts:
        for line in _wrapped(text, _columns()):
            out(line)


def table(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values side by side; values are wrapped only on a terminal."""
    width, columns = max(len(name) for name, _ in rows), _columns()
    for name, value in rows:
        lines = _wrapped(value, columns and max(columns - width - 2, 20))
        for first, line in zip_longest([name], lines, fillvalue=""):
            out(f"{first:<{width}}  {line}")


def grid(header: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Print a column of names and columns of numbers; in a file or a pipe each row is one line of any width."""
    from rich.console import Console  # imported here: not every verb prints a table
    from rich.table import Table

    if title is not None:
        paragraph(title)
    cells = [header, *rows]
    least = [max(len(word) for cell in column for word in ["", *cell.split()]) for column in zip(*cells, strict=True)]
    least[0] = min(least[0], _NAME)
    columns, shown = _columns(), Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for number, (name, width) in enumerate(zip(header, least, strict=True)):
        side: Literal["left", "right"] = "right" if number else "left"
        shown.add_column(_plain(name), justify=side, overflow="fold", min_width=width)
    for row in cells[1:]:
        shown.add_row(*map(_plain, row))
    # if the numbers do not fit, let the terminal break the lines
    fits = columns is not None and sum(least) + 2 * (len(least) - 1) <= columns
    console = Console(file=StringIO(), width=columns if fits else _UNLIMITED, color_system=None, force_terminal=False)
    console.print(shown)
    for line in console.file.getvalue().splitlines():  # type: ignore[attr-defined]  # the file is a StringIO
        out(line.rstrip())


def _plain(cell: str) -> Text:
    """Return a cell in which rich sees no markup, with its line ends escaped."""
    from rich.text import Text

    return Text(visible(cell).replace("\n", r"\n"))


def _columns() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _wrapped(text: str, width: int | None) -> list[str]:
    text = text.replace("\n", r"\n")
    return [text] if width is None else textwrap.wrap(text, width, break_on_hyphens=False) or [""]


class Progress:
    """Shows progress of a task: a live bar on a terminal, elsewhere a line every minute.

    Use it as a context manager; it draws nothing before the first `show`, and nothing at all if it is not `shown`. As a
    `Report` it is called with a task, the tokens done and their total, and shows the time left, anew for each task.
    """

    def __init__(self, shown: bool = True) -> None:
        self._shown = shown
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._last_line = time.monotonic()
        self._name, self._began, self._first, self._done = "", 0.0, 0, 0

    def __enter__(self) -> Progress:
        if self._shown and sys.stdout.isatty():
            self._bar = _bar()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, task: str, done: int, total: int) -> None:
        if task != self._name or done < self._done:
            self._name, self._began, self._first = task, time.monotonic(), done
        self._done = done
        rate = (done - self._first) / max(time.monotonic() - self._began, 1e-9)
        left = eta((total - done) / rate) if rate else ""
        self.show(task, done, total, left, [f"{rate:,.0f} tok/s"], f"{done:,}/{total:,} tokens")

    def show(
        self, task: str, done: int, total: int | None, left: str = "", details: Sequence[str] = (), place: str = ""
    ) -> None:
        """Move the bar, or print a line if the last one is older than `PLAIN_SECONDS`.

        `place` is `done` of `total` in words, for lines alone. `left`, the time left, is always shown; `details` are
        dropped where they do not fit beside a short bar.
        """
        if self._bar is None:
            if self._shown and time.monotonic() - self._last_line >= PLAIN_SECONDS:
                out("  ".join(filter(None, [task, place, *details, left])))
                self._last_line = time.monotonic()
            return
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task("")
        line = "  ".join(filter(None, [task, left]))
        for detail in details:
            line = f"{line}  {detail}" if len(line) + len(detail) + _BAR <= self._bar.console.width else line
        self._bar.update(self._task, description=visible(line), total=total, completed=done)

    def pause(self) -> None:
        """Remove the bar until the next `show`, and restart the time until the next line."""
        self._last_line = time.monotonic()
        if self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None


def _bar() -> Bar:
    from rich.console import Console  # imported here: output to a pipe needs no bar
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    class _Console(Console):
        def on_broken_pipe(self) -> None:
            """Let `main` handle a closed pipe, since it sets the exit status."""
            raise BrokenPipeError

    columns = TextColumn("{task.description}", markup=False), BarColumn(None, table_column=Column(max_width=24))
    console = _Console(file=getattr(sys.stdout, "terminal", None), highlight=False, markup=False)
    return Progress(*columns, console=console, transient=True)


def duration(seconds: float) -> str:
    """As `0:01:30`."""
    return str(timedelta(seconds=round(min(seconds, 1e13))))


def eta(seconds: float) -> str:
    return f"eta {duration(seconds)}"
