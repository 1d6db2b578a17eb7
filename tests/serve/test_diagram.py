"""What is said of a model, and the texts that come with it."""

from __future__ import annotations

import os
from itertools import chain
from typing import Any

import pytest

import spanlm
from spanlm.data.config import DEMO, DataConfig
from spanlm.data.corpora import CORPORA
from spanlm.models.encoders import ENCODERS, LSTMConfig
from spanlm.models.heads import HEADS
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import MEMORIES
from spanlm.papers import PRESETS
from spanlm.serve.served import EXAMPLES, diagram
from tests.models.small import HIDDEN, SMALL_MEMORIES


def test_every_preset_has_a_picture() -> None:
    for preset in PRESETS.values():
        picture = diagram(preset.config.model, 10_000)
        rooms = [room for room in picture.values() if room is not None]
        assert all(isinstance(room, dict) and all(room.values()) for room in rooms), preset.name
        assert (picture["memory"] is None) == (preset.config.model.memory.kind == "none")


def test_every_kind_has_an_equation() -> None:
    kinds: list[Any] = [*ENCODERS.values(), *HEADS.values(), *MEMORIES.values()]
    for kind in kinds:
        assert "=" in kind().equation and "\n" not in kind().equation and len(kind().equation) < 160, kind


def test_shapes_are_those_of_the_model() -> None:
    for memory in chain.from_iterable(SMALL_MEMORIES.values()):
        config = ModelConfig(embedding_size=5, encoder=LSTMConfig(hidden_size=HIDDEN), memory=memory)
        model, picture = LanguageModel(config, 11), diagram(config, 11)
        assert picture["head"]["shape"] == f"{model.memory.readout_size} → 11 words"
        if picture["memory"] is not None:
            assert picture["memory"]["shape"] == f"{HIDDEN} → {model.memory.readout_size}"


REAL = [pytest.mark.corpus, pytest.mark.skipif("SPANLM_DATA" not in os.environ, reason="needs corpora: SPANLM_DATA")]


@pytest.mark.slow
@pytest.mark.parametrize("name", [DEMO, *(pytest.param(name, marks=REAL) for name in CORPORA)])
def test_examples_are_in_the_words_of_their_corpus(name: str) -> None:
    corpus = spanlm.load_corpus(DataConfig(corpus=name), splits=("train",))
    examples = EXAMPLES.get(name, EXAMPLES[""])
    assert len(examples) == 5 and len({example["title"] for example in examples}) == 5
    for example in examples:
        assert all(word in corpus.vocabulary for word in example["text"].split()), example
        assert example["look"][-1] in ".?" and "{" not in example["look"]
