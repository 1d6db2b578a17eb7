"""Work for requests: a few threads, a bounded number of requests, and cancellation.

A model reads a few words at a time. Before each of these steps `stop_if_left` ends the job if its client has
disconnected or the server is stopping.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

POLL = 0.05
"""Seconds between two checks whether a request that waits for a lock is cancelled."""

Result = TypeVar("Result")


class Busy(Exception):
    """Too many requests are running or waiting."""


class Left(Exception):
    """The client disconnected, or the server is stopping."""


@dataclass(eq=False)
class Task:
    """The work of one request; once `cancelled`, it ends at its next step."""

    work: Work
    cancelled: bool = False

    async def run(self, job: Callable[[], Result]) -> Result:
        """Run a job in one of the threads; Left if it was cancelled."""

        def do() -> Result:
            _current.task = self
            try:
                stop_if_left()
                return job()
            finally:
                _current.task = None

        return await asyncio.wrap_future(self.work.threads.submit(do))


_current = threading.local()


def stop_if_left(*_: Any) -> None:
    """Raise Left if the job of this thread is cancelled; a hook of models before each step."""
    task: Task | None = getattr(_current, "task", None)
    if task is not None and (task.cancelled or task.work.ended):
        raise Left


@contextmanager
def held(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock; Left if the job is cancelled while it waits for the lock."""
    while not lock.acquire(timeout=POLL):
        stop_if_left()
    try:
        yield
    finally:
        lock.release()


class Work:
    """A pool of `threads` for at most `most` tasks at a time.

    Once `ended` is True, running tasks end at their next steps.
    """

    def __init__(self, threads: int, most: int) -> None:
        self.ended: bool = False
        self.tasks: int = 0
        self._most = most
        self.threads: ThreadPoolExecutor = ThreadPoolExecutor(threads)

    @contextmanager
    def task(self) -> Iterator[Task]:
        """Yield a task for one request; Busy if there are too many. Not thread-safe: for the event loop alone."""
        if self.tasks >= self._most:
            raise Busy
        self.tasks += 1
        task = Task(self)
        try:
            yield task
        finally:
            self.tasks -= 1
            task.cancelled = True
