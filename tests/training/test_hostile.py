"""Run folders made to hurt: one line, quickly and in little memory, and nothing outside of the folder written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.training.processes import Processes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read as Linux tells it"),
]

Harm = Callable[[Path], object]


def pipe(name: str) -> Harm:
    def harm(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)

    return harm


def link(name: str, target: str) -> Harm:
    """What was there is moved to what the link names, unless that is there already."""

    def harm(run: Path) -> None:
        there = run / target
        if (run / name).exists() and not there.exists():
            shutil.move(run / name, there)
        elif (run / name).exists():
            (run / name).unlink()
        (run / name).symlink_to(there)

    return harm


def sparse(name: str, size: int) -> Harm:
    return lambda run: os.truncate(run / name, size)


def field(path: str, value: object) -> Harm:
    def harm(run: Path) -> None:
        tree = yaml.safe_load((run / "config.yaml").read_text())
        *groups, last = path.split(".")
        group: Any = tree
        for name in groups:
            group = group[name]
        group[last] = value
        (run / "config.yaml").write_text(yaml.safe_dump(tree))

    return harm


EVALUATE, RESUME = ["evaluate", "--split", "valid"], ["train", "--resume", "auto", "--training.epochs", "11", "--out"]
DYNAMIC = ["evaluate", "--split", "valid", "--dynamic"]
STEP = "checkpoints/step-newest"

READ: dict[str, tuple[Harm, list[str]]] = {
    "a pipe as config.yaml": (pipe("config.yaml"), EVALUATE),
    "a pipe as model.safetensors": (pipe("model.safetensors"), EVALUATE),
    "no end of vocabulary.json": (link("vocabulary.json", "/dev/zero"), EVALUATE),
    "no end of provenance.jsonl": (link("provenance.jsonl", "/dev/zero"), EVALUATE),
    "a pipe as dynamic.safetensors": (pipe("dynamic.safetensors"), DYNAMIC),
    "a pipe as .lock": (pipe(".lock"), RESUME),
    "a pipe as metrics.jsonl": (pipe("metrics.jsonl"), RESUME),
    "a pipe as weights.safetensors": (pipe(f"{STEP}/weights.safetensors"), RESUME),
    "no end of manifest.json": (link(f"{STEP}/manifest.json", "/dev/zero"), RESUME),
    "weights of a terabyte": (sparse("model.safetensors", 2**40), EVALUATE),
    "a checkpoint of a terabyte": (sparse(f"{STEP}/weights.safetensors", 2**40), RESUME),
    "a window of 10^9": (field("model.memory.window", 10**9), EVALUATE),
    "layers of 10^9": (field("model.encoder.layers", 10**9), EVALUATE),
    "an embedding of 10^18": (field("model.embedding_size", 10**18), EVALUATE),
}
"""What is refused, in one line, before anything of it is read or made. Of checkpoints, the one before is taken."""


@pytest.fixture
def measured(processes: Processes, tmp_path: Path) -> Callable[..., tuple[int, str, float]]:
    """Runs a command; gives its status, what it said in the end and the MB that it took. One that hangs is killed."""

    def run(*arguments: object, seconds: int = 60) -> tuple[int, str, float]:
        said, report = tmp_path / "said", tmp_path / "report"
        said.unlink(missing_ok=True)
        words = [str(argument) for argument in arguments]
        status = processes.run("measured", said, arguments=words, report=str(report), seconds=seconds)
        assert status >= 0, f"ended by signal {-status}: it hung, or took all memory"
        assert "Traceback" not in said.read_text(), said.read_text()
        return status, said.read_text(), json.loads(report.read_text())["grown"]

    return run


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "run"
    shutil.copytree(tiny_run, folder)
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    (folder / STEP).symlink_to(newest.name)  # no name of a checkpoint: for the tests alone
    return folder


@pytest.mark.parametrize("name", READ)
def test_what_hurts_is_refused(run: Path, measured: Callable[..., tuple[int, str, float]], name: str) -> None:
    harm, command = READ[name]
    harm(run)
    status, said, grown = measured(*command, run)
    assert grown < 500, f"{grown:,.0f} MB"
    if status:
        assert said.splitlines()[-1].startswith("spanlm: ") and len(said.splitlines()[-1]) < 1000
    else:  # the checkpoint before was taken, or what is not needed was left
        assert "refused" in said or "dynamic" in name


WRITTEN = {
    "config.yaml": RESUME,
    "model.safetensors": RESUME,
    "metrics.jsonl": RESUME,
    "checkpoints": RESUME,
    ".lock": RESUME,
    "dynamic.safetensors": DYNAMIC,
    "trials.jsonl": [*DYNAMIC, "--tune-dynamic"],
    "attention.html": [*RESUME[:-1], "--tour", "--out"],
}


@pytest.mark.parametrize(
    ("name", "dangling"), [*((name, False) for name in WRITTEN), ("checkpoints", True), ("metrics.jsonl", True)]
)
def test_nothing_is_written_through_a_link(
    run: Path, measured: Callable[..., tuple[int, str, float]], name: str, dangling: bool
) -> None:
    """Whatever becomes of the command, what the link names is as it was."""
    outside = run.parent / "outside"
    if dangling:
        if (run / name).is_dir():
            shutil.rmtree(run / name)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(outside / "new")
        outside.mkdir()
    else:
        link(name, str(outside))(run)
        if not outside.exists():
            outside.touch()

    def contents() -> dict[Path, Any]:
        everything = [run.parent, *outside.parent.rglob("outside*"), *outside.rglob("*")]
        return {path: (path.is_file() and path.read_bytes(), path.stat().st_mtime_ns) for path in everything}

    before = contents()
    status, said, _ = measured(*WRITTEN[name], run)
    assert contents() == before
    assert status == 0 or said.splitlines()[-1].startswith("spanlm: ")


@pytest.mark.parametrize(("which", "verb"), [("tiny_run", "evaluate"), ("unopened_run", "score")])
def test_a_long_line_is_read_in_little_memory(
    measured: Callable[..., tuple[int, str, float]],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    which: str,
    verb: str,
) -> None:
    """Weights of each word on all others would be gigabytes."""
    (tmp_path / "line.txt").write_text("the cat sat on " * 20_000 + "\nthe dog\n")
    texts = ["--corpus", tmp_path / "line.txt"] if verb == "evaluate" else [tmp_path / "line.txt", "--out", os.devnull]
    status, _, grown = measured(verb, request.getfixturevalue(which), *texts, "--state", "line", seconds=120)
    assert status == 0 and grown < 500
