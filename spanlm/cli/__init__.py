"""The command line: the only rooms that print. Here: what Ctrl-C does while modules load."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def loading() -> Iterator[None]:
    """End the process on Ctrl-C with one line and status 130, where the caller has no handler of their own.

    An exception would not do: raised in the middle of an import, it may be swallowed, or become another error.
    """
    handlers = (signal.default_int_handler, _stop) if threading.current_thread() is threading.main_thread() else ()
    ours = signal.getsignal(signal.SIGINT) in handlers
    if ours:
        signal.signal(signal.SIGINT, _stop)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop(number: int, frame: FrameType | None) -> None:
    os.write(2, b"spanlm: stopped\n")
    os._exit(128 + number)
