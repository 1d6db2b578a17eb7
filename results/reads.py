"""What q reads, beside no buffer: `python results/reads.py CONTROL RUN` writes reads.json.

CONTROL and RUN are folders of `spanlm sweep results/li2020/reads.yaml`.
"""

import sys
from pathlib import Path

from record import asked, write

from spanlm.store.provenance import starts
from spanlm.store.run_folder import epoch_rows

VALID = "--split", "valid"


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
        control=asked("evaluate", control, *VALID),
        sum=asked("evaluate", run, "--parts", *VALID),
        at_temperature_1=asked("evaluate", run, "--parts", "--gate-temperature", "1", *VALID),
        compared=asked("compare", control, run, *VALID),
    )


if __name__ == "__main__":
    main()
