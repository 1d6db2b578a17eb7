"""How far a long evaluation is: a live bar on a terminal, plain lines elsewhere, nothing beside JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.progress import Progress, TextColumn, TimeRemainingColumn

from spanlm.cli.terminal import PLAIN_SECONDS, bars, out
from spanlm.evaluation.scoring import Report, quiet


@contextmanager
def progress(shown: bool) -> Iterator[Report]:
    """Give what shows the progress of a work that counts tokens."""
    if not shown:
        yield quiet
    elif not sys.stdout.isatty():
        yield _Lines()
    else:
        with bars(TextColumn("{task.completed:,}/{task.total:,} tokens  eta"), TimeRemainingColumn()) as bar:
            yield _Bar(bar)


class _Lines:
    """Prints a line now and then."""

    def __init__(self) -> None:
        self._what, self._done, self._began, self._first, self._last_line = "", 0, 0.0, 0, time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self._what or done < self._done:  # another work, or the same of another text
            self._what, self._began, self._first = what, now, done
        self._done = done
        if now - self._last_line < PLAIN_SECONDS:
            return
        self._last_line = now
        rate = (done - self._first) / max(now - self._began, 1e-9)
        left = f"  eta {timedelta(seconds=round((total - done) / rate))}" if rate else ""
        out(f"{what}  {done:,}/{total:,} tokens  {rate:,.0f} tok/s{left}")


class _Bar:
    """Moves a bar, which begins anew with each part of the work."""

    def __init__(self, bar: Progress) -> None:
        self._bar, self._what, self._done = bar, "", 0
        self._task = bar.add_task("", visible=False)

    def __call__(self, what: str, done: int, total: int) -> None:
        if what != self._what or done < self._done:
            self._what = what
            self._bar.reset(self._task, total=total, description=what, visible=True)
        self._done = done
        self._bar.update(self._task, completed=done, total=total)
