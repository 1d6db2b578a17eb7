"""What spanlm 0.2.0 computed, printed and wrote, which the installed spanlm must compute, print and write, too.

`goldens.json.gz` has the numbers, `runs.zip` runs that 0.2.0 trained, which are never made anew: published rows in
small, some finished, some killed, and a trigram model. On the processor and with the torch that made a golden, floats
are compared bit for bit; elsewhere sums are added in another order, so floats are compared to a relative 1e-5,
printed numbers to what three digits hold, and digests of weights not at all.

`python -m tests.goldens.test_goldens [PART …]` makes goldens anew: `tables` after a change of what is printed. What may
be missing is listed, with the reason, in `REMOVED`.
"""

import contextlib
import csv
import gzip
import hashlib
import io
import json
import math
import platform
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch

import spanlm
from spanlm.cli.main import main
from tests.cases import rest_slow
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

HERE = Path(__file__).parent
GOLDENS, RUNS = HERE / "goldens.json.gz", HERE / "runs.zip"
REMOVED: dict[str, str] = {
    r".*python/Scorer": "ten lines over `spanlm.load`, which docs/interop.md shows",
    r".*/options/bench/--compare-threads": "`spanlm bench --threads N` for each N says the same",
    r".*/options/evaluate/--dynamic-length": "the published 5 is left",
    r".*/options/evaluate/--dynamic-convention": "numbers of the first release are divided by hand: √n, K",
    r".*/options/data wikipedia/--(coverage|keep-partial)": "--vocabulary says it; a damaged source is fetched again",
    r".*corpus\.json/options/(coverage|keep_partial)|.*corpus\.json/sources/0/damage(d_lines)?": "went with them",
    r".*model[./]head[./]adversarial_(direction|gate)": "one value is left, the presets'",
    r".*model[./]memory[./](attention_size|score|reward[./](power|most|base|slope))": "of the span buffer, likewise",
}
"""What is in a golden and may be missing: a regular expression of its path -> the reason."""

CHANGING = {
    *("time", "tokens_per_second", "seconds", "training_seconds", "commit", "changed", "command", "spanlm", "torch"),
    *("python", "processor", "cores", "threads", "device", "run", "runs", "file", "folder", "path"),
    "tokens_read",  # fewer where no KenLM is installed
}
"""Keys whose values tell of the machine, the moment or the place: only their types are kept."""

DERIVED = {"nll_per_token", "bits_per_token", "oov_share", "unk_share", "perplexity_without_unk", "nats", "log10"}
"""Keys whose values follow from others: likewise."""

KILLED = {"kvp-killed": "daniluk2017/kvp-w5", "awd-killed": "merity2018/awd-ptb"}

FILES = {
    "short.txt": "the cat sat on the mat . zebra is bound\n\nHe said 猫 .\nthe <unk> ran\n",
    "questions.txt": "".join(f"{number} the cat sat on the mat .\n" for number in range(1, 21))
    + "21 the XXXXX ran .\tdog\t\tdog|cat|mat\n",
    "stimuli.csv": "item,sentence\n1,The cat sat on the mat.\n2,the dog ran .\n2,a zebra sat\n",
    "pairs.jsonl": "".join(
        json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": "order"}) + "\n"
        for good, bad in (("the cat sat .", "cat the sat ."), ("a dog ran .", "a zebra ran ."))
    ),
    "critical.jsonl": "".join(
        json.dumps({"sentence_good": good, "sentence_bad": bad, "at": at, "UID": uid}) + "\n"
        for good, bad, at, uid in (
            ("the cat sat .", "the dog sat .", "2-3", "order"),
            ("a zebra ran .", "a gnu ran .", "2", "unknown"),  # a tie
        )
    ),
    "lists.nbest": "".join(
        f"{name} ||| {words} ||| AM= {score} ||| {score}\n"
        for name, words, score in (
            *(("u1", "the cat sat on mat .", -1.0), ("u1", "the cat sat on the mat .", -1.5), ("u1", "a cat sat", -2)),
            *(("u2", "the dog run .", -0.5), ("u2", "the dog ran .", -0.75), ("u2", "dog ran", -0.25)),
        )
    ),
    "refs.txt": "u1 the cat sat on the mat .\nu2 the dog ran .\n",
    "wiki.jsonl": "".join(
        json.dumps({"id": str(n), "url": "", "title": f"Cats {n}", "text": f"Cats {n}\n\nThe cat sat. {n} ran.\n" * 9})
        + "\n"
        for n in range(9)
    ),
}
TEXT = "the cat sat on the mat . zebra is bound"
LISTS = "--nbest lists.nbest --refs refs.txt --json --out out/best.txt --scores out/scores.tsv"
COMMANDS = {
    "evaluate": "evaluate kvp --json",
    "evaluate, document": "evaluate kvp --split valid --state document --json",
    "evaluate, line": "evaluate kvp --state line --batch-size 2 --json",
    "evaluate, file": "evaluate kvp --corpus text/test.txt --json",
    "evaluate, sentences": "evaluate sentences --json",
    "evaluate, pointer": "evaluate pointer --json",
    "evaluate, n-gram": "evaluate kn3 --json",
    "evaluate, n-gram with a cache": "evaluate kn3 --cache 5 --cache-theta 0 --cache-lambda 0.2 --json",
    "evaluate, parts": "evaluate spans --parts --gate-temperature 1 --json",
    "evaluate, parts, hard gate": "evaluate spans --parts --gate-temperature 1e-6 --json",
    "evaluate, cache": "evaluate kvp --cache 20 --cache-theta 0.3 --cache-lambda 0.1 --json",
    "evaluate, tuned cache": "evaluate kvp --cache 20 --cache-theta 0.2 0.4 --cache-lambda 0.05 0.2 --tune-cache"
    " --json",
    "evaluate, dynamic": "evaluate kvp --dynamic --dynamic-rate 0.0001 --dynamic-epsilon 0.01 --json",
    "evaluate, tuned dynamic": "evaluate kvp --dynamic --dynamic-rate 1e-4 1e-3 --dynamic-epsilon 0.01 --tune-dynamic"
    " --json",
    "evaluate, dynamic, training's loss": "evaluate spans --dynamic --dynamic-loss training --dynamic-rate 1e-4"
    " --parts --json",
    "evaluate, mixture": "evaluate kvp kvp-2 --json",
    "evaluate, mixture with a cache": "evaluate kvp lstm --cache 20 --cache-theta 0.3 --cache-lambda 0.1 --json",
    "evaluate, tuned mixture": "evaluate kvp kn3 --tune-weights --json",
    "evaluate, lesion": "evaluate kvp --attention uniform --json",
    "evaluate, lesions of several": "evaluate kvp kvp-2 --attention none --json",
    "evaluate, KenLM's format": "evaluate kn3 --format kenlm",
    "evaluate, KenLM's format of a run": "evaluate kvp --corpus short.txt --format kenlm",
    "evaluate, KenLM's format of several": "evaluate kvp lstm --corpus short.txt --format kenlm",
    "evaluate, SRILM's format of a run": "evaluate kvp --corpus short.txt --format srilm",
    "score": "score kvp --format jsonl --eos short.txt",
    "score, TSV": "score kvp short.txt --out out/rows.tsv",
    "score, document": "score kvp --format jsonl --state document --base e short.txt",
    "score, sentences": "score sentences --format jsonl short.txt",
    "score, spans": "score spans --format jsonl --gate-temperature 1 --state carry short.txt",
    "score, carried": "score kvp --format jsonl --state carry --eos short.txt",
    "score, n-gram": "score kn3 --format jsonl short.txt",
    "score, mixture": "score kvp kvp-2 --format jsonl --base 10 short.txt",
    "score, table": "score kvp lstm stimuli.csv --text sentence --out out/rows.csv",
    "score, table as one": "score kvp lstm stimuli.csv --text sentence --combine linear --out out/rows.csv",
    "score, files": "score kvp short.txt refs.txt --state carry --format jsonl",
    "score, caches": "score kvp lstm stimuli.csv --text sentence --document item --state carry --cache 7"
    " --cache-theta 0.3 --cache-lambda 0.2 --out out/rows.csv",
    "score, looks": "score kvp stimuli.csv --text sentence --looks --out out/rows.jsonl",
    "score, documents": "score kvp stimuli.csv --text sentence --document item --state carry --out out/rows.csv",
    "pairs": "pairs kvp pairs.jsonl --json --out out/answers.jsonl",
    "pairs, ties": "pairs kvp critical.jsonl --json --out out/answers.csv",
    "pairs, critical words": "pairs kvp critical.jsonl --critical at --json --out out/answers.jsonl",
    "pairs, n-gram": "pairs kn3 pairs.jsonl --json",
    "cloze": "cloze kvp questions.txt --json --out out/ranks.jsonl",
    "cloze, n-gram": "cloze kn3 questions.txt --json",
    "cloze, contexts": "cloze kvp kvp-2 questions.txt --context full --context query --json",
    "rescore": f"rescore kvp kn3 {LISTS} --weights total=1 kvp=0.5 kn3=0.5 words=0.1",
    "rescore, tuned": f"rescore kvp {LISTS} --tune --nbest-out out/lists.nbest",
    "compare": "compare lstm kvp --json",
    "compare, changed": "compare kvp --attention none --cache 20 --cache-theta 0.5 --cache-lambda 0.3 --json",
    "compare, tuned caches": "compare lstm kvp --cache 20 --tune-cache --cache-theta 0.1 0.3 --cache-lambda 0.1 0.2 "
    "--combine linear --json",
    "context": "context kvp --lengths 1 2 5 --positions 20 --far 3 --json --out out/context.csv",
    "attend": f"attend kvp --text '{TEXT}' --out out/attend.csv",
    "attend, document": "attend kvp --document 1 --words 12 --out out/attend.csv",
    "attend, lags": "attend kvp kvp-2 --by-lag --split valid --out out/attend.csv",
    "attend, sentence": f"attend sentences --sentence '{TEXT}' --out out/attend.json",
    "attend, flatness": "attend sentences --flatness --out out/attend.json",
    "attend, flatness of spans": "attend spans kvp --flatness --corpus text --split valid --out out/attend.json",
    "attend, lags of spans": "attend spans --by-lag --split valid --out out/attend.json",
    "attend, pointer": f"attend pointer --text '{TEXT}' --out out/attend.csv",
    "attend, spans": f"attend spans --text '{TEXT}' --out out/attend.json",
    "attend, spans by epoch": "attend spans --by-epoch --out out/attend.json",
    "generate": "generate kvp --seed 7 --length 30 --prompt 'the cat'",
    "generate, cut": "generate kvp --seed 3 --length 30 --top-k 9 --top-p 0.9 --temperature 0.8 --prompt 'the cat'",
    "generate, spans": "generate spans --seed 2 --length 30 --prompt 'the cat'",
    "generate, hard gate": "generate spans --seed 2 --length 30 --gate-temperature 0.01 --prompt 'the cat'",
    "generate, n-gram": "generate kn3 --seed 2 --length 30 --prompt 'the cat'",
    "generate, unknown words": "generate kvp --seed 2 --length 90 --temperature 3 --unk",
    "generate, mixture": "generate kvp kvp-2 --seed 5 --length 30 --unk --prompt 'the cat'",
}
"""Commands over the archive's runs; a word that is the name of a run stands for its folder."""

TABLES = {
    "presets": "presets daniluk2017",
    "presets, one": "presets li2020/mos-ps-at-snb-ptb",
    "evaluate": "evaluate kvp",
    "evaluate, tuned cache": "evaluate kvp --cache 20 --cache-theta 0.2 0.4 --cache-lambda 0.05 0.2 --tune-cache",
    "evaluate, tuned mixture": "evaluate kvp kvp-2 --tune-weights",
    "evaluate, parts": "evaluate spans --parts --gate-temperature 1",
    "evaluate, lesion": "evaluate kvp --state line --attention window=2",
    "pairs": "pairs kvp kvp-2 pairs.jsonl --weights 3 1",
    "cloze": "cloze kvp questions.txt",
    "rescore": "rescore kvp --nbest lists.nbest --refs refs.txt --tune",
    "compare": "compare lstm kvp",
    "context": "context kvp --lengths 1 2 5 --positions 20 --far 3",
    "attend, lags": "attend kvp kvp-2 --by-lag --split valid",
    "attend, lags of spans": "attend spans --by-lag --split valid",
    "attend, sentence": f"attend sentences --sentence '{TEXT}'",
    "attend, sentences": f"attend kvp --sentence '{TEXT}' --sentence 'the cat'",
    "attend, flatness": "attend sentences --flatness",
    "attend, flatness of spans": "attend spans kvp --flatness --corpus text --split valid",
    "attend, spans": f"attend spans --text '{TEXT}'",
    "attend, soft gate": f"attend spans --text '{TEXT}' --gate-temperature 1",
    "attend, part": "attend spans --split valid --from 40 --words 9 --top 2",
    "attend, spans by epoch": "attend spans --by-epoch",
}
"""Commands whose tables are kept line by line."""

TYPED = {
    "bench": "bench demo --rounds 1 --device cpu --json",
    "reproduce": "reproduce daniluk2017 --table 2b --rows 2-gram --scale smoke --corpus text --device cpu"
    " --out out --runs new",
    "data wikipedia": "data wikipedia --source wiki.jsonl --out out --vocabulary 5 --jobs 1",
}
"""Commands whose numbers tell of the machine or of other programs: of what they say only the types are kept."""

FIRST_OF_A_KIND = (
    *("demo", "daniluk2017/rnn", "daniluk2017/fofe-hornn-3", "daniluk2017/gated-hornn-3", "daniluk2017/rm-w5"),
    *("daniluk2017/5-gram", "salton2017/combined-wt2", "salton2017/single-stream-ptb", "press2017/small-wt-pr"),
    *("press2017/large-bd-wt", "grave2017/lstm-ptb", "merity2017/pointer-ptb", "merity2017/zoneout-wt2"),
    *("li2020/mos-ps-at-snb-ptb", "li2020/words-ptb"),
)
"""Every encoder, memory, head, optimiser, schedule and batching; the other presets are slow tests."""


def processor() -> str:
    """Return what the last bits of a sum depend on, beside the number of threads."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        parts = (re.search(rf"^{part}\s*: (.*)$", text, re.MULTILINE) for part in ("vendor_id", "cpu family", "model"))
        name = " ".join(part[1] for part in parts if part) or name
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


@contextlib.contextmanager
def working(folder: Path) -> Iterator[None]:
    """Work in a folder with a text of the name `text`, the archive's runs in `runs`, and `FILES`."""
    make_text(folder / "text")
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLM_DATA", str(folder))  # where a run finds its text whose folder was moved
        patch.setenv("SPANLM_CACHE", str(folder / "cache"))
        zipfile.ZipFile(RUNS).extractall("runs")
        yield


# ---------------------------------------------------------------- what is kept of what is computed


def kept(value: Json, key: str = "") -> Json:
    """Return what of an output must stay: sums whole, other numbers to ten digits, words; of the rest its type."""
    if isinstance(value, dict):
        return {name: kept(item, name) for name, item in value.items()}
    if isinstance(value, list) and key not in CHANGING:
        return [kept(item, key) for item in value]
    if key in CHANGING | DERIVED or (isinstance(value, str) and " " in value):
        return f"({types(value)})"
    return float(f"{value:.10g}") if isinstance(value, float) and key != "nll" else value


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
    """Return the leaves of nested dictionaries by their full names."""
    leaves: Tree = {}
    for name, value in tree.items():
        leaves |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return leaves


def parsed(text: str, suffix: str) -> Json:
    """Return what a printed or written text holds: JSON, JSON lines, a table's rows, or words."""
    if suffix == ".json":
        return json.loads(text)
    if suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    if suffix in (".csv", ".tsv"):
        cells = csv.reader(io.StringIO(text), delimiter="\t" if suffix == ".tsv" else ",")
        return [[float(cell) if re.fullmatch(r"-?\d*\.\d+(e-?\d+)?", cell) else cell for cell in row] for row in cells]
    return text.split()


def words_of(line: str) -> list[str]:
    """Return the arguments of a command."""
    names = {path.name for path in Path("runs").iterdir()}
    words = re.findall(r"'([^']*)'|(\S+)", line)
    return [f"runs/{word}" if word in names else quoted or word for quoted, word in words]


def table(name: str) -> Json:
    """Return the lines that a command prints, but for its speed."""
    lines = (" ".join(line.split()) for line in command(*words_of(TABLES[name])).splitlines())
    return [line for line in lines if not line.startswith("speed ")]


def told(line: str) -> Json:
    """Run a command; return what it printed, and what it wrote in `out` by the file's name."""
    shutil.rmtree("out", ignore_errors=True)
    Path("out").mkdir()
    arguments = words_of(line)
    printed = command(*arguments)
    suffix = ".json" if "--json" in arguments else ".jsonl" if "jsonl" in arguments else ""
    files = [path for path in sorted(Path("out").rglob("*")) if path.suffix in (".json", ".jsonl", ".csv", ".tsv")]
    shown = {"printed": parsed(printed, suffix)} if suffix or not files else {}
    return shown | {
        str(path.relative_to("out")): parsed(path.read_text(encoding="utf-8"), path.suffix) for path in files
    }


# ---------------------------------------------------------------- the parts of goldens.json


def numbers(name: str) -> Json:
    """Train a published row in small: losses of two steps and of validations, NLL of valid and test, the weights."""
    folder = trained(shrunk(name, "text"), Path("made") / name)
    events = rows(folder)
    steps, validations = ([row["loss"] for row in events if row["event"] == kind] for kind in ("train", "valid"))
    names = hashlib.sha256(json.dumps(shapes(folder)).encode()).hexdigest()[:16]  # of weights, their types and shapes
    begun = {"first steps": steps[:2], "validations": validations}
    return {**begun, **evaluated(folder, "text"), "names": names, "sha256": weights_sha256(folder)}


def going_on(name: str) -> Json:
    """Go on with a killed run of the archive: how it ends."""
    # not to the end they were meant for: rounding grows with every step, and machines would not agree
    folder = Path("runs") / name
    command("train", "--out", folder, "--resume", "auto", "--training.epochs", "14", "--no-tour")
    losses = [row["loss"] for row in rows(folder) if row["event"] == "valid"]
    return {**evaluated(folder, "text"), "valid": losses, "sha256": weights_sha256(folder)}


def presets() -> Tree:
    """Return what `spanlm presets --json` says of each preset; of its configuration what differs from the defaults."""
    rows = {row["name"]: kept(row) for row in json.loads(command("presets", "--json"))}
    for row in rows.values():
        del row["name"]
    for name in spanlm.PRESETS:
        rows[name]["config"] = json.loads(dumped(dict(set_fields(spanlm.find_preset(name).config))))
    return {name: {key: value for key, value in flat(row).items() if value is not None} for name, row in rows.items()}


def set_fields(group: Any, prefix: str = "") -> Iterator[tuple[str, Json]]:
    """Yield the fields of a configuration, and of its groups, that do not have their defaults."""
    for field in fields(group):
        value = getattr(group, field.name)
        if is_dataclass(value):
            yield from set_fields(value, f"{prefix}{field.name}.")
        elif field.default is MISSING or value != field.default:
            yield f"{prefix}{field.name}", value


def surface() -> Tree:
    """Return names: of Python, verbs and options, fields of config.yaml, files of a run and keys of its rows."""
    verbs = re.findall(r"^  ([a-z]+)  ", _printed("--help"), re.MULTILINE)
    found: Tree = {
        "python": spanlm.__all__,
        "model": [name for name in dir(spanlm.TrainedModel) if not name.startswith("_")],
        "options": {verb: _options(verb) for verb in [*verbs, "data wikipedia", "train ngram"]},
    }
    for name in ("daniluk2017/kvp-w5", "li2020/mos-ps-at-snb-ptb"):
        folder = trained(shrunk(name, "text"), Path("made") / name)
        files = {re.sub(r"\d{4,}", "N", str(path.relative_to(folder))) for path in folder.rglob("*") if path.is_file()}
        start = parsed((folder / "provenance.jsonl").read_text(encoding="utf-8"), ".jsonl")[0]
        found[name] = {
            "files": sorted(files),
            "metrics": {row["event"]: types(row) for row in rows(folder)},
            "provenance": types(start),
            "config": flat(types(spanlm.RunConfig.load(folder / "config.yaml").to_tree())),
        }
    return found


def _options(verb: str) -> list[str]:
    """Return the options that a verb's help shows, and those of the golden that it still takes."""
    pages = _printed(*verb.split(), "--help") + _printed(*verb.split(), "--help", "all")
    terms = (line.strip().partition("  ")[0] for line in pages.splitlines() if line.lstrip().startswith("-"))
    shown = set(re.findall(r"(?<![\w-])--[A-Za-z][\w.-]*", " ".join(terms)))
    known = goldens()["surface"]["options"].get(verb, [])
    taken = [
        x for x in known if x not in shown and f"unknown option {x}" not in _printed(*verb.split(), x, "--no-such")
    ]
    return sorted([*shown, *taken])


def _printed(*arguments: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        main(list(arguments))
    return out.getvalue() + err.getvalue()


PARTS: dict[str, Callable[[], Json]] = {
    "numbers": lambda: {name: numbers(name) for name in spanlm.PRESETS},
    "commands": lambda: {name: kept(told(line)) for name, line in COMMANDS.items()},
    "tables": lambda: {name: table(name) for name in TABLES},
    "typed": lambda: {name: types(told(line)) for name, line in TYPED.items()},
    "going on": lambda: {name: going_on(name) for name in KILLED},
    "presets": presets,
    "surface": surface,
}


def goldens() -> Tree:
    """Read them."""
    found: Tree = json.loads(gzip.decompress(GOLDENS.read_bytes()))
    return found


def dumped(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def make(parts: list[str]) -> None:
    """Write parts of the goldens anew, a line an item."""
    with tempfile.TemporaryDirectory() as folder, working(Path(folder)):
        made = {part: PARTS[part]() for part in parts}
    whole = goldens() | made
    whole["made on"] |= dict.fromkeys(made, processor())
    lines = (
        f"{dumped(part)}: {{\n" + ",\n".join(f"{dumped(name)}:{dumped(item)}" for name, item in value.items()) + "\n}"
        for part, value in sorted(whole.items())
    )
    GOLDENS.write_bytes(gzip.compress(("{\n" + ",\n".join(lines) + "\n}\n").encode(), mtime=0))


# ---------------------------------------------------------------- comparing


@pytest.fixture(scope="module", autouse=True)
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("goldens")
    with working(folder):
        yield folder


def differences(made: Json, expected: Json, exact: bool, path: str = "") -> list[str]:
    """Return where what was made differs from a golden; it may have more keys. `exact`: floats bit for bit."""
    if any(re.fullmatch(pattern, path) for pattern in REMOVED):
        return []
    if isinstance(expected, dict) and isinstance(made, dict):
        pairs = [(f"{path}/{key}", made.get(key, "(missing)"), expected[key]) for key in expected]
    elif isinstance(expected, list) and isinstance(made, list) and len(expected) == len(made):
        pairs = [(f"{path}/{number}", *pair) for number, pair in enumerate(zip(made, expected, strict=True))]
    else:
        near = not exact and isinstance(made, float) and isinstance(expected, int | float)
        digest = path.endswith("sha256") and isinstance(made, str) and made[:16] == expected  # so many digits are kept
        skipped = not exact and (path.endswith("sha256") or (isinstance(made, str) and alike(made, expected)))
        same = (
            made == expected or digest or skipped or (near and math.isclose(made, expected, rel_tol=1e-5, abs_tol=1e-6))
        )
        return [] if same else [f"{path}: {made!r}, not {expected!r}"]
    return [line for place, one, other in pairs for line in differences(one, other, exact, place)]


def alike(made: str, expected: Json) -> bool:
    """Return whether two lines are the same but for the last digits of their numbers."""
    pairs = list(zip_longest(made.split(), str(expected).split(), fillvalue=""))
    numbers = [[re.sub(r"[^\d.e]", "", word) for word in pair] for pair in pairs if pair[0] != pair[1]]
    try:
        return all(math.isclose(float(one), float(other), rel_tol=1e-3, abs_tol=2e-3) for one, other in numbers)
    except ValueError:
        return False


def check(part: str, made: Json, *keys: str) -> None:
    """Compare with a part of the goldens, or with what stands there under a key."""
    whole = goldens()
    made_on, expected = whole["made on"][part], whole[part]
    for key in keys:
        expected = expected[key]
    lines = differences(made, expected, exact=processor() == made_on, path="/".join(keys))
    assert not lines, f"made on {made_on}, compared on {processor()}:\n" + "\n".join(lines[:20])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FIRST_OF_A_KIND else pytest.mark.slow) for name in spanlm.PRESETS],
)
def test_a_preset_computes_the_same(name: str) -> None:
    check("numbers", numbers(name), name)


@pytest.mark.parametrize("name", rest_slow(COMMANDS, kind=lambda name: name.partition(",")[0]))
def test_a_command_says_the_same_of_runs_of_020(name: str) -> None:
    check("commands", kept(told(COMMANDS[name])), name)


@pytest.mark.parametrize("name", TABLES)
def test_a_command_prints_the_same_table(name: str) -> None:
    check("tables", table(name), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPED)
def test_a_command_has_the_same_keys(name: str) -> None:
    check("typed", types(told(TYPED[name])), name)


@pytest.mark.parametrize("name", KILLED)
def test_a_killed_run_of_020_goes_on_to_the_same_end(name: str) -> None:
    check("going on", going_on(name), name)


def test_presets_are_the_same() -> None:
    check("presets", presets())


def test_no_name_is_lost() -> None:
    lines = differences(as_sets(surface()), as_sets(goldens()["surface"]), exact=True)
    assert not lines, "\n".join(lines)


def as_sets(tree: Json) -> Json:
    """Return lists of names as keys: they may grow."""
    if isinstance(tree, dict):
        return {name: as_sets(value) for name, value in tree.items()}
    return dict.fromkeys(tree, "") if isinstance(tree, list) and all(isinstance(x, str) for x in tree) else tree


if __name__ == "__main__":
    make(sys.argv[1:] or list(PARTS))
