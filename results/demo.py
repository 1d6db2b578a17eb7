"""The numbers of README and docs on the demo: `python results/demo.py FOLDER` writes demo.json.

FOLDER has runs/demo as `spanlm train`, given nothing else, leaves it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from record import write

from spanlm.store.provenance import starts

EXAMPLES = Path(__file__).parents[1] / "examples"
STIMULI = "".join((EXAMPLES / "stimuli.csv").read_text(encoding="utf-8").splitlines(keepends=True)[:2])
EVERY_WORD = ("gains", "losses")  # of a comparison: many, and shown nowhere


def _done(command: str, given: str = "") -> str:
    words = [sys.executable, "-m", *command.split()]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, input=given, encoding="utf-8").stdout


def _asked(command: str) -> dict[str, Any]:
    return {"command": command, **json.loads(_done(f"{command} --json"))}


def _compared(command: str) -> dict[str, Any]:
    found = _asked(command)
    for one in found["comparisons"]:
        for name in EVERY_WORD:
            del one[name]
    return found


def main() -> None:
    """Ask, and write."""
    os.chdir(Path(sys.argv[1]))
    for name in ("dev.nbest", "dev.refs"):
        Path(name).write_bytes((EXAMPLES / name).read_bytes())
    runs = "runs/demo", "runs/demo/lstm"
    write(
        __file__,
        "spanlm train, given nothing else; the text differs between versions of Python, and so do these numbers",
        training={run: starts(Path(run)) for run in runs},
        evaluations={
            f"{run} {split}": _asked(f"spanlm evaluate {run} --split {split}")
            for run in runs
            for split in ("valid", "test")
        },
        score=_done("spanlm score runs/demo -", "the name is bound\n").splitlines(),
        stimuli=_done("spanlm score runs/demo - --input csv --text sentence", STIMULI).splitlines(),
        without_memory=_asked("spanlm evaluate runs/demo --split valid --attention none"),
        by_lag=_done("spanlm attend runs/demo --by-lag --split valid").splitlines(),
        rescore=_asked("spanlm rescore runs/demo --nbest dev.nbest --refs dev.refs --tune"),
        compare=_compared("spanlm compare runs/demo/lstm runs/demo"),
        worth=_compared("spanlm compare runs/demo --attention none --cache 500 --tune-cache"),
        context=_asked("spanlm context runs/demo --split valid"),
    )


if __name__ == "__main__":
    main()
