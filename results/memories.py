"""What memories are worth, from trained runs: `python -m results.memories RUNS` writes memories.jsonl.

RUNS has the trainings of `spanlm reproduce yardstick --runs RUNS` that have a record here, and of `spanlm sweep
results/worth.yaml` (in RUNS/worth). Each model is compared with the LSTM on the same test text by `spanlm compare`, all
seeds of both that there are, and on the demo's text `spanlm context` says how much context the first seed of each uses.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from results.record import asked, save
from results.records import Record, records
from spanlm.papers.published.known_law import PRESETS, SOURCES

FAMILIES = {"none": "LSTM, no memory", "ngram": "4-gram", "roles=1": "Attention, window 15"}
FAMILIES |= {"roles=3": "Key-Value-Predict, window 5", "reads=spans": "Span buffer"}
FAMILIES |= {"reads=merge": "Span buffer, q sees h_t, too"}
"""Part of a family's folder -> what it is; the first is the baseline."""


def _against(folders: dict[str, Path]) -> dict[str, Record]:
    """Compare all with the first."""
    comparisons = asked("compare", *folders.values(), "--threads", 1)["comparisons"]
    rows = {}
    for name, comparison in zip(list(folders)[1:], comparisons, strict=True):
        numbers = {
            "bits": comparison["whole"]["difference"],
            "interval": comparison["whole"]["interval"],
            "p": comparison["p"],
        }
        rows[name] = {"seeds": len(comparison["runs"]), **numbers}
    return rows


def _context(run: Path) -> dict[str, Any]:
    use = asked("context", run, "--threads", 1)
    kept = {name: use[name] for name in ("bits", "gain", "effective", "effective_interval")}
    nearest = {name: point for name, curve in use["curves"].items() for point in curve if point["words"] == 1}
    return kept | {"beyond_the_last_word": nearest}


def main() -> None:
    """Ask, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    runs = parser.parse_args().runs
    families = {title: next((runs / "worth").glob(f"*{part}*")) for part, title in FAMILIES.items()}
    titles = {preset.name.removeprefix("yardstick/"): preset.title for preset in PRESETS}
    tables = {}
    for source in SOURCES:
        text = f"{source}-small"
        seeds = [(name, run) for name in titles for run in (runs / "yardstick" / text / name).glob("seed-*")]
        recorded = {(record["row"], f"seed-{record.get('seed')}") for record in records("yardstick", text)}
        if begun := [str(run) for name, run in seeds if (name, run.name) not in recorded]:
            sys.exit(f"trained, or begun, without a record here: {', '.join(begun)}")
        tables[source] = _against({title: runs / "yardstick" / text / name for name, title in titles.items()})
    tables["demo"] = _against(families)
    tables["context"] = {title: _context(family / "seed-1") for title, family in families.items()}
    for table, rows in tables.items():
        scale = {"scale": "small" if table in SOURCES else "demo"}
        what = "memories against the LSTM, bits a token on test"
        save("memories", table, what, {name: scale | row for name, row in rows.items()})


if __name__ == "__main__":
    main()
