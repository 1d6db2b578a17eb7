"""Weights come back only into the model and the vocabulary that they belong to, and no code comes with them."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
import torch

import spanlm
from spanlm.data.corpora import Corpus
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import KeyValueConfig, NGramConfig
from spanlm.store.checkpoints import to_bytes
from spanlm.store.run_folder import load_weights, save_model
from tests.training.small import WORDS, make_config


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
    for _ in range(32):
        save_model(room, saved, corpus.vocabulary.hash)
        files.add((room / "model.safetensors").read_bytes())
    assert len(files) == 1


def test_a_vocabulary_in_another_order_is_refused_though_all_sizes_agree(room: Path, saved: LanguageModel) -> None:
    model, words = fresh(), (*WORDS[:5], WORDS[6], WORDS[5], *WORDS[7:])
    with pytest.raises(InputError, match="was trained with another vocabulary"):
        load_weights(room, model, Vocabulary(words).hash)
    assert unchanged(model)


@pytest.mark.parametrize("memory", [KeyValueConfig(roles=2, window=4), NGramConfig(order=3)])
def test_weights_of_another_model_are_refused_by_name(
    room: Path, corpus: Corpus, saved: LanguageModel, memory: KeyValueConfig | NGramConfig
) -> None:
    model = fresh(memory)
    with pytest.raises(InputError, match=r"model\.safetensors: does not fit the model of config\.yaml: [a-z_.]+ dif"):
        load_weights(room, model, corpus.vocabulary.hash)
    assert unchanged(model, memory)


@pytest.mark.parametrize("marks", ["[]", "5", "{", "[" * 10_000], ids=lambda marks: marks[:3])
def test_marks_that_are_no_object_are_damage(room: Path, corpus: Corpus, saved: LanguageModel, marks: str) -> None:
    weights = dict(saved.named_parameters())
    (room / "model.safetensors").write_bytes(to_bytes(weights, {"spanlm": marks}))
    with pytest.raises(InputError, match=r"model\.safetensors: damaged: .*\. Train again"):
        load_weights(room, fresh(), corpus.vocabulary.hash)


def test_a_model_that_is_missing_cut_or_has_a_flipped_bit_is_refused(
    room: Path, corpus: Corpus, saved: LanguageModel
) -> None:
    path, draw = room / "model.safetensors", random.Random(0)
    content = path.read_bytes()
    flipped = [bytearray(content) for _ in range(50)]
    for one in flipped:
        one[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    for damaged in (*(content[:length] for length in range(0, len(content), len(content) // 100)), *flipped):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"model\.safetensors: (damaged|was trained with another vocabulary)"):
            load_weights(room, fresh(), corpus.vocabulary.hash)
    path.unlink()
    with pytest.raises(InputError, match=r"model\.safetensors: no such file"):
        load_weights(room, fresh(), corpus.vocabulary.hash)


LIBRARIES = r"(?m)^ *(import|from) (c?[pP]ickle|marshal|shelve|dill|joblib|cloudpickle)\b"
READS_CODE = re.compile(LIBRARIES + r"|(?<![\w.])(torch\.(load|save)|(np|numpy)\.load|yaml\.load)\(")


def test_nothing_in_the_package_reads_a_format_that_can_hold_code() -> None:
    files = list(Path(spanlm.__file__).parent.rglob("*.py"))
    assert len(files) > 30 and READS_CODE.search("x = np.load(f, allow_pickle=True)")
    assert [path.name for path in files if READS_CODE.search(path.read_text())] == []
