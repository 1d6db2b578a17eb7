"""Lines, tables, JSON and progress, as all verbs print them. No torch here: not every verb computes."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import zip_longest
from types import TracebackType
from typing import TYPE_CHECKING, Any

from spanlm.store.plain import finite, visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

PLAIN_SECONDS = 60.0
"""Seconds between lines of progress where there is no terminal to draw a bar on."""

_BLANK = r"(?<= )"
_IN_NAMES = r"(?<= )|(?<=[,/_=])(?=[^\W\d_])"
"""Where a line may end: after a blank, and in names such as reads=sum,memory=none before a word."""

_BAR = 10
"""The least width of a bar, in columns."""


def out(text: str = "") -> None:
    """Print a line of plain text to standard output."""
    print(visible(text), flush=True)


def note(*lines: str) -> None:
    """Print lines to standard error, beside the output: progress or notes."""
    for line in lines:
        print(line, file=sys.stderr, flush=True)


def quiet() -> None:
    """Print and log nothing from here on but errors: this process is one of several that print the same."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 -- for the rest of the process
    logging.getLogger("spanlm").setLevel(logging.ERROR)


def out_json(value: Any) -> None:
    """Print a value as one line of JSON; NaN and infinities, which JSON lacks, become null."""
    out(json.dumps(finite(value), allow_nan=False))


def paragraph(*texts: str, ends: str = _BLANK) -> None:
    """Print prose; a terminal's lines are broken between words, or where else `ends` says."""
    for text in texts:
        for line in _broken(text, _columns(), ends):
            out(line)


def table(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values side by side; a terminal's lines are broken between words."""
    width, columns = max(len(name) for name, _ in rows), _columns()
    for name, value in rows:
        lines = _broken(value, columns and max(columns - width - 2, 20))
        for first, line in zip_longest([name], lines, fillvalue=""):
            out(f"{first:<{width}}  {line}")


def grid(header: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Print a column of text and columns of numbers.

    In a file or a pipe a row is a line, as wide as its cells need. A terminal's cells are broken between words, and the
    text within long names if it must be; where even that does not fit, each row becomes a list of names and values.
    """
    cells, columns = [header, *rows], _columns()
    if title is not None:
        paragraph(title, ends=_IN_NAMES)
    fitting = ((ends, widths) for ends in (_BLANK, _IN_NAMES) if (widths := _fitted(cells, columns, ends)))
    ends, widths = next(fitting, (_BLANK, None))
    if widths is None:
        _stacked(header, cells[1:])
        return
    for text, *numbers in cells:
        others = [_broken(cell, width) for cell, width in zip(numbers, widths[1:], strict=True)]
        for first, *right in zip_longest(_broken(text, widths[0], ends), *others, fillvalue=""):
            line = "".join(f"  {cell:>{width}}" for cell, width in zip(right, widths[1:], strict=True))
            out(f"{first:<{widths[0]}}{line}".rstrip())


def _fitted(cells: Sequence[Sequence[str]], columns: int | None, ends: str) -> list[int] | None:
    """Return the widths of a grid whose first column is broken at `ends`; None: it cannot be so narrow."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    breaks = [ends, *[_BLANK] * (len(widths) - 1)]
    least = [
        max(len(piece.rstrip()) for cell in column for piece in re.split(where, cell))
        for column, where in zip(zip(*cells, strict=True), breaks, strict=True)
    ]
    while columns is not None and sum(widths) + 2 * (len(widths) - 1) > columns:
        wide = max(range(len(widths)), key=lambda n: widths[n] if widths[n] > least[n] else -1)
        if widths[wide] <= least[wide]:
            return None
        widths[wide] -= 1
    return widths


def _stacked(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    for first, *others in rows:
        paragraph(f"{header[0]} {first}".strip(), ends=_IN_NAMES)
        for name, cell in zip(header[1:], others, strict=True):
            if cell:
                paragraph(f"  {name}  {cell}")


def _columns() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _broken(text: str, width: int | None, ends: str = _BLANK) -> list[str]:
    """Break a text where lines may end, keeping the blanks that it begins with; a name may hold a line end."""
    text = text.replace("\n", r"\n")
    if width is None or len(text) <= width:
        return [text]
    lines = [""]
    for piece in re.split(ends, text):
        if lines[-1].strip() and len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece if lines[-1] or len(lines) == 1 else piece.lstrip()
    return [line.rstrip() for line in lines]


class Progress:
    """Progress of a task: a live bar on a terminal, elsewhere a line every minute.

    Use it as a context; it draws nothing before the first `show`.
    """

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._last_line = time.monotonic()

    def __enter__(self) -> Progress:
        if sys.stdout.isatty():
            self._bar = _bar()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(
        self, what: str, done: int, total: int | None, left: str = "", details: Sequence[str] = (), place: str = ""
    ) -> None:
        """Move the bar, or print a line if the last one is old.

        `place` is `done` of `total` in words; the bar shows it by its length. `left`, the time left, is never cut; of
        the `details` there are as many as fit beside a short bar.
        """
        if self._bar is None:
            if time.monotonic() - self._last_line >= PLAIN_SECONDS:
                out("  ".join(filter(None, [what, place, *details, left])))
                self._last_line = time.monotonic()
            return
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task("")
        line = "  ".join(filter(None, [what, left]))
        for detail in details:
            line = f"{line}  {detail}" if len(line) + len(detail) + _BAR <= self._bar.console.width else line
        self._bar.update(self._task, description=visible(line), total=total, completed=done)

    def pause(self) -> None:
        """Take the bar away until there is more to show, and count the time to the next line from now."""
        self._last_line = time.monotonic()
        if self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None


def _bar() -> Bar:
    from rich.console import Console  # imported here: what goes into a pipe needs no bar
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    class _Console(Console):
        def on_broken_pipe(self) -> None:
            """Let `main` handle a closed pipe: it knows the exit status."""
            raise BrokenPipeError

    columns = TextColumn("{task.description}", markup=False), BarColumn(None, table_column=Column(max_width=24))
    console = _Console(file=getattr(sys.stdout, "terminal", None), highlight=False, markup=False)
    return Progress(*columns, console=console, transient=True)


def eta(seconds: float) -> str:
    """`eta 0:01:30`."""
    return f"eta {timedelta(seconds=round(seconds))}"


@contextmanager
def progress(shown: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Give a function that shows progress, to be called with the name of the task, the amount done, and the total.

    The time left is estimated anew with each name and each total.
    """
    what_now, began, first, last = "", 0.0, 0, 0
    with Progress() as shows:

        def report(what: str, done: int, total: int) -> None:
            nonlocal what_now, began, first, last
            if what != what_now or done < last:
                what_now, began, first = what, time.monotonic(), done
            last = done
            rate = (done - first) / max(time.monotonic() - began, 1e-9)
            left = eta((total - done) / rate) if rate else ""
            shows.show(what, done, total, left, [f"{rate:,.0f} tok/s"], f"{done:,}/{total:,} tokens")

        yield report if shown else lambda what, done, total: None
