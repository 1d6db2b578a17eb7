"""Trains the demo run in the background if it does not exist, while the server already answers."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from spanlm.errors import SpanlmError
from spanlm.jobs import command_error, start_command
from spanlm.serve.served import Runs
from spanlm.store.run_folder import MODEL

_LOG = logging.getLogger(__name__)

DEMO = Path("runs/demo")


def is_there() -> bool:
    return (DEMO / MODEL).is_file()


class Training:
    """A process of `spanlm train`; adds its run to `runs` and calls `ready` when it has ended."""

    def __init__(self, runs: Runs, device: str, ready: Callable[[], object], threads: int | None = None) -> None:
        self._runs, self._device, self._ready, self._threads = runs, device, ready, threads
        self._process: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        self._runs.progress = "The demo is being trained, once. The page goes on by itself."
        command = [sys.executable, "-m", "spanlm", "train", "--out", str(DEMO), "--resume", "auto", "--no-tour"]
        command += [] if self._device == "auto" else ["--device", self._device]
        command += [] if self._threads is None else ["--threads", str(self._threads)]
        self._process = start_command(command)
        threading.Thread(target=self._follow, args=(self._process,), daemon=True).start()

    def end(self) -> None:
        """Stop the process; the next one resumes from its checkpoint."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        lines = deque[str](maxlen=1)
        with process:
            for line in process.stdout or ():
                lines.append(line.strip())
                if line.startswith("epoch"):
                    at = " ".join(line.split())
                    self._runs.progress = f"The demo is being trained, once: {at}. The page goes on by itself."
        error = command_error(process.returncode, lines[-1] if lines else "")
        try:
            if not error:
                self._runs.add(str(DEMO), self._device)
        except SpanlmError as problem:
            error = str(problem)
        self._runs.progress = f"The demo could not be trained: {error}" if error else None
        if error:
            _LOG.error("%s", self._runs.progress)
        else:
            self._ready()
