"""How fast memories and their neighbours train, and how much context they use: `python -m results.neighbours RUNS`.

RUNS has the trainings of `spanlm reproduce neighbours --corpus ptb --scale small --runs RUNS`. What `spanlm bench` says
of each, on one thread of a machine that should do nothing else, and `spanlm context` of the test text with the first
seed, go into neighbours.jsonl; --speed leaves out the latter.
"""

import argparse
import sys
from pathlib import Path

from results.record import asked, save
from results.records import Record
from spanlm.papers.paper import Plain
from spanlm.papers.published.neighbours import PAPER
from spanlm.store.run_folder import CONFIG, MODEL

ROWS = [name for table in PAPER.tables for name, row in table.rows.items() if row.evaluation == Plain()]


def speeds(runs: dict[str, Path]) -> dict[str, Record]:
    """Return milliseconds of a step and tokens a second of each, in bfloat16."""
    configs = {name: run / CONFIG for name, run in runs.items()}
    trainings = asked("bench", *configs.values(), "--threads", 1, "--rounds", 50)["trainings"]
    rows = {}
    for name, config in configs.items():
        (speed,) = (one for one in trainings[str(config)]["speeds"] if one["precision"] == "bf16")
        rows[name] = {unit: speed[unit] for unit in ("milliseconds", "tokens_per_second")}
    return rows


def context(run: Path) -> Record:
    """Return what a model needs more where it has read the last n words alone."""
    use = asked("context", run, "--threads", 1, "--far", 0)
    excess = {str(point["words"]): point["excess"] for point in use["curves"]["truncated"]}
    return {name: use[name] for name in ("bits", "effective", "effective_interval")} | {"excess": excess}


def main() -> None:
    """Ask, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--speed", action="store_true")
    options = parser.parse_args()
    folder = options.runs / "neighbours" / "ptb-small"
    runs = {name: folder / name / "seed-1" for name in ROWS if (folder / name / "seed-1" / MODEL).exists()}
    if not runs:
        sys.exit(f"no trained run in {folder}")
    save("neighbours", "speed", "a training step on one thread, bf16, small scale, Penn Treebank", speeds(runs))
    if not options.speed:
        rows = {name: {"scale": "small", **context(run)} for name, run in runs.items()}
        save("neighbours", "context", "bits more a token with the last n words alone, test of Penn Treebank", rows)


if __name__ == "__main__":
    main()
