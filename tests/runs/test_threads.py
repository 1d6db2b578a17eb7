"""One model object for many threads: mixed calls give what they give one after another, bit for bit."""

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
from spanlm.runs.model import TrainedModel
from spanlm.scoring.dynamic.statistics import gather_statistics
from spanlm.scoring.options import DynamicConfig
from spanlm.scoring.protocol import Protocol
from tests.cases import rest_slow
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
        found["attend"] = lambda: model.attend(TEXT)
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


def compared(model: TrainedModel, threads: int, rounds: int) -> Counter[str]:
    """How many calls of each kind gave something else than alone; and whether the weights are others."""
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
    wrong = Counter(name for name, value in zip(work, found, strict=True) if value != serial[name])
    wrong["weights"] += not all(x.equal(weights[name]) for name, x in model.model.state_dict().items())
    return +wrong


@pytest.mark.parametrize(
    ("kinds", "threads", "rounds"),
    rest_slow([(["tiny_run"], 8, 1), (["span_run"], 32, 8), (["tiny_run", "lstm_run"], 32, 8)]),
    ids=str,
)
def test_calls_from_several_threads_are_those_of_one(
    kinds: list[str], threads: int, rounds: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    runs = [shutil.copytree(request.getfixturevalue(kind), tmp_path / kind) for kind in kinds]
    wrong = compared(spanlm.load_ensemble(runs) if len(runs) > 1 else spanlm.load(*runs), threads, rounds)
    assert not wrong
