"""How fast memories and their neighbours train, and how much context they use: `python -m results.neighbours RUNS`.

What `spanlm bench` says of each, on one thread of a machine that should do nothing else, goes into neighbours.jsonl,
and what `spanlm context` says of the test text, if RUNS has a row's training of `spanlm reproduce neighbours --corpus
ptb --scale small --runs RUNS` with the first seed; --speed leaves out the latter.
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
    trainings = Plan(Request(paper="neighbours", corpus="ptb", runs=options.runs)).jobs
    save("neighbours", "speed", "a training step on one thread, bf16, small scale, Penn Treebank", speeds(trainings))
    if not options.speed:
        runs = {task.row.name: task.folder for task in trainings if (task.folder / MODEL).exists()}
        rows = {name: {"scale": "small", **context(run)} for name, run in runs.items()}
        save("neighbours", "context", "bits more a token with the last n words alone, test of Penn Treebank", rows)


if __name__ == "__main__":
    main()
