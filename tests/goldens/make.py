"""Makes the goldens: `python -m tests.goldens.make [NAME …]` writes tests/goldens/data/NAME.json anew, by default all.

The tests call the same functions and compare. The folders under data/runs were made by spanlm 0.1.0 and are never made
anew: what reads them must go on reading them. (`python -m tests.goldens.old` made them.)
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import spanlm
from tests.goldens.small import (
    Json,
    Tree,
    command,
    evaluated,
    make_text,
    rows,
    shapes,
    shrunk,
    trained,
    weights_sha256,
)

DATA = Path(__file__).parent / "data"
OLD = ("kvp", "kvp-2", "spans", "sentences", "pointer")
"""Finished runs of 0.1.0."""

UNFINISHED = ("kvp-unfinished", "awd-unfinished")
"""Runs of 0.1.0 that were killed."""

GONE = "(gone)"
CHANGING = {
    *("time", "tokens_per_second", "seconds", "training_seconds", "commit", "changed", "command", "spanlm", "torch"),
    *("python", "processor", "cores", "threads", "device", "run", "runs", "file", "folder", "path"),
}
"""Keys whose values tell of the machine, the moment or the place: of them only the type is kept."""


def processor() -> Tree:
    """Return what the last bits of a sum depend on, beside the number of threads."""
    found = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        parts = (re.search(rf"^{name}\s*: (.*)$", text, re.MULTILINE) for name in ("vendor_id", "cpu family", "model"))
        found = " ".join(part[1] for part in parts if part) or found
    return {"cpu": found, "capability": torch.backends.cpu.get_cpu_capability(), "torch": torch.__version__}


@contextlib.contextmanager
def working(folder: Path) -> Iterator[None]:
    """Work in a folder that has the text and, in `runs`, copies of the runs of 0.1.0."""
    make_text(folder / "text")
    shutil.copytree(DATA / "runs", folder / "runs", dirs_exist_ok=True)
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.delenv("SPANLM_DATA", raising=False)
        patch.setenv("SPANLM_CACHE", str(folder / "cache"))
        yield


def kept(value: Json, key: str = "") -> Json:
    """Return what of an output must stay: numbers, words; of prose, and of what changes, that it is there."""
    if isinstance(value, dict):
        return {name: kept(item, name) for name, item in value.items()}
    if isinstance(value, list) and key not in CHANGING:
        return [kept(item, key) for item in value]
    if key in CHANGING or (isinstance(value, str) and " " in value):
        return f"({types(value)})"
    return value


def types(value: Json) -> Json:
    """Return the same tree with types for values, and of a list the type of its first item."""
    if isinstance(value, dict):
        return {name: types(item) for name, item in value.items()}
    if isinstance(value, list):
        return [types(item) for item in value[:1]]
    if isinstance(value, bool) or value is None:
        return "null" if value is None else "bool"
    return "text" if isinstance(value, str) else "number"


def flat(tree: Tree, prefix: str = "") -> Tree:
    """Return what is in nested dictionaries by full names."""
    found: Tree = {}
    for name, value in tree.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def table(text: str, delimiter: str = ",") -> Json:
    """Return the rows of a CSV file, numbers as numbers."""

    def cell(word: str) -> Json:
        try:
            return json.loads(word) if word != "NaN" else word
        except ValueError:
            return word

    return [[cell(word) for word in row] for row in csv.reader(io.StringIO(text), delimiter=delimiter)]


# ---------------------------------------------------------------- numbers and states of the published rows


def preset_numbers(name: str, folder: Path) -> Tree:
    """Train a row in small: loss of every step and validation, then NLL of valid and test, and the weights."""
    trained(shrunk(name, "text"), folder)
    told = rows(folder)
    return {
        "losses": [row["loss"] for row in told if row["event"] == "train"],
        "valid_losses": [row["loss"] for row in told if row["event"] == "valid"],
        **evaluated(folder, "text"),
        "sha256": weights_sha256(folder),
    }


def numbers() -> Tree:
    """Of every preset."""
    return {name: preset_numbers(name, Path("made") / name) for name in spanlm.PRESETS}


def states() -> Json:
    """Every preset's `state_dict`: keys with dtypes and shapes; presets that share one stand together."""
    found: dict[str, list[str]] = {}
    for name in spanlm.PRESETS:
        folder = Path("made") / name
        if not folder.exists():
            trained(shrunk(name, "text"), folder)
        found.setdefault(json.dumps(shapes(folder)), []).append(name)
    return [{"presets": names, "state": json.loads(state)} for state, names in found.items()]


# ---------------------------------------------------------------- what the verbs print and write

TEXT = "the cat sat on the mat . zebra is bound"
QUESTION = "\n".join(
    [*(f"{number} the cat sat on the mat ." for number in range(1, 21)), "21 the XXXXX ran .\tdog\t\tdog|cat|mat", ""]
)
EVALUATIONS = {
    "plain": "kvp",
    "document": "kvp --split valid --state document",
    "line": "kvp --state line --batch-size 2",
    "file": "kvp --corpus text/test.txt",
    "sentences": "sentences",
    "pointer": "pointer",
    "spans": "spans",
    "parts": "spans --parts",
    "gate": "spans --parts --gate-temperature 1",
    "cache": "kvp --cache 20 --cache-theta 0.3 --cache-lambda 0.1",
    "tuned cache": "kvp --cache 20 --cache-theta 0.2 0.4 --cache-lambda 0.05 0.2 --tune-cache",
    "dynamic": "kvp --dynamic --dynamic-rate 0.0001 --dynamic-epsilon 0.01",
    "tuned dynamic": "kvp --dynamic --dynamic-rate 1e-4 1e-3 --dynamic-epsilon 0.01 --dynamic-decay 0.01 --tune-dynamic",
    "dynamic, training's loss": "spans --dynamic --dynamic-loss training --dynamic-rate 1e-4 --dynamic-epsilon 0.01 --parts",
    "ensemble": "kvp kvp-2",
    "geometric ensemble": "kvp kvp-2 --combine geometric --weights 0.25 0.75",
    "tuned ensemble": "kvp kvp-2 --tune-weights",
    "ensemble with cache": "kvp kvp-2 --cache 20 --cache-theta 0.3 --cache-lambda 0.1",
}
SCORES = {
    "plain": "kvp --format jsonl --eos",
    "document": "kvp --format jsonl --state document --base e",
    "sentences": "sentences --format jsonl",
    "spans": "spans --format jsonl --gate-temperature 1 --state carry",
    "ensemble": "kvp kvp-2 --format jsonl --base 10",
}
CLOZES = {
    "plain": "kvp questions.txt",
    "contexts": "kvp questions.txt --context full --context query --context none",
    "ensemble": "kvp kvp-2 questions.txt",
}
ATTENTIONS = {
    "text": ["kvp", "--text", TEXT, "--out", "attend.csv"],
    "document": ["kvp", "--document", "1", "--words", "12", "--out", "attend.csv"],
    "by lag": ["kvp", "--by-lag", "--out", "attend.json"],
    "by lag, several": ["kvp", "kvp-2", "--by-lag", "--split", "valid", "--out", "attend.csv"],
    "sentence": ["sentences", "--sentence", TEXT, "--out", "attend.json"],
    "flatness": ["sentences", "--flatness", "--out", "attend.json"],
    "pointer": ["pointer", "--text", TEXT, "--out", "attend.csv"],
    "spans of a text": ["spans", "--text", TEXT, "--out", "attend.json"],
    "spans of a stretch": ["spans", "--from", "9", "--words", "12", "--out", "attend.csv"],
    "spans by lag": ["spans", "--by-lag", "--out", "attend.json"],
    "flatness of spans": ["spans", "--flatness", "--out", "attend.json"],
    "spans by epoch": ["spans", "--by-epoch", "--out", "attend.json"],
}


_MOVED = ("--data-dir", ".")
"""Where the text is now."""


def _on_runs(words: list[str]) -> list[str]:
    return [f"runs/{word}" if word in OLD else word for word in words]


def evaluations() -> Tree:
    """Of `spanlm evaluate --json`."""
    return {
        name: kept(json.loads(command("evaluate", *_on_runs(line.split()), *_MOVED, "--json")))
        for name, line in EVALUATIONS.items()
    }


def scores() -> Tree:
    """Of `spanlm score`: each row, in both formats."""
    found: Tree = {}
    Path("short.txt").write_text(f"{TEXT}\n\nHe said 猫 .\nthe <unk> ran\n", encoding="utf-8")
    for name, line in SCORES.items():
        printed = command("score", *_on_runs(line.split()), "short.txt")
        found[name] = [kept(json.loads(row)) for row in printed.splitlines()]
    return {**found, "tsv": table(command("score", "runs/kvp", "short.txt"), "\t")}


def clozes() -> Tree:
    """Of `spanlm cloze --json`, and its file."""
    Path("questions.txt").write_text(QUESTION, encoding="utf-8")
    found = {}
    for name, line in CLOZES.items():
        told = json.loads(command("cloze", *_on_runs(line.split()), "--json", "--out", "ranks.jsonl"))
        ranks = [json.loads(row) for row in Path("ranks.jsonl").read_text(encoding="utf-8").splitlines()]
        found[name] = kept({"told": told, "ranks": ranks})
    return found


def attentions() -> Tree:
    """What `spanlm attend` writes."""
    found = {}
    for name, words in ATTENTIONS.items():
        command("attend", *_on_runs(words), *_MOVED)
        text = Path(words[-1]).read_text(encoding="utf-8")
        found[name] = kept(json.loads(text)) if words[-1].endswith(".json") else table(text)
        Path(words[-1]).unlink()
    return found


def generated() -> Tree:
    """What `spanlm generate` draws: the order of random draws."""
    lines = {
        "plain": "kvp --seed 7 --length 30",
        "cut": "kvp --seed 3 --length 30 --top-k 9 --top-p 0.9 --temperature 0.8",
        "spans": "spans --seed 2 --length 30",
        "ensemble": "kvp kvp-2 --seed 5 --length 30 --unk",
    }
    return {
        name: command("generate", *_on_runs(line.split()), "--prompt", "the cat").split()
        for name, line in lines.items()
    }


def presets() -> Tree:
    """Of `spanlm presets --json`."""
    return {row["name"]: flat(kept(row)) for row in json.loads(command("presets", "--json"))}


# ---------------------------------------------------------------- main


MAKERS: dict[str, Callable[[], Json]] = {
    "numbers": numbers,
    "states": states,
    "evaluations": evaluations,
    "scores": scores,
    "clozes": clozes,
    "attentions": attentions,
    "generated": generated,
    "presets": presets,
}
"""File of data/ -> what makes it, in a folder of `working`."""


def golden(name: str) -> Json:
    """Read one."""
    found = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    if name == "presets":
        row: Tree = {}
        for preset, changed in found.items():
            found[preset] = row = {key: x for key, x in {**row, **changed}.items() if x != GONE}
    return found


def as_changes(found: Tree) -> Tree:
    """Return of each preset what the one before it has not: presets are much like each other."""
    before: Tree = {}
    changes = {}
    for preset, row in found.items():
        kept_out = {key: GONE for key in before if key not in row}
        changes[preset] = {**{key: x for key, x in row.items() if before.get(key, GONE) != x}, **kept_out}
        before = row
    return changes


def make(names: list[str]) -> None:
    """Write goldens."""
    with tempfile.TemporaryDirectory() as folder, working(Path(folder)):
        made = {name: MAKERS[name]() for name in names}
    for name, value in {**made, "processor": processor()}.items():
        value = as_changes(value) if name == "presets" else value
        (DATA / f"{name}.json").write_text(written(value) + "\n", encoding="utf-8")


def written(value: Json) -> str:
    """Return JSON text with a line an entry."""
    dump = lambda item: json.dumps(item, ensure_ascii=False)  # noqa: E731
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(dump, value)) + "\n]"
    return "{\n" + ",\n".join(f"{dump(name)}: {dump(item)}" for name, item in value.items()) + "\n}"


if __name__ == "__main__":
    make(sys.argv[1:] or list(MAKERS))
