"""Real processes to kill, started quickly: one that has imported everything forks the others.

`python -m tests.training.processes` is the one that forks. It takes one line of JSON a request on its standard
input and answers with one number: the id of a process that it started, or how one ended.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE = 300
"""Seconds after which a process ends itself: a test that hangs must fail instead."""


class Processes:
    """Starts functions of `tests.training.tasks`, each in a process of its own."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._parent = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=ROOT,
            env=environment,
        )

    def _ask(self, **request: Any) -> int:
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(request) + "\n")
        return int(self._parent.stdout.readline())

    def start(
        self, task: str, output: Path | None = None, environment: dict[str, str] | None = None, **arguments: Any
    ) -> int:
        """Start a task with variables of its own; `output` gets what it prints. Returns the process id."""
        where = str(output) if output is not None else os.devnull
        return self._ask(task=task, output=where, environment=environment or {}, arguments=arguments)

    def wait(self, pid: int) -> int:
        """Return the exit status of a process, or minus the signal that ended it."""
        return os.waitstatus_to_exitcode(self._ask(wait=pid))

    def run(self, task: str, output: Path | None = None, **arguments: Any) -> int:
        return self.wait(self.start(task, output, **arguments))

    def close(self) -> None:
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait()
        self._parent.stdout.close()


def _child(request: dict[str, Any], task: Any) -> None:
    signal.alarm(PATIENCE)
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(request["environment"])
    status = 70
    try:
        status = task(**request["arguments"]) or 0
    except SystemExit as ended:
        status = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _serve() -> None:
    tasks = importlib.import_module("tests.training.tasks")
    with tempfile.TemporaryDirectory() as folder:  # what is imported late is imported now, once
        tasks.train_run("no memory, streams, sgd, step, two layers", folder)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitpid(request["wait"], 0)[1]
        else:
            answer = os.fork()
            if answer == 0:
                _child(request, getattr(tasks, request["task"]))
        print(answer, flush=True)


if __name__ == "__main__":
    _serve()
