"""The tables of speed: what `speed.jsonl` has, as `speed.md` shows it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from results.record import KINDS
from results.records import Record, Rows, records, rounded
from spanlm.papers.certainty import NONE
from spanlm.papers.table import at

SPEEDS = {
    "bench-cpu": "Zen 4",
    "bench-cpu-zen-5": "Zen 5",
    "bench-cpu-zen-3": "Zen 3",
    "bench-cpu-zen-3-words": "Zen 3",
}
"""Tables of the version that is measured; what older ones took is in `…-before`."""
GPU = "bench-gpu", "bench-gpu-more"
WAITING = {"the library's own": "", "OMP_WAIT_POLICY=passive": ", passive", "GOMP_SPINCOUNT=1000": ", short"}
OURS = "spanlm, ", "attentive, ", "span buffer, ", "dynamic evaluation, ", "with a cache"
"""How the names of this library's contenders begin; the others are only compared with."""


def _plain(*names: str) -> tuple[str, ...]:
    """Return names of a record without the precision, a size's without what all sizes have."""
    return tuple(re.sub(r",? (fp32|bf16)$", "", name.split(", V 10,000")[0]) for name in names)


def _step(size: str, name: str) -> str:
    """Name a step of this library."""
    return f"{size.removeprefix('dynamic evaluation, ')}: {name.removeprefix('spanlm, ')}".replace(" tied", "")


def _benched(tables: Iterable[str]) -> list[Record]:
    return [step for table in tables for step in records("speed", table)]


def ratios() -> Rows:
    """Return fp32 and bf16 of what has a target in a record: its speed or memory, where that of the other is 1."""
    compared = [
        (SPEEDS[row["table"]], (row["size"], row["name"], other["what"], other["reference"]), row["precision"], other)
        for row in _benched(SPEEDS)
        for other in row["compared"]
    ]
    aims = {key: other["target"] for _, key, _, other in compared if other.get("target")}
    cells_of: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    for title, key, precision, other in (row for row in compared if row[1] in aims):
        missed = other["ratio"] > aims[key] if other["what"] == "memory" else other["ratio"] < aims[key]
        cells = cells_of.setdefault(_plain(*key), {})
        cells.setdefault("target", {})[precision] = f"{aims[key]:.2f}"
        cells.setdefault(title, {})[precision] = f"{other['ratio']:.2f}{' ✗' if missed else ''}"
    titles = list(dict.fromkeys(["target", *SPEEDS.values()]))
    rows = [["what", "compared with", *titles]]
    for (size, name, what, reference), cells in cells_of.items():
        memory = ": memory" if what == "memory" else ""
        rows.append([_step(size, name) + memory, reference, *(_pair(cells.get(title, {})) for title in titles)])
    return rows


def _pair(cells: Mapping[str, str]) -> str:
    pair = " / ".join(cells.get(precision, NONE) for precision in ("fp32", "bf16")) if cells else NONE
    return pair.replace(" ", "\N{NO-BREAK SPACE}")  # in narrow columns


def steps() -> Rows:
    """Return the milliseconds of our steps on a processor and a GPU, and how the GPU's compare in fp32."""
    tables_of: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for step in (step for step in _benched(("bench-cpu", *GPU)) if step["name"].startswith(OURS)):
        table = GPU[0] if step["table"] in GPU else step["table"]
        tables_of.setdefault(_plain(step["size"], step["name"]), {}).setdefault(table, {})[step["precision"]] = step
    rows = [["what", "Zen 4: ms", "H200: ms", "H200: tokens/s, fp32", "H200: speed, fp32", "of (1)"]]
    for (size, name), tables in tables_of.items():
        zen, gpu = (tables.get(table, {}) for table in ("bench-cpu", GPU[0]))
        compared: Mapping[str, Any] = next((x for x in at(gpu, "fp32.compared") or () if x["what"] == "speed"), {})
        times = [
            _pair({precision: rounded(step["milliseconds"], digits) for precision, step in of.items()})
            for of, digits in ((zen, 0), (gpu, 1))
        ]
        rate, ratio = rounded(at(gpu, "fp32.tokens_per_second"), 0), rounded(compared.get("ratio"), 2)
        rows.append([_step(size, name), *times, rate, ratio, *_plain(compared.get("reference", NONE))])
    return rows


def verbs() -> Rows:
    """Return the seconds of each verb's command, with the least and the most."""
    paths = {"seconds": "after.seconds", "least": "after.from", "most": "after.to"}
    lines = ([verb["row"], *(rounded(at(verb, path)) for path in paths.values())] for verb in records("speed", "verbs"))
    return [["", *paths], *lines]


def busy_cores() -> Rows:
    """Return tokens a second for each number of busy processes; "short": `GOMP_SPINCOUNT=1000`."""
    speeds: dict[str, dict[str, int]] = {}
    for run in (row for row in records("speed", "busy-cores") if row["waiting"] in WAITING):
        name = f"{run['model']}, {run['busy processes']} busy"
        speeds.setdefault(name, {})[f"threads: {run['threads']}{WAITING[run['waiting']]}"] = run["tokens a second"]
    columns = list(speeds["demo, 0 busy"])
    lines = ([name, *(rounded(by_threads.get(column), 0) for column in columns)] for name, by_threads in speeds.items())
    return [["", *columns], *lines]


def operations() -> Rows:
    """Return what a training step does, in percent of its time, by preset and precision."""
    rows = [["", "ms", *KINDS, "the rest"]]
    for step in records("speed", "operations-zen-4"):
        whole, spent = step["watched"]["milliseconds"], [step["watched"]["kinds"][kind] for kind in KINDS]
        shares = [100 * x / whole for x in (*spent, whole - sum(spent))]
        rows.append([step["row"], *(rounded(x, 0) for x in (step["milliseconds"], *shares))])
    return rows


def counts() -> Rows:
    """Return what a training step asks of a GPU, before and after its operations were made fewer and larger."""
    paths = [f"{version}.{kind}" for kind in ("operations", "waits") for version in ("before", "after")]
    lines = ([row["row"], *(rounded(at(row, path), 0) for path in paths)] for row in records("speed", "counts"))
    return [["", "operations: before", "after", "waits: before", "after"], *lines]
