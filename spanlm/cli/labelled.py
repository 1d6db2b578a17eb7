"""Whole lines that say whose they are, where several processes print to one place."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO

from spanlm.cli.allocation import keep_freed_memory
from spanlm.cli.main import print_plainly
from spanlm.cli.progress import progress
from spanlm.cli.report import TrainingReport
from spanlm.evaluation.scoring import Report
from spanlm.training.events import Watcher


class LabelledLines(io.TextIOBase):
    """Text that is handed on a line at a time, each behind a label; no terminal, so there are no bars.

    Args:
        stream: where lines go.
        label: what is before each.
    """

    def __init__(self, stream: TextIO, label: str) -> None:
        self._stream, self._label, self._rest = stream, label, ""

    def write(self, text: str) -> int:
        """Keep what is no whole line yet."""
        *lines, self._rest = (self._rest + text).split("\n")
        if lines:
            # one call, so that lines of different processes do not mix
            self._stream.write("".join(f"{self._label}  {line}\n" if line else "\n" for line in lines))
            self._stream.flush()
        return len(text)

    def end(self) -> None:
        """Hand on what is no whole line, as one."""
        if self._rest:
            self.write("\n")

    def writable(self) -> bool:
        """It is."""
        return True


@contextmanager
def labelled(label: str) -> Iterator[tuple[Watcher, Report]]:
    """Show the progress of a task in a process of its own, beside others'."""
    keep_freed_memory()
    print_plainly()
    lines = LabelledLines(sys.stdout, label)
    with redirect_stdout(lines), TrainingReport(notes=False) as watcher, progress(shown=True) as report:
        yield watcher, report
    lines.end()
