"""A model that begins anew at each line, in one stream."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from spanlm.data.config import DataConfig
from spanlm.data.corpora import Corpus, load_corpus
from spanlm.evaluation import perplexity
from spanlm.evaluation.cache import CacheConfig
from spanlm.evaluation.line_by_line import LineByLine
from spanlm.evaluation.perplexity import evaluate
from spanlm.models.config import ModelConfig
from spanlm.models.encoders import LSTMConfig
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import AnyMemoryConfig, AttentiveConfig, NoMemoryConfig

MEMORIES: dict[str, AnyMemoryConfig] = {
    "none": NoMemoryConfig(),
    "single": AttentiveConfig(score="single"),
    "combined": AttentiveConfig(score="combined"),
}


@pytest.fixture(scope="module")
def corpus(tiny_corpus: Path) -> Corpus:
    return load_corpus(DataConfig(corpus=str(tiny_corpus)))


def model_of(memory: AnyMemoryConfig, corpus: Corpus) -> LanguageModel:
    torch.manual_seed(3)
    config = ModelConfig(embedding_size=5, init_range=0.7, encoder=LSTMConfig(hidden_size=6), memory=memory)
    return LanguageModel(config, len(corpus.vocabulary)).double().eval()


@pytest.mark.parametrize(
    ("memory", "length"), [("none", 1), ("none", 256), ("single", 7), ("single", 256), ("combined", 7)]
)
def test_each_word_has_the_probability_it_has_in_its_sentence(
    corpus: Corpus, memory: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(MEMORIES[memory], corpus)
    by_sentence = evaluate(model, corpus, kind="sentences")
    monkeypatch.setattr(perplexity, "LENGTH", length)
    stream = evaluate(LineByLine(model, corpus.vocabulary.eos_id), corpus)
    assert stream.tokens == by_sentence.tokens
    assert stream.nll == pytest.approx(by_sentence.nll, rel=1e-12)
    assert stream.nll != pytest.approx(evaluate(model, corpus).nll, rel=1e-6), "carrying the state on is another count"


def test_a_cache_beside_it_goes_on_over_the_lines(corpus: Corpus) -> None:
    model, cache = model_of(NoMemoryConfig(), corpus), CacheConfig(window=100, theta=0.5, lambda_=0.5)
    over = evaluate(LineByLine(model, corpus.vocabulary.eos_id), corpus, cache=cache)
    within = evaluate(model, corpus, kind="sentences", cache=cache)
    assert over.without_cache is not None and within.without_cache is not None
    assert over.without_cache.nll == pytest.approx(within.without_cache.nll, rel=1e-12)
    assert over.nll < within.nll, "the language of the text repeats itself from line to line"
