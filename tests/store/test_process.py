"""Processes that never hear of Ctrl-C, a parent that always does, commands side by side, and a processor's name."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from spanlm.store.process import processor_name, run_commands, starting


def own_mask(connection: object) -> None:
    connection.send(signal.pthread_sigmask(signal.SIG_BLOCK, []))  # type: ignore[attr-defined]


def test_every_process_is_started_deaf_the_first_one_too() -> None:
    masks, spawn = [], multiprocessing.get_context("spawn")
    for _ in range(2):
        ours, theirs = spawn.Pipe(duplex=False)
        child = spawn.Process(target=own_mask, args=(theirs,))
        with starting():
            child.start()
        masks.append(ours.recv())
        child.join()
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


def test_a_processor_is_named_with_its_family_and_model(tmp_path: Path) -> None:
    first = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\n"
    for content, name in (
        (first + first.replace("EPYC", "other").replace("25", "99"), "AMD EPYC (family 25, model 17)"),
        ("processor\t: 0\nmodel name\t: A: Processor\n", "A: Processor"),
    ):
        (tmp_path / "cpuinfo").write_text(content)
        assert processor_name(tmp_path / "cpuinfo") == name


def shell(*lines: str) -> list[str]:
    return [sys.executable, "-c", "import os, signal, sys, time\n" + "\n".join(lines)]


def test_commands_run_so_many_at_a_time_and_say_how_they_ended() -> None:
    heard: list[tuple[str, str]] = []
    commands = {
        "fine": shell("print('one\\ntwo')"),
        "bad": shell("sys.exit('spanlm: no room')"),
        "silent": shell("sys.exit(3)"),
        "killed": shell("os.kill(os.getpid(), signal.SIGKILL)"),
    }
    ended = list(run_commands(commands, 2, lambda name, line: heard.append((name, line))))
    died = "its process was ended by SIGKILL (out of memory?)"
    assert dict(ended) == {"fine": "", "bad": "no room", "silent": "its process ended with 3", "killed": died}
    assert [line for name, line in heard if name == "fine"] == ["one", "two"]


@pytest.mark.slow
def test_no_command_outlives_its_reader() -> None:
    waiting = shell("print(os.getpid(), flush=True); time.sleep(60)")
    pids: list[int] = []
    found = run_commands(
        {"a": shell("time.sleep(1)"), "b": waiting, "c": waiting}, 2, lambda _, pid: pids.append(int(pid))
    )
    next(found)
    found.close()  # type: ignore[attr-defined]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
