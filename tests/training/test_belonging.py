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
from spanlm.store.run_folder import load_weights, model_digest, save_model, weights_digest
from spanlm.training.run import train
from tests.training.small import WORDS, checkpoints, differing, make_config, outcome, signed, undisturbed, with_training


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
    begun: Path, corpus: Corpus, damage: tuple[str, str]
) -> None:
    model = (begun / "model.safetensors").read_bytes()
    edit(begun, *damage)
    damaged = (begun / "config.yaml").read_bytes()
    with pytest.raises(InputError, match=r"config\.yaml"):
        spanlm.load(begun)
    with pytest.raises(InputError, match=r"config\.yaml"):
        going_on(begun, corpus, epochs=2)
    assert (begun / "model.safetensors").read_bytes() == model
    assert (begun / "config.yaml").read_bytes() == damaged  # what is left of it is not overwritten


@pytest.mark.slow
def test_what_may_change_by_hand_or_by_going_on_leaves_the_run_whole(begun: Path, corpus: Corpus) -> None:
    edit(begun, r"  epochs: 1\n", "  epochs: 2\n")
    edit(begun, "dir: null", "dir: elsewhere")
    edit(begun, "device: cpu", "device: auto")
    spanlm.load(begun)
    going_on(begun, corpus)
    going_on(begun, corpus, epochs=3, patience=9)
    assert spanlm.load(begun).config.training.patience == 9
    assert not differing(outcome(begun), undisturbed(make_config(epochs=3)))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_weights_that_are_no_numbers_are_refused_by_name(begun: Path, corpus: Corpus, room: Path, value: float) -> None:
    def poison(marks: object, tensors: dict[str, torch.Tensor]) -> None:
        tensors["head.bias"][:3] = value

    other = with_training(make_config(epochs=1), start_from=str(begun))
    remark(begun, poison)
    loads = (lambda: spanlm.load(begun), lambda: spanlm.load_ensemble([begun]))
    for read in (*loads, lambda: train(other, corpus, room / "other")):
        with pytest.raises(InputError, match=r"head\.bias: 3 of 24 values"):
            read()


def test_such_weights_are_not_gone_on_with_and_not_saved(begun: Path, corpus: Corpus) -> None:
    last, model = checkpoints(begun)[-1], spanlm.load(begun)
    weights = dict(model.model.named_parameters())
    weights["head.bias"].data[1] = float("nan")
    before = (begun / "model.safetensors").read_bytes()
    with pytest.raises(RunError, match=r"head\.bias: 1 of 24 values"):
        save_model(begun, model.model, model.vocabulary.hash)
    assert (begun / "model.safetensors").read_bytes() == before
    signed(last, "weights.safetensors", to_bytes(weights))
    with pytest.raises(InputError, match=r"head\.bias: 1 of 24 values"):
        going_on(begun, corpus, epochs=2)


def test_the_same_model_is_the_same_file(begun: Path) -> None:
    model, files = spanlm.load(begun), set()
    for _ in range(8):
        save_model(begun, model.model, model.vocabulary.hash)
        files.add((begun / "model.safetensors").read_bytes())
    assert len(files) == 1


@pytest.mark.parametrize("memory", [KeyValueConfig(roles=2, window=4), NGramConfig(order=3)])
def test_weights_of_another_model_are_refused_by_name(begun: Path, corpus: Corpus, memory: Any) -> None:
    other = LanguageModel(make_config(memory).model, len(WORDS))
    before = model_digest(other)
    with pytest.raises(InputError, match=r"model\.safetensors: does not fit the run of config\.yaml: [a-z_.]+ is"):
        load_weights(begun, other, corpus.vocabulary.hash)
    assert model_digest(other) == before


@pytest.mark.parametrize("marks", ["[]", "5", "{", "[" * 10_000], ids=lambda marks: marks[:3])
def test_marks_that_are_no_object_are_damage(begun: Path, marks: str) -> None:
    (begun / "model.safetensors").write_bytes(to_bytes({"weight": torch.ones(1)}, {"spanlm": marks}))
    with pytest.raises(InputError, match=r"model\.safetensors: damaged: .*\. Copy it again"):
        spanlm.load(begun)
