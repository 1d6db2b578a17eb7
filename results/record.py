"""How the programs of this folder write what they measured, and how other programs' reports become lines.

python -m results.record PAPER FOLDER   records of `spanlm reproduce --out …`: FOLDER is one of a corpus and scale
python -m results.record speed FILE     reports of `python -m benchmarks --json FILE` and `spanlm bench … --json`
python -m results.record PAPER --to FOLDER   the other way: `spanlm reproduce PAPER --out FOLDER` finds its records
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from results.records import Record, read, write
from spanlm.papers.plan import record_name
from spanlm.papers.table import seeds_of
from spanlm.store.machine import processor_name
from spanlm.store.provenance import file_provenance

_LOAD = os.getloadavg()[0]  # before the program did anything


EVERY_WORD = ("gains", "losses")  # of a comparison: many, and shown nowhere
SHOWN = 0.01  # of a step: an operation that takes less is only in the sum of its kind
KINDS = {"the LSTM's kernel": ("rnn_layer",), "other products": ("_linear", "::mm", "::addmm", "::bmm")}
KINDS |= {"masks": ("::random_", "::bernoulli_"), "copies": ("::copy_", "::cat"), "update": ("::_fused_",)}
"""Of operations, by parts of their names."""


def done(*words: object, given: str = "") -> str:
    """Return what a command of `spanlm` prints."""
    command = [sys.executable, "-m", "spanlm", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, input=given, encoding="utf-8").stdout


def asked(*words: object) -> dict[str, Any]:
    """Return what a command prints with --json, and the command; of a comparison without single words."""
    answer: dict[str, Any] = json.loads(done(*words, "--json"))
    for comparison in answer.get("comparisons", ()):
        for name in EVERY_WORD:
            del comparison[name]
    return {"command": " ".join(["spanlm", *map(str, words)]), **answer}


def save(name: str, table: str, what: str, rows: Mapping[str, Record]) -> None:
    """Put rows into a table of NAME.jsonl: each with what it is, what made it, where and beside which load."""
    about: Record = {
        "what": what,
        "starts": [file_provenance()],
        "machine": f"{os.cpu_count()} cores of {processor_name()}",
    }
    about["load"] = [_LOAD, os.getloadavg()[0]]
    write(name, ({"table": table, "row": row, **about, **measured} for row, measured in rows.items()))


def lines(path: Path) -> Iterator[Record]:
    """Return the records of a file: of a run, of a sweep (CSV), of a report on speed, or any other as one row."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        for cells in csv.DictReader(text.splitlines()):
            run = cells.pop("run")
            yield {"table": path.stem, "row": run, **{name: _value(x) for name, x in cells.items() if x}}
        return
    report = json.loads(text)
    parts = {name: report.pop(name) for name in ("groups", "trainings", "ranks", "engines") if name in report}
    if "row" in report:
        folder = path.parent.name
        yield {"table": folder, "scale": folder.rpartition("-")[2], **report}
    elif not parts:
        yield {"table": path.stem, "row": path.stem, **report}
    report |= {"starts": [report.pop("started")]} if "started" in report else {}
    for size, contenders in parts.get("groups", {}).items():
        for run in contenders:
            yield report | {"table": path.stem, "row": f"{size}: {run['name']}", "size": size, **run}
    for preset, training in parts.get("trainings", {}).items():
        same = report | {name: x for name, x in training.items() if name != "speeds"}
        for speed in training["speeds"]:
            row = f"{preset}, {speed['precision']}"
            yield same | {"table": path.stem, "row": row, "preset": preset, **_summed(speed)}
    options = report.pop("options", {})
    for table in ("ranks", "engines"):
        for run in parts.get(table, ()):
            yield report | {"table": table, "options": options[table], "row": run.pop("run"), **run}


def _value(text: str) -> object:
    """Return a number for what is one."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _summed(speed: Record) -> Record:
    """Sum a step's operations by kind, and keep only those apart that take long."""
    step, kinds = speed.get("watched"), dict.fromkeys(KINDS, 0.0)
    if not step:
        return speed
    for operation in step["operations"]:
        kind = next((kind for kind, parts in KINDS.items() if any(part in operation["name"] for part in parts)), None)
        kinds |= {kind: kinds[kind] + operation["milliseconds"]} if kind else {}
    long = [operation for operation in step["operations"] if operation["milliseconds"] >= SHOWN * step["milliseconds"]]
    return speed | {"watched": {"milliseconds": step["milliseconds"], "kinds": kinds, "operations": long}}


def _written(name: str, folder: Path) -> None:
    for table, rows in read(name).items():
        for record in (row for row in rows if {"preset", "corpus", "starts"} <= row.keys()):
            seeds = seeds_of(record)
            path = folder / name / table / record_name(record["row"], seeds[0] if len(seeds) == 1 else None)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Read or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--to", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    for path in options.paths:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        write(options.name, (line for file in files for line in lines(file)))
    if options.to:
        _written(options.name, options.to)


if __name__ == "__main__":
    main()
