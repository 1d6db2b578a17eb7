"""What several folders of tests share: a cache of the session's own, a small text, and tiny runs.

Each is made once in a process; `pytest -n` has several.
"""

import os
import random
import signal
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# before torch is loaded: tests that run side by side (pytest -n) share the cores, and so do the commands they start
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))))

# what a shell starts in the background ignores Ctrl-C, and hands that on: tests send it to commands of their own
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# before the libraries of Hugging Face are loaded, which read it then: no test asks the network
os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"

import spanlm
from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.models.encoders import LSTMConfig
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import KeyValueConfig
from spanlm.models.ops.precision import usable
from spanlm.training.config import BatchingConfig, OptimizerConfig, TrainingConfig
from tests.training.processes import Processes

# tests never time: on a busy machine one example of many may take long
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

needs_bf16 = pytest.mark.skipif(usable("bf16", "cpu") == "fp32", reason="this processor has no bf16 (AVX-512)")

TINY_LANGUAGE = "the a cat dog sat ran on mat . name is bound to naïve 猫 object"
TINY_WORDS = TINY_LANGUAGE.split()


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No test reads or fills the user's own cache."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLM_CACHE", str(folder))
        yield folder


def tiny_lines(count: int, seed: int) -> list[str]:
    """Lines of the tiny language: each word prefers the next one of the list; every 13th line is blank."""
    draw, lines = random.Random(seed), []
    for number in range(1, count + 1):
        at, words = draw.randrange(len(TINY_WORDS)), []
        for _ in range(draw.randint(2, 8)):
            words.append(TINY_WORDS[at % len(TINY_WORDS)])
            at += 1 if draw.random() < 0.7 else draw.randrange(len(TINY_WORDS))
        lines.append("" if number % 13 == 0 else " ".join(words))
    return lines


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus folder; each part has a written <unk>; valid and test hold words that the training part lacks."""
    folder = tmp_path_factory.mktemp("tiny") / "tiny"
    folder.mkdir()
    for seed, (split, count) in enumerate({"train": 150, "valid": 30, "test": 40}.items()):
        lines = tiny_lines(count, seed)
        lines[1:1] = ["the <unk> sat"] if split == "train" else ["the zebra <unk> sat", "zebra zebra"]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny_config(tiny_corpus: Path) -> RunConfig:
    """A Key-Value-Predict model that trains in a second."""
    return RunConfig(
        data=DataConfig(corpus=str(tiny_corpus), documents="blank-line"),
        model=ModelConfig(
            embedding_size=6, encoder=LSTMConfig(hidden_size=12), memory=KeyValueConfig(roles=3, window=3)
        ),
        training=TrainingConfig(
            optimizer=OptimizerConfig(lr=0.03),
            batching=BatchingConfig(batch_size=4, length=7, eval_batch_size=3),
            epochs=6,
            patience=None,
        ),
    )


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    started.close()


Entries = set[tuple[Path, int, int]]
"""Files of a folder with their sizes and when they were last written to; of folders, that they are there."""

_SHARED: dict[str, tuple[Path, Entries]] = {}
"""The runs that tests share in this process by their fixtures, each with what its training left."""


@pytest.fixture(autouse=True)
def shared_runs(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that writes into a shared run fails itself, instead of others, in whatever order they come."""
    yield
    for name in _SHARED.keys() & set(request.fixturenames):
        folder, before = _SHARED[name]
        after = _files(folder)
        _SHARED[name] = folder, after  # what this test left is no fault of the next
        changed = sorted({str(path) for path, *_ in after ^ before})
        assert not changed, (
            f"this test changed {changed} of the run {folder.name!r}, which others share: let it copy it"
        )


@pytest.fixture(scope="session")
def paragraphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus folder whose lines hold several sentences; some are blank, and some words are unknown."""
    folder = tmp_path_factory.mktemp("paragraphs") / "paragraphs"
    folder.mkdir()
    for seed, (split, count) in enumerate({"train": 120, "valid": 20, "test": 30}.items()):
        draw, lines = random.Random(seed), tiny_lines(count, seed)
        for number, line in enumerate(lines):
            said = [f"{line} .".capitalize(), 'He said " the cat ran ! " and the 猫 sat .', "Zebra ran ? The dog"]
            lines[number] = " ".join(draw.choices(said, k=draw.randint(1, 3))) if line else ""
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def shared_run(name: str, changes: dict[str, Any], corpus: str = "tiny_corpus") -> Any:
    """A fixture: the folder of a finished run of `tiny_config` with other parts; tests only read it."""

    @pytest.fixture(scope="session")
    def run(request: pytest.FixtureRequest, tiny_config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
        tree = tiny_config.to_tree()
        for field, value in {**changes, "data.corpus": str(request.getfixturevalue(corpus))}.items():
            *groups, last = field.split(".")
            reduce(getitem, groups, tree)[last] = value
        config, folder = RunConfig.from_tree(tree), tmp_path_factory.mktemp("runs") / name
        spanlm.train(config, spanlm.load_corpus(config.data), folder)
        _SHARED[str(request.fixturename)] = folder, _files(folder)
        return folder

    return run


SPANS = {"kind": "span_buffer", "buffer_size": 6, "span_length": 2, "dropout": 0}
SENTENCES = {"kind": "sentences", "batch_size": 8, "length": 7, "eval_batch_size": 5}

tiny_run = shared_run("tiny", {})
lstm_run = shared_run("lstm", {"model.memory": {"kind": "none"}})
span_run = shared_run("spans", {"model.memory": SPANS | {"gate": {"evaluation_temperature": 1.0}}})
words_run = shared_run("words", {"data.tokenizer": "words"})
"""On words in lower case, without the marks at them."""
bytes_run = shared_run("bytes", {"data.tokenizer": "bytes", "training.epochs": 1})
sentence_run = shared_run(
    "sentences",
    {"data.lines": "sentences", "data.min_count": 3, "training.batching": SENTENCES, "training.epochs": 4},
    "paragraphs",
)
"""Trained on the sentences of `paragraphs`, each alone."""
unopened_run = shared_run(
    "unopened",
    {
        "model.memory": {"kind": "attentive", "score": "single"},
        "training.batching": {**SENTENCES, "predict_first": False},
        "training.epochs": 2,
    },
)
"""Trained on lines which no <eos> opens, with a memory of the whole line."""


def _files(folder: Path) -> Entries:
    found = ((path, path.is_dir(), path.stat()) for path in folder.rglob("*"))
    return {(path.relative_to(folder), *((0, 0) if d else (s.st_size, s.st_mtime_ns))) for path, d, s in found}
