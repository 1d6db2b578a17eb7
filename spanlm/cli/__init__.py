"""The command line: the only package that prints."""

import os
import signal


def stop_at_once(loading: bool) -> None:
    """End the process on Ctrl-C while it imports or exits: Python may swallow or print a KeyboardInterrupt there."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _stop):
        signal.signal(signal.SIGINT, _stop if loading else signal.default_int_handler)


def _stop(number: int, frame: object) -> None:
    os.write(2, b"spanlm: stopped\n")
    os._exit(128 + number)
