"""`python -m benchmarks.gpu FOLDER`: what ten minutes of a GPU can tell, in one command.

In this order, each by itself, so that one that fails costs none of the others: the tests that need a GPU; recorded
steps (training.graph) beside plain ones, their losses and their milliseconds; the groups of `python -m benchmarks`, and
where a step's time goes; then an AWD-LSTM of full size trains for the time that is left. Its run is packed in parts:
`cat run.tar.* | tar x` unpacks it, and `spanlm train --out RUN --resume auto` goes on. On a processor all sizes are
tiny, and steps are not recorded.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.__main__ import GROUPS, measure
from benchmarks.awd import awd_trainer
from benchmarks.lstm import SENTENCES_650
from benchmarks.race import race
from benchmarks.setting import Size, own_trainer, raced, random_segments, shrunk
from spanlm.errors import SpanlmError
from spanlm.models.encoders import AWDLSTMConfig
from spanlm.models.memories import AttentiveConfig, NoMemoryConfig
from spanlm.options import Precision
from spanlm.store.machine import pick_device
from spanlm.store.provenance import provenance
from spanlm.store.run_folder import MODEL
from spanlm.training.bench import timed
from spanlm.training.run import last_position
from spanlm.training.trainer import Trainer

STEPS = 200
PART = 15 * 2**20
"""Bytes of a part of the packed run."""

PRESET, PROFILED = "merity2018/awd-ptb", ("zaremba2014/medium", "daniluk2017/kvp-w5", "merity2018/awd-ptb")
COMBINED = replace(
    SENTENCES_650, name="combined score", model=replace(SENTENCES_650.model, memory=AttentiveConfig(score="combined"))
)
ALONE = replace(
    COMBINED, name="no memory, beside the combined score", model=replace(COMBINED.model, memory=NoMemoryConfig())
)
SENTENCES = ALONE.name, COMBINED.name
_ERRORS = SpanlmError, RuntimeError, ValueError, OSError, subprocess.SubprocessError
RECORDED = {
    **{GROUPS[name][0].name: GROUPS[name][0] for name in ("textbook", "dropout", "memory", "awd", "mixture")},
    **{size.name: size for size in (ALONE, COMBINED)},
}


def main(arguments: Sequence[str]) -> None:
    """Do all parts and write `report.json`, `tests.txt`, `training.txt` and the packed run into a folder."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="for the results")
    parser.add_argument("--minutes", type=float, default=8.5, help="for all together (default 8.5)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda")
    parser.add_argument("--corpus", default="ptb", help="that the AWD-LSTM reads (default ptb)")
    parser.add_argument("--run", type=Path, default=Path("runs/gpu"), help="of the AWD-LSTM (default runs/gpu)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"recorded ones of a model (default {STEPS})")
    parser.add_argument("--rounds", type=int, default=15, help="of the groups (default 15)")
    options = parser.parse_args(arguments)
    folder, device = options.folder, pick_device(options.device, "device")
    start, whole = time.monotonic(), 60 * options.minutes
    folder.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"started": provenance(device), "seconds": {}}
    parts: dict[str, Callable[[], object]] = {
        "tests": partial(cuda_tests, device, folder / "tests.txt", start + 0.3 * whole),
        "recorded": partial(recorded, device, options.steps, start + 0.45 * whole),
        "groups": partial(groups, device, options.rounds, start + 0.65 * whole),
        "operations": partial(profiles, device, options.corpus),
        "training": partial(trained, device, options.corpus, options.run, folder, start + whole),
    }
    for name, part in parts.items():
        began = time.monotonic()
        try:
            report[name] = part()
        except _ERRORS as error:
            report[name] = f"failed: {error}"
        report["seconds"][name] = round(time.monotonic() - began, 1)
        print(f"{name}: {report['seconds'][name]} s, {json.dumps(report[name], ensure_ascii=False)[:300]}", flush=True)
        (folder / "report.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def cuda_tests(device: torch.device, file: Path, end: float) -> str:
    """Run the tests that need a GPU, float64 agreement among them, until the end; return their last line."""
    if device.type != "cuda":
        return "no GPU"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider", "tests"]
    with file.open("w", encoding="utf-8") as output:
        try:
            subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=end - time.monotonic())
        except subprocess.TimeoutExpired:
            output.write("stopped: their share of the time is over\n")
    return (file.read_text(encoding="utf-8").splitlines() or ["nothing"])[-1]


def recorded(device: torch.device, steps: int, end: float) -> dict[str, Any]:
    """Compare recorded steps with plain ones, model by model until the end."""
    report: dict[str, Any] = {}
    for name, size in RECORDED.items():
        if time.monotonic() > end:
            report[name] = "left out: no time"
            continue
        try:
            report[name] = beside_graph(size, device, steps)
        except _ERRORS as error:
            report[name] = f"failed: {error}"
    return report


def beside_graph(size: Size, device: torch.device, steps: int) -> dict[str, Any]:
    """Train so many steps from one seed, plain and recorded: milliseconds, and how far losses and weights end apart."""
    size = size if device.type == "cuda" else shrunk(size)
    segments = random_segments(size, steps)
    if size.name in SENTENCES:
        segments = [replace(segment, reset=torch.ones_like(segment.reset)) for segment in segments]
    report: dict[str, Any] = {"tokens": size.tokens, "steps": steps}
    for precision in raced(device):
        results = []
        for graph in ("off", "auto"):
            trainer = _trainer(size, precision, device, graph)
            torch.manual_seed(1)
            spent, losses = [], []
            for segment in segments:
                before = trainer.position.epoch_nll
                spent.append(timed(partial(trainer.step, segment), device)[0])
                losses.append(trainer.position.epoch_nll - before)
            results.append((statistics.median(spent[len(spent) // 2 :]) * 1e3, losses, trainer))
        (plain, losses, trainer), (graph_ms, others, other) = results
        pairs = zip(trainer.model.parameters(), other.model.parameters(), strict=True)
        report[precision] = {
            "plain_milliseconds": plain,
            "graph_milliseconds": graph_ms,
            "graphs": 0 if other.graphs is None else len(other.graphs.recorded),
            "largest_loss_difference": max(abs(a - b) / a for a, b in zip(losses, others, strict=True)),
            "largest_weight_difference": max(float((a - b).detach().abs().max()) for a, b in pairs),
        }
    return report


def _trainer(size: Size, precision: Precision, device: torch.device, graph: Literal["auto", "off"]) -> Trainer:
    if isinstance(size.model.encoder, AWDLSTMConfig):
        return awd_trainer(size, precision, device, graph=graph)
    return own_trainer(size, precision, device, kind="sentences" if size.name in SENTENCES else "streams", graph=graph)


def groups(device: torch.device, rounds: int, end: float) -> dict[str, Any]:
    """Measure what `python -m benchmarks` measures, without the groups that read word by word, until the end."""
    names = [name for name in GROUPS if name not in ("words", "words-small", "dynamic", "dynamic-small")]
    ceiling: dict[Precision, float] = {"fp32": 1.0, "bf16": 1.0}
    report: dict[str, Any] = {}
    for name in names:
        size, make = GROUPS[name]
        if time.monotonic() > end:
            report[name] = "left out: no time"
        elif device.type == "cuda":
            report[name] = measure([name], str(device), rounds)["groups"]
        else:
            report[name] = race(shrunk(size), make(shrunk(size), device), device, rounds, ceiling)
    return report


def profiles(device: torch.device, corpus: str) -> object:
    """Profile steps of some presets."""
    presets = PROFILED if device.type == "cuda" else ["demo"]
    command = [sys.executable, "-m", "spanlm", "bench", *presets, "--device", str(device), "--corpus", corpus]
    result = subprocess.run([*command, "--operations", "20", "--rounds", "5", "--json"], capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(result.stderr.strip()[-500:])
    return json.loads(result.stdout)


def trained(device: torch.device, corpus: str, run: Path, folder: Path, end: float) -> object:
    """Train until shortly before the end, and pack the run; return its last line and the parts."""
    preset = PRESET if device.type == "cuda" else "demo"
    command = [sys.executable, "-m", "spanlm", "train", preset, "--corpus", corpus, "--out", str(run), "--resume"]
    command += ["auto", "--training.graph", "auto", "--device", str(device)]
    with (folder / "training.txt").open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            process.wait(max(15.0, end - time.monotonic() - 30))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(25)
            except subprocess.TimeoutExpired:
                process.kill()
    lines = (folder / "training.txt").read_text(encoding="utf-8").splitlines()
    return {"last": lines[-1:], "parts": packed(run, folder)}


def packed(run: Path, folder: Path) -> list[str]:
    """Pack a run; its best weights only if the checkpoint has others, as it has but where the best epoch has ended."""
    whole, position = folder / "run.tar", last_position(run)
    again = position is not None and position.best_epoch == position.epoch and not position.segment
    with tarfile.open(whole, "w") as tar:
        for path in sorted(run.rglob("*")):
            if path.is_file() and not (again and path.name == MODEL):
                tar.add(path, Path("run") / path.relative_to(run))
    names = list[str]()
    with whole.open("rb") as file:
        while part := file.read(PART):
            names.append(f"run.tar.{len(names):02}")
            (folder / names[-1]).write_bytes(part)
    whole.unlink()
    return names


if __name__ == "__main__":
    main(sys.argv[1:])
