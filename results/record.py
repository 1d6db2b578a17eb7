"""How the scripts of this folder write what they measured."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from spanlm.store.process import processor_name
from spanlm.store.provenance import file_provenance

_LOAD = os.getloadavg()[0]  # before the script did anything


EVERY_WORD = ("gains", "losses")  # of a comparison: many, and shown nowhere


def done(*words: object, given: str = "") -> str:
    """Return what a command of `spanlm` prints."""
    command = [sys.executable, "-m", "spanlm", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, input=given, encoding="utf-8").stdout


def asked(*words: object) -> dict[str, Any]:
    """Return what a command prints with --json, and the command; of a comparison without single words."""
    found: dict[str, Any] = json.loads(done(*words, "--json"))
    for one in found.get("comparisons", ()):
        for name in EVERY_WORD:
            del one[name]
    return {"command": " ".join(["spanlm", *map(str, words)]), **found}


def write(script: str, what: str, **found: Any) -> None:
    """Write NAME.json beside NAME.py: what it is, what made it, where, beside which load, and what was found."""
    machine = {"machine": f"{os.cpu_count()} cores of {processor_name()}", "load": [_LOAD, os.getloadavg()[0]]}
    text = json.dumps({"what": what, "made": file_provenance(), **machine, **found}, indent=1, ensure_ascii=False)
    Path(script).with_suffix(".json").write_text(f"{text}\n", encoding="utf-8")
