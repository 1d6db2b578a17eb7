"""What belongs to a run: its configuration by digest, weights that are numbers and fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

import spanlm
from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, RunError
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import KeyValueConfig, NGramConfig
from spanlm.store.checkpoints import to_bytes
from spanlm.store.run_folder import load_weights, save_model, weights_digest
from spanlm.training.run import train
from tests.training.small import WORDS, checkpoints, differing, make_config, outcome, signed, undisturbed, with_training

SHORT = {"checkpoint_every": 7, "epochs": 1}


@pytest.fixture
def run(room: Path, corpus: Corpus) -> Path:
    """A run of one epoch."""
    train(make_config(**SHORT), corpus, room / "run")
    corpus.vocabulary.save(room / "run" / "vocabulary.json")
    return room / "run"


def edit(folder: Path, pattern: str, text: str) -> None:
    path = folder / "config.yaml"
    changed, count = re.subn(pattern, text, path.read_text(), count=1)
    assert count == 1
    path.write_text(changed)


def remark(folder: Path, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], object]) -> None:
    """Write model.safetensors again with other marks or weights, as another program could."""
    path = folder / "model.safetensors"
    with safe_open(path, framework="pt") as file:
        marks, tensors = json.loads(file.metadata()["spanlm"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(marks, tensors)
    marks["weights"] = weights_digest(tensors)
    path.write_bytes(to_bytes(tensors, {"spanlm": json.dumps(marks)}))


def going_on(folder: Path, corpus: Corpus, **training: Any) -> RunConfig:
    """The folder's own configuration, as `train --resume auto` has it, gone on with."""
    config = with_training(RunConfig.load(folder / "config.yaml"), **training)
    train(config, corpus, folder, resume=True)
    return config


@pytest.mark.parametrize("damage", [("length: 6", "length: 16"), ("window: 4", "window: 5"), (r"  loss: mean\n", "")])
def test_another_configuration_is_neither_loaded_nor_trained(
    run: Path, corpus: Corpus, damage: tuple[str, str]
) -> None:
    model = (run / "model.safetensors").read_bytes()
    edit(run, *damage)
    damaged = (run / "config.yaml").read_bytes()
    with pytest.raises(InputError, match=r"config\.yaml"):
        spanlm.load(run)
    with pytest.raises(InputError, match=r"config\.yaml"):
        going_on(run, corpus, epochs=2)
    assert (run / "model.safetensors").read_bytes() == model
    assert (run / "config.yaml").read_bytes() == damaged  # what is left of it is not overwritten


@pytest.mark.slow
def test_what_may_change_by_hand_or_by_going_on_leaves_the_run_whole(run: Path, corpus: Corpus) -> None:
    edit(run, r"  epochs: 1\n", "  epochs: 2\n")
    edit(run, "dir: null", "dir: elsewhere")
    edit(run, "device: cpu", "device: auto")
    spanlm.load(run)
    going_on(run, corpus)
    going_on(run, corpus, epochs=3, patience=9)
    assert spanlm.load(run).config.training.patience == 9
    assert not differing(outcome(run), undisturbed(make_config(epochs=3)))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_weights_that_are_no_numbers_are_refused_by_name(run: Path, corpus: Corpus, room: Path, value: float) -> None:
    def poison(marks: object, tensors: dict[str, torch.Tensor]) -> None:
        tensors["head.bias"][:3] = value

    began = with_training(make_config(**SHORT), start_from=str(run))
    remark(run, poison)
    loads = (lambda: spanlm.load(run), lambda: spanlm.load_ensemble([run]))
    for read in (*loads, lambda: train(began, corpus, room / "other")):
        with pytest.raises(InputError, match=r"head\.bias: 3 of 24 values"):
            read()


def test_such_weights_are_not_gone_on_with_and_not_saved(run: Path, corpus: Corpus) -> None:
    last, model = checkpoints(run)[-1], spanlm.load(run)
    weights = dict(model.model.named_parameters())
    weights["head.bias"].data[1] = float("nan")
    before = (run / "model.safetensors").read_bytes()
    with pytest.raises(RunError, match=r"head\.bias: 1 of 24 values"):
        save_model(run, model.model, model.vocabulary.hash)
    assert (run / "model.safetensors").read_bytes() == before
    signed(last, "weights.safetensors", to_bytes(weights))
    with pytest.raises(InputError, match=r"head\.bias: 1 of 24 values"):
        going_on(run, corpus, epochs=2)


@pytest.fixture
def saved(room: Path, corpus: Corpus) -> LanguageModel:
    torch.manual_seed(3)
    model = LanguageModel(make_config().model, len(WORDS))
    save_model(room, model, corpus.vocabulary.hash)
    return model


def fresh(memory: KeyValueConfig | NGramConfig | None = None, size: int = len(WORDS)) -> LanguageModel:
    torch.manual_seed(4)
    return LanguageModel(make_config(memory).model, size)


def unchanged(model: LanguageModel, memory: KeyValueConfig | NGramConfig | None = None) -> bool:
    other = fresh(memory, model.embedding.num_embeddings)
    return all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_weights_come_back_and_the_same_model_is_the_same_file(
    room: Path, corpus: Corpus, saved: LanguageModel
) -> None:
    model, files = fresh(), set()
    load_weights(room, model, corpus.vocabulary.hash)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), saved.parameters(), strict=True))
    for _ in range(8):
        save_model(room, saved, corpus.vocabulary.hash)
        files.add((room / "model.safetensors").read_bytes())
    assert len(files) == 1


@pytest.mark.parametrize("memory", [KeyValueConfig(roles=2, window=4), NGramConfig(order=3)])
def test_weights_of_another_model_are_refused_by_name(
    room: Path, corpus: Corpus, saved: LanguageModel, memory: KeyValueConfig | NGramConfig
) -> None:
    model = fresh(memory)
    with pytest.raises(InputError, match=r"model\.safetensors: does not fit the run of config\.yaml: [a-z_.]+ is"):
        load_weights(room, model, corpus.vocabulary.hash)
    assert unchanged(model, memory)


@pytest.mark.parametrize("marks", ["[]", "5", "{", "[" * 10_000], ids=lambda marks: marks[:3])
def test_marks_that_are_no_object_are_damage(room: Path, corpus: Corpus, saved: LanguageModel, marks: str) -> None:
    weights = dict(saved.named_parameters())
    (room / "model.safetensors").write_bytes(to_bytes(weights, {"spanlm": marks}))
    with pytest.raises(InputError, match=r"model\.safetensors: damaged: .*\. Copy it again"):
        load_weights(room, fresh(), corpus.vocabulary.hash)
