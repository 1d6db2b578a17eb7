"""Write the tables of the pages beside this file: `python results/pages.py`; `--check` exits 1 if a page differs.

A table stands between `<!-- table: WHAT | … -->` and `<!-- end -->`: none of its numbers is typed. WHAT is a page that
`spanlm reproduce` wrote (then which of its tables, then columns of it), or records (one file, or several by `*`, then
where they are in it, then `title=path.to.number:digits:factor`), or a function of this file.
"""

import csv
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Rows = list[list[str]]  # the first is the header
SPEEDS = {"bench-cpu-before.json": "Zen 4, before", "bench-cpu.json": "Zen 4"}
SPEEDS |= {"bench-cpu-zen-5.json": "Zen 5", "bench-cpu-zen-3-before.json": "Zen 3, before"}
SPEEDS |= {"bench-cpu-zen-3.json": "Zen 3", "bench-cpu-zen-3-words.json": "Zen 3"}
GPU = "bench-gpu.json", "bench-gpu-more.json"
CLASSES = "NE", "CN", "V", "P"  # of questions, in the order of the figure's page
KINDS = {"the LSTM's kernel": ("rnn_layer",), "other products": ("_linear", "::mm", "::addmm", "::bmm")}
KINDS |= {"masks": ("::random_", "::bernoulli_"), "copies": ("::copy_", "::cat"), "update": ("::_fused_",)}
"""Of operations, by parts of their names."""
WAITING = {"the library's own": "", "OMP_WAIT_POLICY=passive": ", passive", "GOMP_SPINCOUNT=1000": ", short"}


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _from_page(path: str, which: int, columns: Sequence[str]) -> Rows:
    blocks = [block for block in (HERE / path).read_text(encoding="utf-8").split("\n\n") if block.startswith("|")]
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in blocks[which].splitlines()]
    places = [rows[0].index(column) for column in columns]
    return [[row[place] for place in places] for row in (rows[0], *rows[2:])]


def _records(pattern: str, where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(HERE.glob(pattern), key=lambda path: (path.parent, path.stem)):
        if path.suffix == ".csv":
            lines = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
            return {line["what"]: line for line in lines if line["group"] == where}
        inside = _read(path)[where] if where else {path.stem: _read(path)}
        found |= inside if isinstance(inside, dict) else {one.get("run") or one["what"]: one for one in inside}
    return found or sys.exit(f"no record: {pattern}")


def _at(record: Any, path: str) -> Any:
    """Follow a path into a record; None where it ends before."""
    at = record
    for key in path.split("."):
        at = at[int(key)] if isinstance(at, list) else (at or {}).get(key)
    return at


def _number(value: object, digits: str = "1", factor: str = "1") -> str:
    """Round what a record has; `–` where it has nothing."""
    shown = "" if value in ("", None) else f"{float(str(value)) * int(factor):,.{digits}f}"
    return shown.replace("-", "−") or "–"


def _from_records(records: Mapping[str, Any], columns: Sequence[str]) -> Rows:
    shown = {title: path.split(":") for title, path in (column.split("=") for column in columns)}
    lines = ([name, *(_number(_at(one, at), *how) for at, *how in shown.values())] for name, one in records.items())
    return [["", *shown], *lines]


def trained_and_adapted(page: str) -> Rows:
    """Put a page's table without dynamic evaluation beside the one with it, by model."""
    columns = ["model", "valid ppl", "test ppl", "paper: test", "PoU"]
    left, right = ({row[0]: row[1:] for row in _from_page(page, which, columns)} for which in (0, 1))
    right["model"] = ["dynamic: valid", "test", "paper", "PoU"]
    return [[name, *left.get(name, ["–"] * 4), *right.get(name, ["–"] * 4)] for name in left | right]


def _plain(*names: str) -> tuple[str, ...]:
    """Return names of a record without the precision, a size's without what all sizes have."""
    return tuple(re.sub(r",? (fp32|bf16)$", "", name.split(", V 10,000")[0]) for name in names)


def ratios() -> Rows:
    """Return fp32 and bf16 of what has a target in a record: its speed or memory, where that of the other is 1."""
    rows = [
        (title, (size, row["name"], one["what"], one["reference"]), row["precision"], one)
        for file, title in SPEEDS.items()
        for size, contenders in _read(HERE / file)["groups"].items()
        for row in contenders
        for one in row["compared"]
    ]
    aims = {key: one["target"] for _, key, _, one in rows if one.get("target")}
    found: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    for title, key, precision, one in (row for row in rows if row[1] in aims):
        missed = one["ratio"] > aims[key] if one["what"] == "memory" else one["ratio"] < aims[key]
        cells = found.setdefault(_plain(*key), {})
        cells.setdefault("target", {})[precision] = f"{aims[key]:.2f}"
        cells.setdefault(title, {})[precision] = f"{one['ratio']:.2f}{' ✗' if missed else ''}"
    titles = list(dict.fromkeys(["target", *SPEEDS.values()]))
    cells = ([[one.get(t, {}).get(p, "–") for p in ("fp32", "bf16")] for t in titles] for one in found.values())
    pairs = ([" / ".join(pair) if pair != ["–", "–"] else "–" for pair in row] for row in cells)
    lines = ([*key, *pair] for key, pair in zip(found, pairs, strict=True))
    return [["size", "what", "of", "compared with", *titles], *lines]


OURS = "spanlm, ", "attentive, ", "span buffer, ", "dynamic evaluation, ", "with a cache"
"""How the names of this library's contenders begin; the others are only compared with."""


def steps() -> Rows:
    """Return the milliseconds of a step, median (fastest–slowest), of two versions that were measured in turn."""
    found: dict[tuple[str, ...], dict[tuple[str, str], str]] = {}
    for version, file in {"before": "bench-cpu-before.json", "after": "bench-cpu.json"}.items():
        for size, contenders in _read(HERE / file)["groups"].items():
            for one in contenders:
                if not one["name"].startswith(OURS):
                    continue
                taken = [_number(one[f"{which}milliseconds"], "0") for which in ("", "fastest_", "slowest_")]
                found.setdefault(_plain(size, one["name"]), {})[one["precision"], version] = "{} ({}–{})".format(*taken)
    columns = [(precision, version) for precision in ("fp32", "bf16") for version in ("before", "after")]
    lines = ([*key, *(one.get(column, "–") for column in columns)] for key, one in found.items())
    return [["size", "what", *map(", ".join, columns)], *lines]


def gpu() -> Rows:
    """Return a GPU's milliseconds of a step in fp32 and bf16, tokens a second in fp32, and how these compare."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for file in GPU:
        for size, contenders in _read(HERE / file)["groups"].items():
            for one in contenders:
                found.setdefault(_plain(size, one["name"]), {})[one["precision"]] = one
    rows = [["size", "what", "ms, fp32", "ms, bf16", "tokens/s, fp32", "speed, fp32", "of"]]
    for key, one in found.items():
        compared = next((each for each in one["fp32"]["compared"] if each["what"] == "speed"), {})
        (of,) = _plain(compared.get("reference", "–"))
        times = [_number(_at(one, f"{precision}.milliseconds")) for precision in ("fp32", "bf16")]
        rate, ratio = _number(one["fp32"]["tokens_per_second"], "0"), _number(compared.get("ratio"), "2")
        rows.append([*key, *times, rate, ratio, of])
    return rows


def busy_cores() -> Rows:
    """Return tokens a second for each number of busy processes; "short": `GOMP_SPINCOUNT=1000`."""
    found: dict[str, dict[str, int]] = {}
    for one in (row for row in _read(HERE / "busy-cores.json")["rows"] if row["waiting"] in WAITING):
        name = f"{one['model']}, {one['busy processes']} busy"
        found.setdefault(name, {})[f"{one['threads']}{WAITING[one['waiting']]}"] = one["tokens a second"]
    return _from_records(found, [f"threads: {kind}={kind}:0" for kind in found["demo, 0 busy"]])


def operations() -> Rows:
    """Return what a training step does, in percent of its time, by preset and precision; the record has all."""
    rows = [["", "ms", *KINDS, "the rest"]]
    trainings = _read(HERE / "operations-zen-4.json")["trainings"]
    for name, speed in ((name, speed) for name, training in trainings.items() for speed in training["speeds"]):
        step, spent = speed["watched"], dict.fromkeys(KINDS, 0.0)
        for one in step["operations"]:
            kind = next((kind for kind, parts in KINDS.items() if any(part in one["name"] for part in parts)), None)
            if kind is not None:
                spent[kind] += one["milliseconds"]
        shares = [100 * x / step["milliseconds"] for x in (*spent.values(), step["milliseconds"] - sum(spent.values()))]
        numbers = (_number(x, "0") for x in (speed["milliseconds"], *shares))
        rows.append([f"{name}, {speed['precision']}", *numbers])
    return rows


def questions(*columns: str) -> Rows:
    """Return accuracies on CBT-like questions: those of the figure's page, and below them the n-gram models'."""
    rows = _from_page("daniluk2017/cbt-small/figure-2d.md", 0, columns)
    for one in _records("daniluk2017/cbt-ngrams/*.json", "").values():
        asked = {file["class"]: file["contexts"]["full"]["sentence"] for file in one["cloze"]["files"]}
        held = " + cache" if one["config"]["ngram"]["cache"] else ""
        model = f"{one['config']['ngram']['order']}-gram Kneser-Ney{held}, {one['vocabulary_size']:,} words"
        cells = [[_number(x, "3") for x in (asked[name]["accuracy"], *asked[name]["interval"])] for name in CLASSES]
        rows.append([model, *(f"{a} [{low}, {high}]" for a, low, high in cells), _number(one["test"]["perplexity"])])
    return rows


def mixtures() -> Rows:
    """Return perplexities of models alone and mixed, with the weights that fit valid best."""
    found: dict[str, dict[str, Any]] = {}
    for name, one in _records("daniluk2017-ptb/mixtures/*.json", "").items():
        found.setdefault(name, {})["weights"] = " / ".join(f"{weight:.2f}" for weight in one["test"].get("weights", []))
        for split in ("valid", "test"):
            result = one.get(split, {})
            for member in result.get("members", []):
                found.setdefault(member["run"], {})[split] = member["perplexity"]
            found[name][split] = result.get("ensemble", result).get("perplexity")
    lines = (
        [name, *(_number(one.get(split), "2") for split in ("valid", "test")), one.get("weights") or "–"]
        for name, one in sorted(found.items(), key=lambda item: (item[0].count("+"), item[0]))
    )
    return [["", "valid ppl", "test ppl", "weights"], *lines]


def texts() -> Rows:
    """Return what two memories are worth on texts of several lengths, in bits against the LSTM."""
    models = ("Key-Value-Predict, window 5", "4-gram RNN")
    rows = [["text", "training tokens", "seeds", *models]]

    def tokens(file: str) -> str:
        found = re.search(r"train ([\d,]+), valid", (HERE / file).read_text(encoding="utf-8"))
        return f"{int(found[1].replace(',', '')):,}" if found else sys.exit(f"no training tokens: {file}")

    every = {one["run"]: one for one in _read(HERE / "memories.json")["demo"]}
    demo = [every[model.removesuffix(" RNN")] for model in models]
    shown = ("{:+.3f} ({:+.3f} to {:+.3f})".format(one["bits"], *one["interval"]) for one in demo)
    rows.append(["the demo's", tokens("demo.json"), str(demo[0]["seeds"]), *(x.replace("-", "−") for x in shown)])
    titles = {"ptb": "Penn Treebank", "wikitext-2": "WikiText-2", "wikipedia": "Wikipedia articles"}
    for folder, title in titles.items():
        page = f"daniluk2017/{folder}-small/figure-2c.md"
        seeds = dict(_from_page(page, 0, ["model", "seeds"]))
        found = dict(_from_page(page, 1, ["model", "difference"]))
        both = " and ".join(dict.fromkeys(seeds[model] for model in models))
        rows.append([title, tokens(page), both, *(found[model] for model in models)])
    return rows


def _table(match: re.Match[str]) -> str:
    what, *rest = match["what"].split(" | ")
    if what in globals():
        rows: Rows = globals()[what](*rest)
    elif what.endswith(".md"):
        rows = _from_page(what, int(rest[0]), rest[1:])
    else:
        rows = _from_records(_records(what, rest[0].strip("-")), rest[1:])
    lines = [rows[0], ["---", *["---:"] * (len(rows[0]) - 1)], *rows[1:]]
    return "\n".join((match["begin"], "", *(f"| {' | '.join(line)} |" for line in lines), "", "<!-- end -->"))


if __name__ == "__main__":
    old = {page: page.read_text(encoding="utf-8") for page in sorted(HERE.glob("*.md"))}
    marked = re.compile(r"(?P<begin><!-- table: (?P<what>.+?) -->).*?<!-- end -->", re.DOTALL)
    new = {page: marked.sub(_table, text) for page, text in old.items()}
    differing = [page for page in old if new[page] != old[page]]
    if "--check" in sys.argv:
        sys.exit("\n".join(f"{page.name} is not what `python results/pages.py` writes" for page in differing) or 0)
    for page in differing:
        page.write_text(new[page], encoding="utf-8")
