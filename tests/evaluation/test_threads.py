"""One model object for many threads: mixed calls give what they give one after another, bit for bit."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

import spanlm
from spanlm.data.cbt import Question
from spanlm.evaluation.dynamic.statistics import gather_statistics
from spanlm.evaluation.dynamic.update import DynamicConfig
from spanlm.evaluation.protocol import Protocol
from spanlm.runs.trained_model import TrainedModel
from tests.conftest import tiny_lines

VARYING = ("tokens_per_second", "origin", "read_before", "seconds_before")
TEXT = "\n".join(line for line in tiny_lines(40, seed=9) if line)
CANDIDATES = ("cat", "dog", "mat", "object")
QUESTIONS = [Question("q", n, ("the cat sat on the mat .",) * n, "the", "sat .", CANDIDATES, "cat") for n in range(3)]


def calls(model: TrainedModel) -> dict[str, Callable[[], object]]:
    """What is asked of a model, by name."""
    corpus = model.corpus()
    found: dict[str, Callable[[], object]] = {
        "score": lambda: list(model.score(TEXT, state="carry")),
        "evaluate": lambda: model.evaluate(corpus, "valid"),
        "generate": lambda: model.generate("the cat", length=30, seed=5),
        "cloze": lambda: list(model.cloze(QUESTIONS)),
    }
    if isinstance(model, spanlm.TrainedEnsemble):
        return found
    how: dict[str, Any] = {"protocol": Protocol(context="document"), "segments": 2}
    statistics = gather_statistics(model.model, corpus, **how)
    follow = DynamicConfig(rate=0.003, decay=0.02, epsilon=0.001)
    found["statistics"] = lambda: gather_statistics(model.model, corpus, **how)
    found["statistics of the run"] = lambda: model.dynamic_statistics(segments=2)  # which go into its folder
    grid: dict[str, Any] = {"rates": [0.001, 0.003], "decays": [0.02], "statistics": statistics}
    found["tune"] = lambda: model.tune_dynamic(corpus, "valid", **grid)
    found["dynamic"] = lambda: model.evaluate(corpus, "valid", dynamic=follow, statistics=statistics)
    memory = model.config.model.memory.kind
    if memory != "none":
        found["attend"] = lambda: (model.attend_spans if memory == "span_buffer" else model.attend)(TEXT)
    return found


def exact(value: object) -> object:
    """Every bit of what a call gave, but for its speed, and where it was found."""
    if is_dataclass(value):
        named = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: exact(x) for name, x in named.items() if name not in VARYING}
    if isinstance(value, dict):
        return {name: exact(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [exact(x) for x in value]
    if isinstance(value, Tensor | np.ndarray):
        return np.asarray(value).tobytes()
    return repr(value)


def compared(model: TrainedModel, threads: int, rounds: int) -> tuple[Counter[str], Counter[str]]:
    """How many calls of each kind gave what they gave before, and how many did not, the weights among them."""
    asked = calls(model)
    serial = {name: exact(call()) for name, call in asked.items()}
    weights = {name: x.clone() for name, x in model.model.state_dict().items()}

    def answer(name: str) -> object:
        try:
            return exact(asked[name]())
        except RuntimeError as error:  # gradients of weights that another thread has changed since
            return error

    work = [name for name in asked for _ in range(rounds)]
    random.Random(1).shuffle(work)
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(answer, work))
    right, wrong = Counter[str](), Counter[str]()
    for name, value in zip(work, found, strict=True):
        (right if value == serial[name] else wrong)[name] += 1
    same = all(x.equal(weights[name]) for name, x in model.model.state_dict().items())
    (right if same else wrong)["weights"] += 1
    return right, wrong


def test_calls_from_several_threads_are_those_of_one(tiny_run: Path, tmp_path: Path) -> None:
    _, wrong = compared(spanlm.load(shutil.copytree(tiny_run, tmp_path / "run")), threads=8, rounds=3)
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tiny_run", "lstm_run", "span_run", "ensemble"])
def test_calls_from_32_threads_are_those_of_one(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    names = ["tiny_run", "lstm_run"] if kind == "ensemble" else [kind]
    runs = [shutil.copytree(request.getfixturevalue(name), tmp_path / name) for name in names]
    model = spanlm.load_ensemble(runs) if kind == "ensemble" else spanlm.load(*runs)
    right, wrong = compared(model, threads=32, rounds=16)
    print(f"\n{kind}: right {dict(right)}, wrong {dict(wrong)}")
    assert not wrong
