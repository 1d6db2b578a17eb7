"""Makes the goldens: `python -m tests.goldens.make [NAME …]` writes tests/goldens/data/NAME.json anew, by default all.

The tests call the same functions and compare. The folders under data/runs were made by spanlm 0.1.0 (commit d184f9b)
and are never made anew: what reads them must go on reading them.
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
from spanlm.cli.main import main
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

RECORDS = {
    "daniluk2017": ("2b", "2-gram"),
    "salton2017": ("1", "single-ptb"),
    "li2020": ("1", "awd-snb-ptb", "awd-snb-ptb-dynamic"),
}
"""A table of each paper, and rows of it that 0.1.0 measured."""

METHODS = ("evaluate", "score", "attend", "generate", "cloze")
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
    "tuned dynamic": "kvp --dynamic --dynamic-rate 1e-4 1e-3 --dynamic-epsilon 0.01 --tune-dynamic",
    "dynamic, training's loss": "spans --dynamic --dynamic-loss training --dynamic-rate 1e-4 --parts",
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


# ---------------------------------------------------------------- run folders and records of 0.1.0


def old_runs() -> Tree:
    """Of runs of 0.1.0 whose text was moved: NLL of the finished, and how the killed ones end."""
    found: Tree = {name: evaluated(Path("runs") / name, "text") for name in OLD}
    for name in UNFINISHED:
        folder = Path("runs") / name
        # not to the end they were meant for: rounding grows with every step, and machines would not agree
        ending = ("--training.epochs", "14", "--data.dir", ".", "--no-tour")
        command("train", "--out", folder, "--resume", "auto", *ending)
        losses = [row["loss"] for row in rows(folder) if row["event"] == "valid"]
        found[name] = {**evaluated(folder, "text"), "valid_losses": losses, "sha256": weights_sha256(folder)}
    return found


def old_records() -> Tree:
    """What a table shows of records of 0.1.0: every perplexity of theirs, and nothing is trained."""
    shutil.copytree(DATA / "records", "results")
    found: Tree = {}
    for paper, (number, *names) in RECORDS.items():
        words = ("--table", number, "--rows", *names, "--runs", "none", "--device", "cpu")
        command("reproduce", paper, "--scale", "smoke", "--corpus", "text", *words)
        page = " ".join(path.read_text(encoding="utf-8") for path in Path("results", paper).rglob("*.md"))
        for name in names:
            (path,) = Path("results", paper).rglob(f"{name}-seed-1.json")
            ppl = json.loads(path.read_text(encoding="utf-8"))["test"]["perplexity"]
            found[name] = {"perplexity": ppl, "shown": f"{ppl:,.1f}" in page}
    assert not list(Path("none").rglob("config.yaml")), "trained again"
    return found


# ---------------------------------------------------------------- names


def options(verb: str) -> list[str]:
    """Return the options that a verb's help shows, and those of the golden that it does not show and still takes."""
    pages = _printed(*verb.split(), "--help") + _printed(*verb.split(), "--help", "all")
    terms = (line.strip().partition("  ")[0] for line in pages.splitlines() if line.lstrip().startswith("-"))
    shown = set(re.findall(r"(?<![\w-])--[A-Za-z][\w.-]*", " ".join(terms)))
    known = golden("surface")["options"].get(verb, []) if (DATA / "surface.json").exists() else []
    unseen = [name for name in known if name not in shown]
    return sorted(
        [*shown, *(x for x in unseen if f"unknown option {x}" not in _printed(*verb.split(), x, "--no-such"))]
    )


def _printed(*arguments: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        main(list(arguments))
    return out.getvalue() + err.getvalue()


def surface() -> Tree:
    """Names: of Python, verbs, options, fields of config.yaml, files of a run's folder, keys of what a run tells."""
    verbs = re.findall(r"^  ([a-z]+)  ", _printed("--help"), re.MULTILINE)
    found: Tree = {
        "python": spanlm.__all__,
        "of a model": [x for x in dir(spanlm.TrainedModel) if x in METHODS or x.startswith("tune_")],
        "verbs": verbs,
        "options": {verb: options(verb) for verb in [*verbs, "data wikipedia"]},
    }
    for name in ("daniluk2017/kvp-w5", "li2020/mos-ps-at-snb-ptb"):
        folder = trained(shrunk(name, "text"), Path("surface") / name)
        files = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        started = (folder / "provenance.jsonl").read_text(encoding="utf-8").splitlines()
        found[name] = {
            "files": sorted({re.sub(r"\d{4,}", "N", file) for file in files}),
            "metrics": {line["event"]: types(line) for line in lines},
            "provenance": types(json.loads(started[0])),
            "config": flat(types(spanlm.RunConfig.load(folder / "config.yaml").to_tree())),
        }
    return found


def written_json() -> Tree:
    """The types of what says how fast this machine is, or what other programs made: bench, reproduce, data."""
    articles = [
        {
            "id": str(number),
            "url": "",
            "title": f"Cats {number}",
            "text": f"Cats {number}\n\nThe cat sat. It ran {number}.\n" * 9,
        }
        for number in range(9)
    ]
    Path("wiki.jsonl").write_text("".join(json.dumps(article) + "\n" for article in articles), encoding="utf-8")
    command("data", "wikipedia", "--source", "wiki.jsonl", "--out", "wiki", "--coverage", "1", "--jobs", "1")
    options = ("--scale", "smoke", "--corpus", "text", "--device", "cpu", "--out", "new", "--runs", "new-runs")
    command("reproduce", "daniluk2017", "--table", "2b", "--rows", "2-gram", *options)
    (record,) = Path("new").rglob("2-gram-seed-1.json")
    return {
        "bench": types(json.loads(command("bench", "demo", "--rounds", "1", "--device", "cpu", "--json"))),
        "reproduce": types(json.loads(record.read_text(encoding="utf-8"))),
        "wikipedia": types(json.loads(Path("wiki/corpus.json").read_text(encoding="utf-8"))),
    }


# ---------------------------------------------------------------- killed and resumed

KINDS = {
    "SGD with a decaying rate": "zaremba2014/medium",
    "key-value-predict, Adam": "daniluk2017/kvp-w5",
    "pointer sentinel": "merity2017/pointer-ptb",
    "attentive, sentences": "salton2017/combined-ptb",
    "AWD-LSTM, NT-ASGD, finetuned": "merity2018/awd-ptb",
    "mixture of softmaxes, groups of streams": "yang2018/mos-wt2",
    "span buffer, reward, adversarial, partly shuffled": "li2020/mos-ps-at-snb-ptb",
}


def kind_config(kind: str) -> spanlm.RunConfig:
    """Long enough to be killed on its way."""
    return shrunk(KINDS[kind], "text", epochs=20, checkpoint_every=3)


def undisturbed() -> Tree:
    """The weights of one run of each kind."""
    wholes = {kind: trained(kind_config(kind), Path("whole") / name) for kind, name in KINDS.items()}
    return {kind: {"sha256": weights_sha256(folder)} for kind, folder in wholes.items()}


# ---------------------------------------------------------------- files


MAKERS: dict[str, Callable[[], Json]] = {
    "numbers": numbers,
    "states": states,
    "evaluations": evaluations,
    "scores": scores,
    "clozes": clozes,
    "attentions": attentions,
    "generated": generated,
    "presets": presets,
    "old_runs": old_runs,
    "old_records": old_records,
    "surface": surface,
    "written_json": written_json,
    "undisturbed": undisturbed,
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
    processors = {**golden("processor"), **dict.fromkeys(made, processor())}
    for name, value in {**made, "processor": processors}.items():
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
