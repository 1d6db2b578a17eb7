"""This process: the machine it runs on, the signals that end it, and the processes that it starts.

Processes are started afresh ("spawn"): a fork would inherit locks and threads. They ignore Ctrl-C, and end with their
parent.
"""

from __future__ import annotations

import os
import platform
import re
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from spanlm.errors import InputError, Interrupted, RunError

if TYPE_CHECKING:
    import subprocess
    from concurrent.futures import Future

    import torch

CPUINFO = Path("/proc/cpuinfo")
_KIND = {"family": "cpu family", "model": "model"}
_PR_SET_PDEATHSIG = 1
_PARENT = "SPANLM_PARENT"  # has the process id of the one that started a command
ENDED_BY = "its process was ended by"  # a signal that it could not answer
POLL_SECONDS = 0.2  # between two looks at whether a signal came

Name = TypeVar("Name", bound=Hashable)


def processor_fields(file: Path | None = None) -> dict[str, str]:
    """Return the fields of the first processor in Linux's words; empty where there is no such file."""
    try:
        text = (file or CPUINFO).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def processor_name(file: Path | None = None) -> str:
    """Name the processor, with its family and model: `AMD EPYC (family 25, model 17)`.

    Rented machines hide the model of their processor, and one model can be twice as fast as another.
    """
    found = processor_fields(file)
    name = found.get("model name") or platform.processor() or platform.machine()
    kind = ", ".join(f"{what} {found[field]}" for what, field in _KIND.items() if found.get(field))
    return f"{name} ({kind})" if kind else name


def memory() -> int:
    """Return the bytes that this process holds plus those that are free, swap included, or a container's limit."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError):  # Linux alone has these
        text = Path("/proc/meminfo").read_text() + Path("/proc/self/status").read_text()
        limits[0] = 1024 * sum(map(int, re.findall(r"^(?:MemAvailable|SwapFree|VmRSS):\s*(\d+)", text, re.M)))
    for folder in _control_groups():
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):
                limits.append(int((folder / name).read_text()))
    return min(limits)


def _control_groups() -> set[Path]:
    """Return the folders of the limits that this process is under, such as a SLURM job's, and those above them."""
    found = {Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")}
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, own = line.split(":", 2)
            if kinds in ("", "memory"):
                folder = Path("/sys/fs/cgroup", kinds, own.lstrip("/"))
                found |= {folder, *folder.parents}
    return found


def pick_device(device: str | torch.device, field: str) -> torch.device:
    """Return the device of that name; auto is a GPU if there is one. InputError of `field`: no such device."""
    import torch  # takes seconds: what only asks for the memory does without

    name = str(device)
    if name.startswith("mps"):
        raise InputError(f"{field}={name}: is not used: it has no float64, in which losses are summed up. Use cpu.")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()  # from `meta`, which computes nothing, nothing can be copied
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(f"{field}={name}: there is no such device here. Use auto or cpu.") from None
    return device


def with_threads(device: torch.device | str) -> str:
    """Name a device for people: `cpu, 2 threads`, `cuda:0`."""
    import torch

    count = torch.get_num_threads()
    return f"{device}, {count} thread{'s' * (count > 1)}" if str(device) == "cpu" else str(device)


class StopRequest:
    """Records the signal that requests an end, if any."""

    signal_number: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Note the signal; a second Ctrl-C does not wait."""
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

    Outside the main thread, where Python cannot, nothing is caught.
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


@contextmanager
def starting() -> Iterator[None]:
    """Start processes inside: they ignore Ctrl-C, and the parent gets it when the block ends."""
    from multiprocessing import resource_tracker  # imported here: most verbs start no process

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
    caught: list[int] = []
    answer = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, answer)
        if caught:
            signal.raise_signal(signal.SIGINT)


def end_with_parent() -> None:
    """End this started process when its parent ends, however it does."""
    import ctypes
    import multiprocessing
    from multiprocessing.connection import wait

    parent = multiprocessing.parent_process()
    assert parent is not None
    sentinel = parent.sentinel
    if sys.platform == "linux":  # the thread below waits for whatever holds the interpreter's lock
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def follow() -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@contextmanager
def workers(jobs: int | None) -> Iterator[Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]]:
    """Start processes and give a `map` that calls its function there, a few items ahead of the results.

    None: one process for each processor that this one may use; 1: all is done in this one.

    Raises:
        RunError: a process was ended from outside.
    """
    jobs = jobs or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()) or 1
    if jobs == 1:
        yield map
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    def in_order(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        under_way: deque[Future[Any]] = deque()
        for item in items:
            with starting():  # what hands an item over starts a process, too
                under_way.append(pool.submit(function, item))
            if len(under_way) > 2 * jobs:  # for each, one at work and one waiting
                yield under_way.popleft().result()
        yield from (future.result() for future in under_way)

    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=end_with_parent)
    try:
        yield in_order
    except BrokenProcessPool as error:
        raise RunError(
            "a process was ended from outside, perhaps for lack of memory; start again, with fewer jobs"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def follow_parent() -> None:
    """Let a command of `start_command` end as by SIGTERM when its parent has ended, however it did; Linux alone can."""
    parent = os.environ.pop(_PARENT, "")
    if parent and sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):  # it ended before that was set
            signal.raise_signal(signal.SIGTERM)


def safe_path(folder: str | None = None) -> dict[str, str]:
    """Return the variable by which `python -m spanlm` takes no file of the working directory for a module.

    In a checkout that is not installed that directory is where the package is.
    """
    home = Path(__file__).resolve().parents[2]
    return {} if Path(folder or ".").resolve() == home else {"PYTHONSAFEPATH": "1"}


def start_command(
    words: Sequence[str], folder: str | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a command in `folder`, with more variables; its lines are read from `stdout`. It ends with this process."""
    import subprocess

    how: dict[str, Any] = {"text": True, "errors": "backslashreplace", "stdin": subprocess.DEVNULL}
    variables = {**os.environ, **safe_path(folder), **(environment or {}), _PARENT: str(os.getpid())}
    # a group of its own: a terminal's Ctrl-C is for this process, which passes it on
    how |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "process_group": 0}
    return subprocess.Popen(words, cwd=folder, env=variables, **how)


def run_commands(
    commands: Mapping[Name, Sequence[str]],
    jobs: int,
    heard: Callable[[Name, str], None] = lambda name, line: None,
    again: Callable[[Name, str], bool] = lambda name, error: False,
) -> Iterator[tuple[Name, str]]:
    """Run independent commands in their order, `jobs` at a time; `heard` gets the lines that they print.

    Yields the name of each command when it has ended, and its error: the last line that it printed, or the signal that
    ended it; empty if it succeeded. If `again` says so of both, it waits for another turn instead.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; every command was sent SIGTERM, and has ended.
    """
    from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

    running, lock, ending = set["subprocess.Popen[str]"](), threading.Lock(), False

    def run(name: Name) -> tuple[Name, str]:
        line = ""
        with lock:
            if ending:
                return name, "was not begun"
            process = start_command(commands[name])
            running.add(process)
        with process:
            for line in process.stdout or ():
                with lock:
                    heard(name, line.rstrip("\n"))
        with lock:
            running.remove(process)
        return name, command_error(process.returncode, line)

    with stop_request() as stop, ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(run, name) for name in commands}
        try:
            while waiting:
                ended, waiting = wait(waiting, POLL_SECONDS, FIRST_COMPLETED)
                stop.raise_if_set()
                for name, error in (one.result() for one in ended):
                    with lock:
                        is_again = again(name, error)
                    if is_again:
                        waiting.add(pool.submit(run, name))
                    else:
                        yield name, error
        finally:
            with lock:
                ending = True
                for process in running:
                    process.terminate()


def command_error(status: int, last_line: str) -> str:
    """Say why a command ended with a status, after the last line that it printed; empty if it succeeded."""
    if status < 0:
        name = signal.Signals(-status).name
        return f"{ENDED_BY} {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
    return "" if status == 0 else last_line.strip().removeprefix("spanlm: ") or f"its process ended with {status}"
