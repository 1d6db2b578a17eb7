"""Where commands run, several at a time: as processes of this machine, or as tasks of Ray, which knows many machines.

A command is started again until it has succeeded or failed for good, so it must be one that goes on where it stopped.
"""

from __future__ import annotations

import os
import platform
import re
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanlm.errors import IN_USE, InputError, installation, require
from spanlm.store.process import ENDED_BY, POLL_SECONDS, Name, command_error, run_commands, start_command, stop_request

PASSED_OVER = "passed over, since another process trains it; it is looked at again"
STARTED_AGAIN = "it is started again"

_LOOK_AGAIN_SECONDS, _LONGEST_PAUSE = 5.0, 60.0
_RETRIES = 5
"""How often a command that was killed, or whose machine is gone, is started again."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How many commands run at a time, and where.

    Attributes:
        jobs: runs at a time on each machine, each with its share of the threads
        on: run them on Ray: ray is started here; ray:ADDRESS is a cluster's (ray:auto: the one that runs here)
        gpus_per_run: with --on, how many of Ray's GPUs each run has; with 0.25 four share one
    """

    jobs: int = 1
    on: str | None = None
    gpus_per_run: float = 0.0

    def __post_init__(self) -> None:
        require(self.jobs >= 1, "jobs", self.jobs, "at least 1")
        known = self.on is None or re.fullmatch(r"ray(:.+)?", self.on) is not None
        require(known, "on", self.on, "ray, or ray:ADDRESS")
        gpus = self.gpus_per_run
        require(gpus >= 0 and (gpus <= 1 or gpus.is_integer()), "gpus_per_run", gpus, "0 to 1, or a whole number")
        if gpus and self.on is None:
            raise InputError(f"gpus_per_run={gpus:g}: needs --on ray; otherwise all runs share the one GPU")

    @property
    def here(self) -> bool:
        """Whether all is done by this process, one after another."""
        return self.jobs == 1 and self.on is None

    def threads(self, count: int) -> int:
        """Return the threads of each of `count` runs.

        All have the same share, even when few are left: another number of threads rounds otherwise, so that a stopped
        training would go on as another computation.
        """
        import torch

        return max(1, torch.get_num_threads() // min(self.jobs, max(count, 1)))

    def run(
        self,
        commands: Mapping[Name, Sequence[str]],
        threads: int,
        heard: Callable[[Name, str], None] = lambda name, line: None,
        below: Path = Path(),
        logs: Mapping[Name, Path] | None = None,
    ) -> Generator[tuple[Name, str], None, None]:
        """Run independent commands of `threads` threads; yield names and errors as `run_commands` does.

        A command that was killed is started again, a few times, behind those that wait. A run that another process
        trains is passed over, and tried again when the others have ended. All commands write below one folder, which
        every machine of Ray must see; on one that does not see it they end with an error. What a command prints is
        added to its file in `logs`; `heard` gets it, too, but for what a task of Ray prints.

        Raises:
            InputError: there is no Ray, or none that has so many processors or GPUs; or `below` cannot be written.
            Interrupted: Ctrl-C or SIGTERM; every command was sent SIGTERM, and has ended.
        """
        waiting, pause, put_off, killed = dict(commands), _LOOK_AGAIN_SECONDS, set[Name](), Counter[Name]()

        def hear(name: Name, line: str) -> None:
            _add((logs or {}).get(name), line)
            if IN_USE not in line:
                heard(name, line)
            elif name not in put_off:
                put_off.add(name)
                heard(name, PASSED_OVER)

        def again(name: Name, error: str) -> bool:
            killed[name] += ENDED_BY in error
            is_again = ENDED_BY in error and killed[name] <= _RETRIES
            if is_again:
                hear(name, f"{error}; {STARTED_AGAIN}")
            return is_again

        while waiting:
            now = dict(waiting)
            if self.on is None:
                ended = run_commands(now, self.jobs, hear, again)
            else:
                ended = self._on_ray(now, threads, again, below, logs or {})
            for name, error in ended:
                if IN_USE not in error:
                    del waiting[name]
                    yield name, error
            with stop_request() as stop:
                for _ in range(round(pause / POLL_SECONDS) if waiting else 0):
                    stop.raise_if_set()
                    time.sleep(POLL_SECONDS)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _on_ray(
        self,
        commands: Mapping[Name, Sequence[str]],
        threads: int,
        again: Callable[[Name, str], bool],
        below: Path,
        logs: Mapping[Name, Path],
    ) -> Iterator[tuple[Name, str]]:
        ray = self._connected(threads)
        variables = {name: value for name, value in os.environ.items() if name.startswith(("SPANLM_", "PYTHONPATH"))}
        resources = {"num_cpus": threads, "num_gpus": self.gpus_per_run, "max_retries": _RETRIES}
        with stop_request() as stop, _mark(below) as mark:
            task = ray.remote(_run).options(**resources)

            def begun(name: Name) -> Any:
                log = logs[name].resolve() if name in logs else None
                return task.remote(commands[name], mark, os.getcwd(), variables, log)

            left = {begun(name): name for name in commands}
            try:
                while left:
                    ended, _ = ray.wait([*left], timeout=POLL_SECONDS)
                    stop.raise_if_set()
                    for one in ended:
                        name = left.pop(one)
                        try:
                            error = str(ray.get(one))
                        except ray.exceptions.RayError as problem:
                            error = f"Ray could not run it: {' '.join(str(problem).split())[:200]}"
                        if again(name, error):
                            left[begun(name)] = name
                        else:
                            yield name, error
            finally:
                for one in left:
                    ray.cancel(one)
                if left:
                    ray.wait([*left], num_returns=len(left))  # they save before they end
                ray.shutdown()

    def _connected(self, threads: int) -> Any:
        """Start Ray, or connect to it; refuse runs that no machine can take."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if self.on != "ray" and Path.home().joinpath(".ray", "auth_token").exists():
            os.environ.setdefault("RAY_AUTH_MODE", "token")  # as `ray start` does; who connects is not asked otherwise
        try:
            import ray
        except ImportError:
            raise InputError(f"on={self.on}: there is no Ray here: {installation('ray')}; or use --jobs") from None
        how: dict[str, Any] = {"address": (self.on or "").partition(":")[2] or "local"}
        if how["address"] == "local":
            how |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1", "num_cpus": threads * self.jobs}
            how["object_store_memory"] = 2**27  # nothing large goes through it
        try:
            ray.init(**how, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError, RuntimeError) as error:
            why = str(error).partition("\n")[0]
            raise InputError(f"on={self.on}: no Ray answers: {why}. Start it by `ray start --head`") from None
        machines = [machine["Resources"] for machine in ray.nodes() if machine["Alive"]]
        for field, what, asked in (("jobs", "CPU", threads), ("gpus_per_run", "GPU", self.gpus_per_run)):
            most = max(machine.get(what, 0) for machine in machines)
            if asked > most:
                ray.shutdown()
                way = "Take fewer --threads or more --jobs" if what == "CPU" else "Take less, or leave it out"
                limit = f"at most {most:g}: a run needs {asked:g} {what} of one machine of Ray. {way}"
                require(False, field, getattr(self, field), limit)
        return ray


ONE_BY_ONE = Engine()


def of_spanlm(words: Sequence[str], threads: int) -> list[str]:
    """Return the command that does with so many threads what `spanlm` does after these words."""
    return [sys.executable, "-m", "spanlm", *words, f"--threads={threads}"]


@contextmanager
def _mark(folder: Path) -> Iterator[Path]:
    mark = folder.resolve() / f".{uuid.uuid4().hex}"
    try:
        mark.touch()
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}. Choose another folder.") from None
    try:
        yield mark
    finally:
        mark.unlink(missing_ok=True)


def _add(log: Path | None, line: str) -> None:
    """Add a line to the file of what a command prints; a full disk costs the line alone."""
    if log is not None:
        with suppress(OSError), log.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def _run(words: Sequence[str], mark: Path, folder: str, environment: Mapping[str, str], log: Path | None) -> str:
    """Run a command in a worker of Ray; return its error. When the task is cancelled it gets SIGTERM."""
    if not mark.exists():
        return f"{platform.node()} does not see {mark.parent}: it needs a shared disk"
    if threading.current_thread() is threading.main_thread():
        # cancelling is Ctrl-C to Ray, and what a shell starts in the background ignores that
        signal.signal(signal.SIGINT, signal.default_int_handler)
    last = ""

    def read() -> None:
        nonlocal last
        for last in process.stdout or ():
            _add(log, last.rstrip("\n"))

    with start_command(words, folder, environment) as process:
        reader = threading.Thread(target=read)
        reader.start()
        try:
            while reader.is_alive():
                reader.join(POLL_SECONDS)  # Ray's cancel does not end a longer wait
        except BaseException:
            process.terminate()
            raise
        finally:
            reader.join()
    return command_error(process.returncode, last)
