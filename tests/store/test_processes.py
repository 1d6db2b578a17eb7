"""Processes that never hear of Ctrl-C, and a parent that always does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time

import pytest

from spanlm.store.process import starting


def own_mask(connection: object) -> None:
    connection.send(signal.pthread_sigmask(signal.SIG_BLOCK, []))  # type: ignore[attr-defined]


def test_every_process_is_started_deaf_the_first_one_too() -> None:
    masks, spawn = [], multiprocessing.get_context("spawn")
    for _ in range(2):
        ours, theirs = spawn.Pipe(duplex=False)
        process = spawn.Process(target=own_mask, args=(theirs,))
        with starting():
            process.start()
        masks.append(ours.recv())
        process.join()
    assert masks == [{signal.SIGINT}] * 2
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize("others", [0, 1])
def test_a_ctrl_c_in_between_is_not_lost(others: int) -> None:
    """Nor heard too early where another thread, such as a library has, takes the signal."""
    over = threading.Event()
    threads = [threading.Thread(target=over.wait) for _ in range(others)]
    for thread in threads:
        thread.start()
    reached = False
    with pytest.raises(KeyboardInterrupt), starting():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        reached = True
    over.set()
    for thread in threads:
        thread.join()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
