"""What q reads, beside no buffer: `python results/reads.py CONTROL RUN` writes reads.json.

CONTROL and RUN are folders of `spanlm sweep results/li2020/reads.yaml`.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from record import write

from spanlm.store.provenance import starts
from spanlm.store.run_folder import epoch_rows

EVERY_WORD = ("gains", "losses")


def _asked(*words: str) -> dict[str, Any]:
    command = ["spanlm", *words, "--split", "valid", "--json"]
    done = subprocess.run([sys.executable, "-m", *command], check=True, stdout=subprocess.PIPE, encoding="utf-8")
    found = json.loads(done.stdout)
    for one in found.get("comparisons", ()):
        for name in EVERY_WORD:
            del one[name]
    return {"command": command, **found}


def main() -> None:
    """Ask, and write."""
    control, run = sys.argv[1:]
    write(
        __file__,
        "AWD-LSTM at a fifth of its width without a buffer and with one whose q is predicted from h_t + ξ_t",
        runs={
            name: {"starts": starts(Path(name)), "valid": [row["perplexity"] for row in epoch_rows(Path(name))]}
            for name in (control, run)
        },
        control=_asked("evaluate", control),
        sum=_asked("evaluate", run, "--parts"),
        at_temperature_1=_asked("evaluate", run, "--parts", "--gate-temperature", "1"),
        compared=_asked("compare", control, run),
    )


if __name__ == "__main__":
    main()
