"""Two processes for one training, and several trainings at a time: `python -m benchmarks.ranks --json FILE`.

For a machine with two cores and no other work. One process with a thread, two ranks with a thread each, and one process
with two threads train the same model; then four seeds are trained one after another, by --jobs 2, by --on ray, and by
Ray with a worker that is killed. `--tiny` tries the script out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import load_file

from spanlm.store.machine import processor_name
from spanlm.store.provenance import PACKAGE, commit_of, starts
from spanlm.store.run_folder import METRICS, MODEL, weights_digest

SEEDS = 4
LONGEST_SECONDS, GRACE_SECONDS = 1800, 10
SPANLM = [sys.executable, "-m", "spanlm"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "spanlm"]
Json = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """Which models to train, as options of `spanlm train`, and on how many lines of Penn Treebank."""

    one: dict[str, str]
    four: str
    lines: int

    def write(self, source: Path, folder: Path) -> None:
        """Make the corpus."""
        folder.mkdir()
        for split in ("train", "valid", "test"):
            with (source / "ptb" / f"{split}.txt").open(encoding="utf-8") as file:
                lines = [line for _, line in zip(range(self.lines if split == "train" else 300), file, strict=False)]
            (folder / f"{split}.txt").write_text("".join(lines), encoding="utf-8")


_SMALL = "demo --memory none --hidden-size 300 --model.embedding_size 100"
REAL = Work(
    {
        "LSTM 2×650": "zaremba2014/medium --epochs 1 --training.log_every 5",
        "LSTM 300": f"{_SMALL} --epochs 3 --training.log_every 20",
    },
    f"{_SMALL} --epochs 4",
    4000,
)
_TINY = "demo --memory none --hidden-size 20 --model.embedding_size 8 --epochs 3 --training.log_every 5"
TINY = Work({"LSTM 20": _TINY}, _TINY, 400)


def rows(run: Path, event: str) -> list[Json]:
    """Return what a run logged."""
    found = map(json.loads, (run / METRICS).read_text(encoding="utf-8").splitlines())
    return [row for row in found if row["event"] == event]


def seconds_in(run: Path) -> float:
    """Return the time from a run's start to its last row, to half a second: a start's own are cut off."""
    begun = datetime.fromisoformat(starts(run)[0]["time"]) + timedelta(seconds=0.5)
    return (datetime.fromisoformat(rows(run, "valid")[-1]["time"]) - begun).total_seconds()


def call(command: list[str]) -> float:
    """Run a command; return its seconds."""
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return time.monotonic() - began


def by_ranks(model: str, options: str, corpus: Path, room: Path) -> Iterator[Json]:
    """Train a model in three ways."""
    ways = {"1 process, 1 thread": (SPANLM, 1), "2 ranks, 1 thread each": (TORCHRUN, 1)}
    for way, (program, threads) in (ways | {"1 process, 2 threads": (SPANLM, 2)}).items():
        run = room / f"{model}-{way}".replace(" ", "-")
        more = ["--corpus", str(corpus), "--threads", str(threads), "--device", "cpu", "--out", str(run)]
        call([*program, "train", *options.split(), *more])
        speeds = [row["tokens_per_second"] for row in rows(run, "train")][1:]
        losses = {f"{part}_losses": [row["loss"] for row in rows(run, part)] for part in ("train", "valid")}
        yield {"run": f"{model}: {way}", "tokens_per_second": statistics.median(speeds), **losses}


def by_engine(options: str, corpus: Path, room: Path) -> Iterator[Json]:
    """Train four seeds in each way."""
    ways = {
        "one after another, 1 thread": ["--threads", "1"],
        "one after another, 2 threads": ["--threads", "2"],
        "--jobs 2": ["--jobs", "2", "--threads", "2"],
        "--on ray --jobs 2": ["--on", "ray", "--jobs", "2", "--threads", "2"],
        "--on ray --jobs 2, a worker killed": ["--on", "ray", "--jobs", "2", "--threads", "2"],
    }
    for way, how in ways.items():
        out = room / way.replace(" ", "-")
        more = ["--corpus", str(corpus), "--device", "cpu", "--seeds", str(SEEDS), "--out", str(out)]
        command = [*SPANLM, "train", *options.split(), *more, *how]
        with killer_of(out / "seed-1") if "killed" in way else nullcontext():
            wall = call(command)
        runs = [out / f"seed-{seed}" for seed in range(1, SEEDS + 1)]
        digests = [weights_digest(load_file(run / MODEL)) for run in runs]
        trained = sum(map(seconds_in, runs)) / (2 if "jobs" in way else 1)
        yield {
            "run": way,
            "wall_seconds": round(wall, 1),
            "outside_training_seconds": round(wall - trained, 1),
            "starts": [len(starts(run)) for run in runs],
            "weights": digests,
        }


@contextmanager
def killer_of(run: Path) -> Iterator[None]:
    """Kill the worker of a run within the block, from another process; exit where none was killed."""
    with subprocess.Popen([sys.executable, "-m", "benchmarks.ranks", "--kill", str(run)]) as killer:
        try:
            yield
            if killer.wait(GRACE_SECONDS):
                sys.exit("no worker was killed")
        finally:
            killer.kill()


def kill_worker(run: Path) -> None:
    """Kill the process of Ray that started the training of a run, once that has finished an epoch."""
    until = time.monotonic() + LONGEST_SECONDS
    while not (run / METRICS).exists() or b'"valid"' not in (run / METRICS).read_bytes():
        if time.monotonic() > until:
            sys.exit(1)
        time.sleep(0.05)
    if (worker := worker_of(run)) is None:
        sys.exit(1)
    os.kill(worker, signal.SIGKILL)


def worker_of(run: Path) -> int | None:
    """Return the id of the process that started the training of a run, if that goes on."""
    for process in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended since
            if process.name.isdecimal() and f"--out={run}".encode() in (process / "cmdline").read_bytes().split(b"\0"):
                return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return None


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="the record to write")
    parser.add_argument("--tiny", action="store_true", help="only try the script out")
    parser.add_argument("--kill", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kill:
        kill_worker(options.kill)
        return
    work, (commit, changed) = TINY if options.tiny else REAL, commit_of(PACKAGE)
    record: Json = {
        "what": __doc__.splitlines()[0].partition(":")[0],
        "command": "python -m benchmarks.ranks" + " --tiny" * options.tiny,
        "commit": f"{commit}{' (changed)' if changed else ''}",
        "machine": f"{os.cpu_count()} cores of {processor_name()}, Python {platform.python_version()}",
        "load_before": os.getloadavg()[0],
        "corpus": f"the first {work.lines:,} lines of Penn Treebank's training part",
        "options": {"ranks": work.one, "engines": work.four},
        "ranks": [],
        "engines": [],
    }
    with TemporaryDirectory() as folder:
        room, corpus = Path(folder), Path(folder, "ptb-part")
        work.write(Path(os.environ["SPANLM_DATA"]), corpus)
        for kind, found in (
            *(("ranks", by_ranks(model, given, corpus, room)) for model, given in work.one.items()),
            ("engines", by_engine(work.four, corpus, room)),
        ):
            for row in found:
                print(json.dumps(row), flush=True)
                record[kind].append(row)
    if options.json:
        options.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
