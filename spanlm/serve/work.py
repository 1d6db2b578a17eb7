"""Work for requests: a few threads, a bounded number of requests at a time, and an end when nobody waits any more.

A model reads a few words at a time. Before each of these steps `stop_if_left` looks whether the request is still there:
what a client that has left, or a server that ends, would wait for is not computed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

POLL = 0.05
"""Seconds between two looks whether a request that waits for a lock is still there."""

Result = TypeVar("Result")


class Busy(Exception):
    """There are as many requests at work or waiting as there may be."""


class Left(Exception):
    """Nobody waits for the result any more."""


class Task:
    """One request's work; once it is `cancelled`, it ends at its next step."""

    def __init__(self, work: Work) -> None:
        self.work, self.cancelled = work, False

    async def run(self, job: Callable[[], Result]) -> Result:
        """Run a job in one of the threads; Left: it was cancelled."""

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
    """Raise Left in a job that nobody waits for; called before each step of a model, as its hook."""
    task: Task | None = getattr(_current, "task", None)
    if task is not None and (task.cancelled or task.work.ended):
        raise Left


@contextmanager
def held(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock; Left: nobody waits any more, and the lock was not free before."""
    while not lock.acquire(timeout=POLL):
        stop_if_left()
    try:
        yield
    finally:
        lock.release()


class Work:
    """`threads` that take jobs in turn, of at most `most` `tasks` at a time.

    Once it has `ended`, these end at their next steps.
    """

    def __init__(self, threads: int, most: int) -> None:
        self.most, self.ended, self.tasks = most, False, 0
        self.threads = ThreadPoolExecutor(threads)

    @contextmanager
    def task(self) -> Iterator[Task]:
        """Make a task for the length of a request; Busy: there are too many. Called by the event loop alone."""
        if self.tasks >= self.most:
            raise Busy
        self.tasks += 1
        task = Task(self)
        try:
            yield task
        finally:
            self.tasks -= 1
            task.cancelled = True
