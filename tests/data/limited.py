"""What takes time with the square of the input takes minutes, where proportion takes a second at most: it is killed."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 20


def endless(module: str, function: str, cases: Sequence[Sequence[str]]) -> Sequence[str]:
    """Call a function of a test module with each of several arguments, in a process of its own.

    Each has 20 seconds of a processor. Returns the first that does not end in them, or none.
    """
    code = f"""
import json, resource, sys, time
from {module} import {function}
hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
for case in json.loads(sys.argv[1]):
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + {SECONDS}, hard))
    {function}(*case)
    print("ended", flush=True)
"""
    command = [sys.executable, "-c", code, json.dumps(cases)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    ended = done.stdout.count("ended\n")
    return cases[ended] if ended < len(cases) else ()
