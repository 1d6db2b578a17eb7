"""How fast memories and their neighbours train, and how much context they use: `python -m results.neighbours RUNS`.

`spanlm bench` measures a training step of each row on one thread, so nothing else should run meanwhile. `spanlm
context` reads the test text with the first seed of each row that RUNS has, of `spanlm reproduce neighbours --corpus ptb
--scale small --runs RUNS`, of --rows alone if they are named. Both go into neighbours.jsonl; --only speed or --only
context measures one of them.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from results.record import asked, save
from results.records import Record
from spanlm.papers.plan import Plan, Task
from spanlm.papers.request import Request
from spanlm.store.run_folder import MODEL

SEEDS = 1, 2, 3


def speeds(trainings: Sequence[Task]) -> dict[str, Record]:
    """Return milliseconds of a step and tokens a second of each, in bfloat16."""
    rows = {}
    with TemporaryDirectory() as folder:
        paths = {task.row.name: Path(folder) / f"{task.row.name}.yaml" for task in trainings}
        for task in trainings:
            paths[task.row.name].write_text(task.network.to_yaml(), encoding="utf-8")
        measured = asked("bench", *paths.values(), "--threads", 1, "--rounds", 50)["trainings"]
    for name, path in paths.items():
        (speed,) = (speed for speed in measured[str(path)]["speeds"] if speed["precision"] == "bf16")
        rows[name] = {unit: speed[unit] for unit in ("milliseconds", "tokens_per_second")}
    return rows


CURVES = "truncated", "replaced"
"""Of `spanlm context`: the words before the last n are not read, or others stand in the place of a hundred of them."""


def context(run: Path) -> Record:
    """Return what a model needs more where it knows the last n words alone."""
    use = asked("context", run, "--threads", 1)
    excess = {name: {str(point["words"]): point["excess"] for point in use["curves"][name]} for name in CURVES}
    return {name: use[name] for name in ("bits", "effective", "effective_interval")} | {"excess": excess}


def main() -> None:
    """Ask, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--only", choices=("speed", "context"))
    parser.add_argument("--rows", nargs="+")
    options = parser.parse_args()
    if options.only != "context":
        trainings = Plan(Request(paper="neighbours", corpus="ptb")).jobs
        what = "a training step on one thread, bf16, small scale, Penn Treebank"
        save("neighbours", "speed", what, speeds(trainings))
    if options.only != "speed":
        trainings = Plan(Request(paper="neighbours", corpus="ptb", seeds=SEEDS, runs=options.runs)).jobs
        asked_for = [task for task in trainings if not options.rows or task.row.name in options.rows]
        first = {task.row.name: task for task in reversed(asked_for) if (task.folder / MODEL).exists()}
        rows = {name: {"scale": "small", "of_seed": task.seed, **context(task.folder)} for name, task in first.items()}
        save("neighbours", "context", "bits more a token with the last n words alone, test of Penn Treebank", rows)


if __name__ == "__main__":
    main()
