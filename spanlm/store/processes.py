"""What every process that this library starts has in common: Ctrl-C is not for it, and it ends with its parent.

Processes are started afresh ("spawn"): a fork would take over locks and threads of the one that starts them.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing import resource_tracker
from multiprocessing.connection import wait

_PR_SET_PDEATHSIG = 1
SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def starting() -> Iterator[None]:
    """Start processes inside: they never hear of Ctrl-C, which the parent hears of when the block ends."""
    # it starts with the first process, and would let the signal through while that one is made
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which processes take over
    try:
        # threads of libraries have masks of their own, and whichever takes the signal, it is for the main thread
        with _deferred() if threading.current_thread() is threading.main_thread() else nullcontext():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _deferred() -> Iterator[None]:
    """Answer Ctrl-C when the block ends."""
    heard: list[int] = []
    answer = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, answer)
        if heard:
            signal.raise_signal(signal.SIGINT)


def follow_parent(end: Callable[[], object]) -> None:
    """In a process that was started: call `end` when the parent has ended, however it did."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait([parent.sentinel])
        end()

    threading.Thread(target=follow, daemon=True).start()


def end_with_parent() -> None:
    """In a process that was started: end when its parent has ended, however it did."""
    if sys.platform == "linux":  # the thread of `follow_parent` waits for whatever holds the interpreter's lock
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    follow_parent(lambda: os._exit(1))
