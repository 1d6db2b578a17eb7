"""How much context memories and their neighbours use: `python -m results.neighbours RUNS` writes neighbours.jsonl.

RUNS has the trainings of `spanlm reproduce neighbours --corpus ptb --scale small --runs RUNS`; `spanlm context` reads
the test text with the first seed of each.
"""

import argparse
import sys
from pathlib import Path

from results.record import asked, save
from results.records import Record
from spanlm.papers.paper import Plain
from spanlm.papers.published.neighbours import PAPER
from spanlm.store.run_folder import MODEL

ROWS = [name for name, row in PAPER.tables[0].rows.items() if row.evaluation == Plain()]


def use(run: Path) -> Record:
    """Return what a model needs more where it has read the last n words alone."""
    told = asked("context", run, "--threads", 1, "--far", 0)
    excess = {str(point["words"]): point["excess"] for point in told["curves"]["truncated"]}
    return {name: told[name] for name in ("bits", "effective", "effective_interval")} | {"excess": excess}


def main() -> None:
    """Ask, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    folder = parser.parse_args().runs / "neighbours" / "ptb-small"
    runs = {name: folder / name / "seed-1" for name in ROWS}
    if not (trained := {name: run for name, run in runs.items() if (run / MODEL).exists()}):
        sys.exit(f"no trained run in {folder}")
    rows = {name: {"scale": "small", **use(run)} for name, run in trained.items()}
    save("neighbours", "context", "bits more a token with the last n words alone, test of Penn Treebank", rows)


if __name__ == "__main__":
    main()
