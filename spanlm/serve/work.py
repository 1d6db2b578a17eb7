"""Work for requests: a few threads, a bounded number of requests at a time, and an end when nobody waits any more.

One of several threads takes short tasks alone, so that long texts do not keep these waiting.

A model reads a few words at a time. Before each of these steps `stop_if_left` looks whether the request is still there:
what a client that has left, or a server that ends, would wait for is not computed.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

SHORT = 6000
"""Characters of a short text: about 1,000 words."""

POLL = 0.05
"""Seconds between two looks whether a request that waits for a lock is still there."""

Result = TypeVar("Result")


class Busy(Exception):
    """There are as many requests at work or waiting as there may be."""


class Left(Exception):
    """Nobody waits for the result any more."""


class Task:
    """One request's work; `cancel` ends it at its next step."""

    def __init__(self, work: Work, long: bool = False) -> None:
        self._work, self.long, self._left = work, long, threading.Event()

    def cancel(self) -> None:
        """Let the work end."""
        self._left.set()

    @property
    def left(self) -> bool:
        """Whether nobody waits any more."""
        return self._left.is_set() or self._work.ended

    async def run(self, job: Callable[[], Result]) -> Result:
        """Run a job in one of the threads; Left: it was cancelled."""
        future: Future[Result] = Future()
        self._work.put(self, job, future)
        return await asyncio.wrap_future(future)


_current = threading.local()


def stop_if_left(*_: Any) -> None:
    """Raise Left in a job that nobody waits for; called before each step of a model, as its hook."""
    task: Task | None = getattr(_current, "task", None)
    if task is not None and task.left:
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


class _Job(NamedTuple):
    task: Task
    do: Callable[[], Any]
    future: Future[Any]


class Work:
    """`threads` that take jobs in turn, of at most `most` `tasks` at a time.

    Once it has `ended`, these end at their next steps.
    """

    def __init__(self, threads: int, most: int) -> None:
        self.most, self.ended, self.tasks = most, False, 0
        self._jobs, self._more = deque[_Job](), threading.Condition()
        for number in range(threads):
            threading.Thread(target=self._serve, args=(number > 0 and number == threads - 1,), daemon=True).start()

    @contextmanager
    def task(self, *, long: bool = False) -> Iterator[Task]:
        """Make a task for the length of a request; Busy: there are too many. Called by the event loop alone."""
        if self.tasks >= self.most:
            raise Busy
        self.tasks += 1
        task = Task(self, long)
        try:
            yield task
        finally:
            self.tasks -= 1
            task.cancel()

    def put(self, task: Task, job: Callable[[], Result], future: Future[Result]) -> None:
        """Hand a job to the threads."""
        with self._more:
            self._jobs.append(_Job(task, job, future))
            self._more.notify_all()

    def _next(self, short: bool) -> _Job:
        """Wait for a job, and take it; of a short task, if none else will do."""
        with self._more:
            while (job := next((job for job in self._jobs if not (short and job.task.long)), None)) is None:
                self._more.wait()
            self._jobs.remove(job)
            return job

    def _serve(self, short: bool) -> None:
        while True:
            task, do, future = self._next(short)
            if not future.set_running_or_notify_cancel():
                continue
            _current.task = task
            try:
                stop_if_left()
                future.set_result(do())
            except BaseException as error:
                future.set_exception(error)
            finally:
                _current.task = None
                del task, do, future  # until the next one comes
