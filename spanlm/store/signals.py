"""Signals that end this process: Ctrl-C, SIGTERM, and the end of its parent."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from spanlm.errors import Interrupted

PARENT = "SPANLM_PARENT"
"""Environment variable with the process id of a command's parent."""
_PR_SET_PDEATHSIG = 1


class StopRequest:
    """Records the signal, if any, that asks this process to end."""

    signal_number: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Record the signal; a second Ctrl-C ends the process at once."""
        if self.signal_number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = number

    def raise_if_set(self) -> None:
        if self.signal_number is not None:
            name = signal.Signals(self.signal_number).name
            raise Interrupted(f"stopped by {name}; trainings and searches are saved", self.signal_number)


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Catch Ctrl-C and SIGTERM within the block, so that work ends between two steps.

    Outside the main thread Python cannot catch signals, so the request stays empty.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow_parent() -> None:
    """Send this command of `start_command` SIGTERM when its parent ends, for whatever reason; only on Linux."""
    parent = os.environ.pop(PARENT, "")
    if parent and sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):  # the parent ended before prctl
            signal.raise_signal(signal.SIGTERM)
