"""Ctrl-C and SIGTERM end a run between two steps, so that its state can be saved; while modules load, at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Remembers which signal asked for an end, if any."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self.signal_number: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Note the signal; a second Ctrl-C does not wait."""
        if self.signal_number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = number


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Catch SIGINT and SIGTERM while inside; outside the main thread, where Python cannot, catch nothing."""
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


def stop_at_once(loading: bool) -> None:
    """End the process on Ctrl-C while modules load: an exception amid an import may be swallowed or become another."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _stop):
        signal.signal(signal.SIGINT, _stop if loading else signal.default_int_handler)


def _stop(number: int, frame: FrameType | None) -> None:
    os.write(2, b"spanlm: stopped\n")
    os._exit(128 + number)
