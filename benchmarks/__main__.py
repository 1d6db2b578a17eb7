"""`python -m benchmarks [GROUP…]`: time the contenders of some groups, or of all, and print how they compare."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # before torch is loaded, as every command of `spanlm` does

from benchmarks.awd import AWD_PTB, AWD_SNB, awd_group, span_buffer_group
from benchmarks.dynamic import ADAPTING_AWD, ADAPTING_SMALL, dynamic_group
from benchmarks.lstm import (
    DROPPED_650,
    KVP_834,
    LSTM_650,
    ONE_STREAM_650,
    SENTENCES_650,
    WORDS_300,
    WORDS_650,
    attentive_group,
    cache_group,
    memory_group,
    textbook_group,
    words_group,
)
from benchmarks.mixture import MOS_PTB, mixture_group
from benchmarks.race import matrix_gflops, race
from benchmarks.setting import raced
from spanlm.cli.parser import keep_freed_memory
from spanlm.store.machine import pick_device
from spanlm.store.provenance import provenance

GROUPS = {
    "textbook": (LSTM_650, textbook_group),
    "dropout": (DROPPED_650, textbook_group),
    "memory": (KVP_834, memory_group),
    "attentive": (SENTENCES_650, attentive_group),
    "cache": (ONE_STREAM_650, cache_group),
    "words": (WORDS_650, words_group),
    "words-small": (WORDS_300, words_group),
    "awd": (AWD_PTB, awd_group),
    "span-buffer": (AWD_SNB, span_buffer_group),
    "mixture": (MOS_PTB, mixture_group),
    "dynamic": (ADAPTING_AWD, dynamic_group),
    "dynamic-small": (ADAPTING_SMALL, dynamic_group),
}


def main(arguments: list[str]) -> None:
    """Measure, print, and write the report if it was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=15, help="steps of each contender (default 15)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.groups if name not in GROUPS]
    if unknown or options.rounds < 1:
        parser.error(f"unknown group {unknown[0]}" if unknown else "--rounds: at least 1")
    keep_freed_memory()
    report = measure(options.groups or list(GROUPS), options.device, options.rounds)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def measure(names: list[str], device_name: str, rounds: int) -> dict[str, Any]:
    """Time groups, print each when it is done, and return the report."""
    device = pick_device(device_name, "--device")
    started = provenance(device)
    started["command"] = started["command"].replace("spanlm", "python -m benchmarks", 1)
    ceiling = {precision: matrix_gflops(device, precision) for precision in raced(device)}
    print(", ".join(f"{name} {value}" for name, value in started.items() if name != "command"))
    print("matrix product: " + ", ".join(f"{name} {value:,.0f} GFLOP/s" for name, value in ceiling.items()))
    groups = {}
    for size, make in map(GROUPS.__getitem__, names):
        groups[size.title] = race(size, make(size, device), device, rounds, ceiling)
        show(size.title, groups[size.title])
    return {"started": started, "rounds": rounds, "ceiling": ceiling, "groups": groups}


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print a group: one line a contender, and one for each of its ratios."""
    print(f"\n{title}", flush=True)
    for row in rows:
        memory = "" if row["step_megabytes"] is None else f", {row['step_megabytes']:,.0f} MB"
        print(f"  {row['name']}: {row['milliseconds']:,.1f} ms, {row['tokens_per_second']:,.0f} tokens/s,", end=" ")
        print(f"{row['of_ceiling']:.0%} of the matrix product{memory}")
        for one in row["compared"]:
            ratio = "unknown" if one["ratio"] is None else f"{one['ratio']:.2f}×"
            print(f"    {ratio} the {one['what']} of {one['reference']}", end="")
            bound = "at least" if one["what"] == "speed" else "at most"
            print("" if one["target"] is None else f" ({bound} {one['target']:.2f} {'✓' if one['reached'] else '✗'})")


if __name__ == "__main__":
    main(sys.argv[1:])
