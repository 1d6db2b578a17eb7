"""The tree of texts gives what each text alone gives, whatever the model remembers."""

from __future__ import annotations

import random

import pytest
import torch

from spanlm.models.encoders import LSTMConfig
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import (
    AnyMemoryConfig,
    AttentiveConfig,
    KeyValueConfig,
    NoMemoryConfig,
    PointerSentinelConfig,
    SpanBufferConfig,
)
from spanlm.scoring.prefix_tree import Prefixes, score_texts

V, EOS = 30, 0
MEMORIES: list[AnyMemoryConfig] = [
    NoMemoryConfig(),
    KeyValueConfig(roles=3, window=3),
    AttentiveConfig(),
    SpanBufferConfig(buffer_size=6, span_length=2),
    PointerSentinelConfig(window=4),
]


def model_with(memory: AnyMemoryConfig) -> LanguageModel:
    torch.manual_seed(0)
    config = ModelConfig(embedding_size=12, encoder=LSTMConfig(hidden_size=12), memory=memory)
    return LanguageModel(config, V).double()


def variants(seed: int = 1) -> list[list[int]]:
    """Texts that begin alike, some of them equal, one empty."""
    generator = random.Random(seed)
    texts = [[EOS]]
    for _ in range(6):
        words = generator.choices(range(1, V), k=generator.randint(1, 9))
        for _ in range(5):
            changed = list(words)
            changed[generator.randrange(len(changed))] = generator.randrange(1, V)
            texts.append([*changed[: generator.randint(0, len(changed))], EOS])
    return texts


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: memory.kind)
@pytest.mark.parametrize("predict_first", [True, False])
@pytest.mark.parametrize("streams", [3, 512])
@torch.no_grad()
def test_as_each_text_alone(memory: AnyMemoryConfig, predict_first: bool, streams: int) -> None:
    model, texts = model_with(memory), variants()
    found, prefixes = score_texts(model, texts, EOS, predict_first=predict_first, streams=streams)
    model.eval()
    for text, values in zip(texts, found, strict=True):
        ids = torch.tensor([EOS, *text] if predict_first else text)[:, None]
        alone = model.log_prob(ids[:-1], ids[1:], model.init_state(1))[0][:, 0].tolist() if len(ids) > 1 else []
        assert values == pytest.approx(alone, abs=1e-10)
    assert prefixes.tokens == sum(map(len, texts)) + predict_first * len(texts)
    if streams > 3:
        assert prefixes.read < 0.7 * prefixes.tokens


def test_words_in_common_are_read_once() -> None:
    texts = [[1, 2, 3, EOS], [1, 2, 4, EOS], [1, 2, 3, EOS]]
    found, prefixes = score_texts(model_with(NoMemoryConfig()), texts, EOS)
    assert found[0] == found[2] != found[1]
    assert prefixes.read == 5  # <eos>, 1, 2, 3, 4; of the ends nothing is read


def test_no_texts() -> None:
    assert score_texts(model_with(NoMemoryConfig()), [], EOS) == ([], Prefixes())
