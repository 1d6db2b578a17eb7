"""Files that a number depends on, damaged anywhere: the same number or one line of an error, never another number."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import spanlm
from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.errors import InputError, RunError
from spanlm.scoring.options import DynamicConfig

Measure = Callable[[], object]

FEW, SOME, MANY = (15, 5), (30, 8), (80, 12)
"""Flips and cuts."""

slow = pytest.mark.slow


def damaged(content: bytes, draw: random.Random, cut: bool) -> bytes:
    place = draw.randrange(len(content))
    if cut:
        return content[:place]
    other = content[place] ^ (1 << draw.randrange(8) if draw.random() < 0.5 else draw.randrange(1, 256))
    return content[:place] + bytes([other]) + content[place + 1 :]


def outcomes(path: Path, measure: Measure, times: tuple[int, int]) -> Counter[str]:
    """What `measure` makes of a file that is damaged at random places, one at a time."""
    content, draw, expected, found = path.read_bytes(), random.Random(path.name), measure(), Counter[str]()
    for number in range(sum(times)):
        path.write_bytes(damaged(content, draw, cut=number >= times[0]))
        os.utime(path, ns=(0, number))  # as another time would: the clock of a file system may be slower than this loop
        try:
            same = measure() == expected
            found[("rebuilt" if path.read_bytes() == content else "same") if same else "WRONG"] += 1
        except (InputError, RunError) as error:
            found["refused" if "\n" not in str(error) else "SEVERAL LINES"] += 1
        except Exception as error:
            found[f"TRACEBACK {type(error).__name__}"] += 1
        path.write_bytes(content)
        os.utime(path, ns=(0, 10**6 + number))
    print(f"\n{path.name[-20:]} ({len(content):,} bytes): {dict(found)}")
    assert measure() == expected
    return found


def numbers(folder: Path, split: str = "test", **how: object) -> dict[str, object]:
    found = spanlm.load(folder).evaluate(split=split, **how).to_json()  # type: ignore[arg-type]
    return {name: found[name] for name in ("nll", "tokens", "oov_tokens", "unk_tokens", "protocol")}


def never_another_number(found: Counter[str]) -> None:
    assert found.keys() <= {"same", "refused", "rebuilt"}, found


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPANLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    """Its folder has the statistics of dynamic evaluation, too."""
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    spanlm.load(folder).dynamic_statistics()
    return folder


@pytest.mark.parametrize("times", [FEW, pytest.param(MANY, marks=slow)], ids=["few", "many"])
@pytest.mark.parametrize("entry", ["counts/*", "tokens/*", "synthetic/*/train.txt"])
def test_files_of_the_cache(
    tiny_run: Path, tiny_config: RunConfig, own_cache: Path, entry: str, times: tuple[int, int]
) -> None:
    measures: dict[str, Measure] = {
        "counts": lambda: spanlm.load_corpus(replace(tiny_config.data, min_count=2)).vocabulary,
        "tokens": lambda: numbers(tiny_run),
        "synthetic": lambda: spanlm.load_corpus(DataConfig(corpus="synthetic:copy,tokens=400")).texts,
    }
    measure = measures[entry.partition("/")[0]]
    measure()
    (path,) = own_cache.glob(entry)
    found = outcomes(path, measure, times)
    never_another_number(found)
    assert found["rebuilt"] > sum(times) / 2


@slow
@pytest.mark.parametrize(
    ("name", "times"),
    [
        *((name, MANY) for name in ("config.yaml", "vocabulary.json", "model.safetensors")),
        ("dynamic.safetensors", SOME),
    ],
)
def test_files_of_a_run(run: Path, name: str, times: tuple[int, int]) -> None:
    dynamic = DynamicConfig(rate=0.002, decay=0.01, epsilon=0.001) if "dynamic" in name else None
    found = outcomes(run / name, lambda: numbers(run, "valid" if dynamic else "test", dynamic=dynamic), times)
    never_another_number(found)
    assert dynamic or found["refused"] > sum(times) / 2


@slow
def test_metrics_of_a_run_that_goes_on(tiny_run: Path, tiny_config: RunConfig, tmp_path: Path) -> None:
    """Weights stay what they are, and no line of metrics.jsonl is another than was written."""
    corpus, whole = spanlm.load_corpus(tiny_config.data), (tiny_run / "metrics.jsonl").read_bytes().splitlines()
    folder = shutil.copytree(tiny_run, tmp_path / "run")

    def resumed() -> object:
        position = spanlm.train(tiny_config, corpus, folder, resume=True)
        kept = (folder / "metrics.jsonl").read_bytes().splitlines()
        return {*kept} <= {*whole}, position.best_loss, (folder / "model.safetensors").read_bytes()

    found = outcomes(folder / "metrics.jsonl", resumed, MANY)
    never_another_number(found)
    assert found["same"] == sum(MANY)
