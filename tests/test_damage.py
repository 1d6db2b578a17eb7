"""Files that a number depends on: damaged anywhere, endless, no files at all, or links that lead out of their folder.

The same number or one line of an error, never another number; quickly, in little memory, and nothing written elsewhere.
"""

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import spanlm
from spanlm.config import RunConfig, flat, nested
from spanlm.data.config import DataConfig
from spanlm.errors import InputError, RunError
from spanlm.scoring.options import DynamicConfig
from tests.training.processes import Processes

Measure = Callable[[], object]
Harm = Callable[[Path], object]

EVALUATE = ["evaluate", "--split", "valid"]
DYNAMIC = [*EVALUATE, "--dynamic"]
RESUME = ["train", "--resume", "auto", "--training.epochs", "11", "--out"]
STEP = "checkpoints/step-newest"
INVENTORY = {
    **dict.fromkeys(["config.yaml", "vocabulary.json", "model.safetensors", "provenance.jsonl"], EVALUATE),
    "dynamic.safetensors": DYNAMIC,
    **dict.fromkeys([".lock", "metrics.jsonl", f"{STEP}/weights.safetensors", f"{STEP}/manifest.json"], RESUME),
}
"""Files of a run, and what reads them."""

FEW, SOME, MANY = (15, 5), (30, 8), (80, 12)
"""Flips and cuts."""

slow = pytest.mark.slow
needs_linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read as Linux tells it")


# --- flipped and cut ---


def damaged(content: bytes, draw: random.Random, cut: bool) -> bytes:
    place = draw.randrange(len(content))
    if cut:
        return content[:place]
    other = content[place] ^ (1 << draw.randrange(8) if draw.random() < 0.5 else draw.randrange(1, 256))
    return content[:place] + bytes([other]) + content[place + 1 :]


def outcomes(path: Path, measure: Measure, times: tuple[int, int]) -> Counter[str]:
    """What `measure` makes of a file that is damaged at random places, one at a time: never another number."""
    content, draw, expected, counts = path.read_bytes(), random.Random(path.name), measure(), Counter[str]()
    for number in range(sum(times)):
        path.write_bytes(damaged(content, draw, cut=number >= times[0]))
        os.utime(path, ns=(0, number))  # as another time would: the clock of a file system may be slower than this loop
        try:
            same = measure() == expected
            counts[("rebuilt" if path.read_bytes() == content else "same") if same else "WRONG"] += 1
        except (InputError, RunError) as error:
            counts["refused" if "\n" not in str(error) else "SEVERAL LINES"] += 1
        except Exception as error:
            counts[f"TRACEBACK {type(error).__name__}"] += 1
        path.write_bytes(content)
        os.utime(path, ns=(0, 10**6 + number))
    assert measure() == expected
    assert counts.keys() <= {"same", "refused", "rebuilt"}, counts
    return counts


def numbers(folder: Path, split: str = "test", **options: Any) -> dict[str, object]:
    model: Any = spanlm.load(folder)
    result = model.evaluate(split=split, **options).to_json()
    return {name: result[name] for name in ("nll", "tokens", "oov_tokens", "unk_tokens", "protocol")}


@pytest.mark.parametrize("times", [FEW, pytest.param(MANY, marks=slow)], ids=["few", "many"])
@pytest.mark.parametrize("entry", ["counts/*", "tokens/*", "text/*"])
def test_files_of_the_cache(
    tiny_run: Path,
    tiny_config: RunConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entry: str,
    times: tuple[int, int],
) -> None:
    monkeypatch.setenv("SPANLM_CACHE", str(tmp_path))
    measures: dict[str, Measure] = {
        "counts": lambda: spanlm.load_corpus(replace(tiny_config.data, min_count=2)).vocabulary,
        "tokens": lambda: numbers(tiny_run),
        "text": lambda: spanlm.load_corpus(DataConfig(corpus="synthetic:copy,tokens=400")).texts,
    }
    measure = measures[entry.partition("/")[0]]
    measure()
    path = sorted(tmp_path.glob(entry))[0]  # of a text with splits the first
    assert outcomes(path, measure, times)["rebuilt"] > sum(times) / 2


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "run"
    shutil.copytree(tiny_run, folder)
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    (folder / STEP).symlink_to(newest.name)  # no name of a checkpoint: for the tests alone
    return folder


@slow
@pytest.mark.parametrize("name", ["config.yaml", "vocabulary.json", "model.safetensors", "dynamic.safetensors"])
def test_files_of_a_run(run: Path, name: str) -> None:
    if name != "dynamic.safetensors":
        assert outcomes(run / name, lambda: numbers(run), MANY)["refused"] > sum(MANY) / 2
        return
    model: Any = spanlm.load(run)
    model.dynamic_statistics()
    dynamic = DynamicConfig(rate=0.002, decay=0.01, epsilon=0.001)
    outcomes(run / name, lambda: numbers(run, "valid", dynamic=dynamic), SOME)


@slow
def test_metrics_of_a_run_that_goes_on(run: Path, tiny_config: RunConfig) -> None:
    """Weights stay what they are, and no line of metrics.jsonl is another than was written."""
    corpus, whole = spanlm.load_corpus(tiny_config.data), (run / "metrics.jsonl").read_bytes().splitlines()

    def resumed() -> object:
        position = spanlm.train(tiny_config, corpus, run, resume=True)
        kept = (run / "metrics.jsonl").read_bytes().splitlines()
        return {*kept} <= {*whole}, position.best_loss, (run / "model.safetensors").read_bytes()

    assert outcomes(run / "metrics.jsonl", resumed, MANY)["same"] == sum(MANY)


# --- no files, files without an end, links ---


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def terabyte(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


def huge(field: str, value: int) -> Harm:
    def harm(path: Path) -> None:
        tree = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump(nested({**flat(tree), field: value})))

    return harm


HARMS: list[tuple[str, Harm]] = [
    *((name, harm) for name in INVENTORY for harm in (pipe, endless, terabyte)),
    ("config.yaml", huge("model.memory.window", 10**9)),
    ("config.yaml", huge("model.encoder.layers", 10**9)),
    ("config.yaml", huge("model.embedding_size", 10**18)),
]


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


@slow
@needs_linux
@pytest.mark.parametrize(("name", "harm"), HARMS)
def test_what_hurts_is_refused(
    run: Path, measured: Callable[..., tuple[int, str, float]], name: str, harm: Any
) -> None:
    """In one line, before anything of it is read or made. Of checkpoints, the one before is taken."""
    harm(run / name)
    status, said, grown = measured(*INVENTORY[name], run)
    assert grown < 500, f"{grown:,.0f} MB"
    if status:
        assert said.splitlines()[-1].startswith("spanlm: ") and len(said.splitlines()[-1]) < 1000
    else:  # the checkpoint before was taken, or what is not needed was left
        assert "refused" in said or "dynamic" in name


WRITTEN = {
    **{name: RESUME for name in ("config.yaml", "model.safetensors", "metrics.jsonl", "checkpoints", ".lock")},
    "dynamic.safetensors": DYNAMIC,
    "trials.jsonl": [*DYNAMIC, "--tune-dynamic"],
    "attention.html": [*RESUME[:-1], "--tour", "--out"],
}


@slow
@needs_linux
@pytest.mark.parametrize(
    ("name", "dangling"), [*((name, False) for name in WRITTEN), ("checkpoints", True), ("metrics.jsonl", True)]
)
def test_nothing_is_written_through_a_link(
    run: Path, measured: Callable[..., tuple[int, str, float]], name: str, dangling: bool
) -> None:
    """Whatever becomes of the command, what the link names is as it was."""
    outside, path = run.parent / "outside", run / name
    if path.exists():
        shutil.move(path, run.parent / "before" if dangling else outside)
    outside.mkdir() if dangling else outside.touch()
    path.symlink_to(outside / "new" if dangling else outside)

    def contents() -> dict[Path, Any]:
        everything = [run.parent, outside, *outside.rglob("*")]
        return {path: (path.is_file() and path.read_bytes(), path.stat().st_mtime_ns) for path in everything}

    before = contents()
    status, said, _ = measured(*WRITTEN[name], run)
    assert contents() == before
    assert status == 0 or said.splitlines()[-1].startswith("spanlm: ")


@slow
@needs_linux
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
