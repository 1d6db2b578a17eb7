"""Run commands in parallel, as processes of this machine or as Ray tasks.

A killed command is started again, so it must resume where it stopped.
"""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import MappingProxyType
from typing import Any, TypeVar

from spanlm.errors import IN_USE, InputError, installation, named, require
from spanlm.options import at_least, option, options
from spanlm.store.signals import PARENT, stop_request

PASSED_OVER = "passed over, since another process trains it; it is looked at again"
STARTED_AGAIN = "it is started again"

_ENDED_BY = "its process was ended by"  # a signal that it did not handle
_RETRIES = 5
"""How often a command is started again that was killed or lost its machine."""
_POLL_SECONDS = 0.2  # between two checks for a signal
_LOOK_AGAIN_SECONDS, _LONGEST_PAUSE = 5.0, 60.0

Name = TypeVar("Name", bound=Hashable)
Begin = Callable[[Sequence[str], Path | None, Callable[[str], None]], Future[str]]
"""Starts a command, given its words, its log and a callback for its lines; returns its error, empty for success."""


@options()
class Engine:
    """Number and place of parallel commands."""

    jobs: int = option(
        "parallel runs on each machine, each with its share of the threads", default=1, limit=at_least(1)
    )
    on: str | None = option(
        "run on Ray: ray starts it here; ray:ADDRESS connects to a cluster (ray:auto: the one that runs here)",
        default=None,
    )
    gpus_per_run: float = option("Ray's GPUs for each run; with 0.25 four runs share one", default=0.0)

    def __post_init__(self) -> None:
        known = self.on is None or re.fullmatch(r"ray(:.+)?", self.on) is not None
        require(known, "on", self.on, "ray, or ray:ADDRESS")
        gpus = self.gpus_per_run
        require(gpus >= 0 and (gpus <= 1 or gpus.is_integer()), "gpus_per_run", gpus, "0 to 1, or a whole number")
        if gpus and self.on is None:
            limit = f"needs {named('on=ray')}; otherwise all runs share the one GPU"
            raise InputError("gpus_per_run", f"{gpus:g}", limit)

    @property
    def here(self) -> bool:
        """Whether this process does everything itself, one command after another."""
        return self.jobs == 1 and self.on is None

    def threads(self, count: int) -> int:
        """Return the number of threads of each of `count` runs.

        The share stays the same when few runs are left: another number of threads rounds differently, and a stopped
        training would not resume exactly.
        """
        import torch

        threads = min(torch.get_num_threads(), os.cpu_count() or 1)  # OMP_NUM_THREADS may be larger, --threads not
        return max(1, threads // min(self.jobs, max(count, 1)))

    def run(
        self,
        commands: Mapping[Name, Sequence[str]],
        threads: int,
        heard: Callable[[Name, str], None] = lambda name, line: None,
        below: Path = Path(),
        logs: Mapping[Name, Path] = MappingProxyType({}),
    ) -> Generator[tuple[Name, str], None, None]:
        """Run independent commands of `threads` threads; yield each command's name and error when it ends.

        The error is the command's last printed line, or the signal that ended it; empty for success. A killed command
        is started again, a few times, after those that wait. A run that another process trains is skipped, and tried
        again when the others have ended. All commands write below the folder `below`, which every machine of Ray must
        see; on other machines they end with an error. A command's output is appended to its file in `logs`, and passed
        to `heard` line by line, except the output of Ray tasks.

        Raises:
            InputError: Ray is not installed, does not answer, or lacks processors or GPUs; `below` is not writable.
            Interrupted: Ctrl-C or SIGTERM; every command got SIGTERM and has ended.
        """
        if not commands:
            return
        lock, waiting, pause = threading.Lock(), list(commands), _LOOK_AGAIN_SECONDS
        passed_over, killed = set[Name](), Counter[Name]()

        def hear(name: Name, line: str) -> None:
            with lock:
                heard(name, line)

        place = _processes(self.jobs) if self.on is None else self._tasks_of_ray(threads, below)
        with stop_request() as stop, place as begin:

            def begun(name: Name) -> Future[str]:
                return begin(commands[name], logs.get(name), partial(hear, name))

            while waiting:
                running, waiting = {begun(name): name for name in waiting}, []
                while running:
                    ended, _ = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
                    stop.raise_if_set()
                    for future in ended:
                        name, error = running.pop(future), future.result()
                        if IN_USE in error:
                            waiting.append(name)
                            if name not in passed_over:
                                passed_over.add(name)
                                hear(name, PASSED_OVER)
                        elif _ENDED_BY in error and killed[name] < _RETRIES:
                            killed[name] += 1
                            _add(logs.get(name), f"{error}; {STARTED_AGAIN}")
                            hear(name, f"{error}; {STARTED_AGAIN}")
                            running[begun(name)] = name
                        else:
                            yield name, error
                for _ in range(round(pause / _POLL_SECONDS) if waiting else 0):
                    stop.raise_if_set()
                    time.sleep(_POLL_SECONDS)
                pause = min(2 * pause, _LONGEST_PAUSE)

    @contextmanager
    def _tasks_of_ray(self, threads: int, below: Path) -> Iterator[Begin]:
        try:
            mark = NamedTemporaryFile(prefix=".", dir=below.resolve())  # noqa: SIM115 (until `with` below)
        except OSError as error:
            raise InputError(f"{below}: cannot be written: {error.strerror}. Choose another folder.") from None
        variables = {name: value for name, value in os.environ.items() if name.startswith(("SPANLM_", "PYTHONPATH"))}
        resources = {"num_cpus": threads, "num_gpus": self.gpus_per_run, "max_retries": _RETRIES}
        with mark:
            ray, tasks = self._connected(threads), list[Any]()
            task = ray.remote(_task).options(**resources)

            def begin(words: Sequence[str], log: Path | None, heard: Callable[[str], None]) -> Future[str]:
                error = Future[str]()
                tasks.append(task.remote(words, Path(mark.name), os.getcwd(), variables, log and log.resolve()))
                tasks[-1].future().add_done_callback(lambda ended: error.set_result(_error_of_task(ended)))
                return error

            try:
                yield begin
            finally:
                for reference in tasks:
                    ray.cancel(reference)
                if tasks:
                    ray.wait(tasks, num_returns=len(tasks))  # trainings save before they end
                ray.shutdown()

    def _connected(self, threads: int) -> Any:
        """Start Ray, or connect to it; refuse runs that are too large for every machine."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if self.on != "ray" and Path.home().joinpath(".ray", "auth_token").exists():
            os.environ.setdefault("RAY_AUTH_MODE", "token")  # as `ray start` does; clients do not by default
        try:
            import ray
        except ImportError:
            limit = f"there is no Ray here: {installation('ray')}; or use {named('jobs')}"
            raise InputError("on", self.on, limit) from None
        address = (self.on or "").partition(":")[2] or "local"
        options: dict[str, Any] = {"address": address}
        if address == "local":
            options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1", "num_cpus": threads * self.jobs}
            options["object_store_memory"] = 2**27  # tasks exchange nothing large
        try:
            ray.init(**options, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError, RuntimeError) as error:
            why = str(error).partition("\n")[0]
            raise InputError("on", self.on, f"no Ray answers: {why}", "Start it by `ray start --head`") from None
        machines = [machine["Resources"] for machine in ray.nodes() if machine["Alive"]]
        for field, kind, wanted in (("jobs", "CPU", threads), ("gpus_per_run", "GPU", self.gpus_per_run)):
            most = max(machine.get(kind, 0) for machine in machines)
            if wanted > most:
                ray.shutdown()
                fewer = f"Take fewer {named('threads')} or more {named('jobs')}"
                way = fewer if kind == "CPU" else "Take less, or leave it out"
                limit = f"at most {most:g}: a run needs {wanted:g} {kind} of one machine of Ray. {way}"
                require(False, field, getattr(self, field), limit)
        return ray


ONE_BY_ONE = Engine()


def of_spanlm(words: Sequence[str], threads: int) -> list[str]:
    """Return the command line of `spanlm` with these words and threads."""
    return [sys.executable, "-m", "spanlm", *words, f"--threads={threads}"]


@contextmanager
def _processes(jobs: int) -> Iterator[Begin]:
    """Run commands in processes of this machine, `jobs` at a time; the end of the block sends SIGTERM to the rest."""
    running, lock, is_over = set[subprocess.Popen[str]](), threading.Lock(), False

    def run(words: Sequence[str], log: Path | None, heard: Callable[[str], None]) -> str:
        line = ""
        with lock:
            if is_over:
                return "was not begun"
            process = start_command(words)
            running.add(process)
        with process:
            for line in map(str.rstrip, process.stdout or ()):
                _add(log, line)
                if IN_USE not in line:
                    heard(line)
        with lock:
            running.remove(process)
        return command_error(process.returncode, line)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield lambda *command: pool.submit(run, *command)
        finally:
            with lock:
                is_over = True
                for process in running:
                    process.terminate()


def _add(log: Path | None, line: str) -> None:
    if log is not None:
        with suppress(OSError), log.open("a", encoding="utf-8") as file:  # a full disk loses only the line
            file.write(f"{line}\n")


def _task(words: Sequence[str], mark: Path, folder: str, environment: Mapping[str, str], log: Path | None) -> str:
    """Run a command in a Ray worker; return its error. Cancelling the task sends the command SIGTERM."""
    if not mark.exists():
        return f"{platform.node()} does not see {mark.parent}: it needs a shared disk"
    if threading.current_thread() is threading.main_thread():
        # Ray cancels by SIGINT, which shells make background processes ignore
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.update(environment)
    with _processes(1) as begin:
        error = begin(words, log, lambda line: None)
        while not error.done():
            wait([error], _POLL_SECONDS)  # Ray's cancel does not interrupt a longer wait
        return error.result()


def _error_of_task(ended: Future[str]) -> str:
    problem = ended.exception()
    return ended.result() if problem is None else f"Ray could not run it: {' '.join(str(problem).split())[:200]}"


def safe_path() -> dict[str, str]:
    """Return variables that keep `python -m spanlm` from importing files of the working directory as modules.

    Empty if the working directory contains the package itself, as in a checkout without installation.
    """
    return {} if Path.cwd() == Path(__file__).resolve().parents[1] else {"PYTHONSAFEPATH": "1"}


def start_command(words: Sequence[str]) -> subprocess.Popen[str]:
    """Start a command with its output in `stdout`; the command ends with this process."""
    return subprocess.Popen(
        words,
        env={**os.environ, **safe_path(), PARENT: str(os.getpid())},
        text=True,
        errors="backslashreplace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,  # a new group: a terminal's Ctrl-C reaches only this process, which passes it on
    )


def command_error(status: int, last_line: str) -> str:
    """Return the error of a command from its exit status and last printed line; empty for success."""
    if status < 0:
        name = signal.Signals(-status).name
        return f"{_ENDED_BY} {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
    return "" if status == 0 else last_line.strip().removeprefix("spanlm: ") or f"its process ended with {status}"
