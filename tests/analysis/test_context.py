"""What context is worth, against a loop that reads every word by itself for every place, change and length."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from spanlm.analysis import context
from spanlm.analysis.context import (
    DROPPED,
    NO_ENCODER,
    NO_MEMORY,
    REPLACED,
    SHUFFLED,
    TRUNCATED,
    ContextOptions,
    effective_length,
    measure_context,
)
from spanlm.data.config import DataConfig
from spanlm.data.corpora import Corpus, load_corpus
from spanlm.data.token_files import TokenFile
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError
from spanlm.evaluation.protocol import Context, Protocol
from spanlm.models.encoders import LSTMConfig
from spanlm.models.interfaces import LMState
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import AnyMemoryConfig, AttentiveConfig, KeyValueConfig, NoMemoryConfig

LENGTHS, FAR = (1, 2, 4), 4


@pytest.fixture(scope="module")
def corpus(tiny_corpus: Path) -> Corpus:
    """The first tokens of the tiny test part, as two documents."""
    whole = load_corpus(DataConfig(corpus=str(tiny_corpus), documents="blank-line"))
    part = TokenFile(np.array(whole.splits["test"].ids[:44]), np.array([0, 18]))
    return replace(whole, splits={"test": part})


def made(memory: AnyMemoryConfig, words: int) -> LanguageModel:
    torch.manual_seed(4)
    config = ModelConfig(embedding_size=5, init_range=1.0, encoder=LSTMConfig(hidden_size=6), memory=memory)
    return LanguageModel(config, words).double().eval()


def surprise(model: LanguageModel, read: list[int], target: int, state: LMState) -> float:
    """Bits of a target after words that are read one by one."""
    with torch.no_grad():
        for word in read:
            log_p, state = model.log_probs(torch.tensor([[word]]), state)
    return -float(log_p[0, 0, target]) / math.log(2)


def after(model: LanguageModel, read: list[int]) -> LMState:
    state = model.init_state(1)
    with torch.no_grad():
        for word in read:
            _, state = model(torch.tensor([[word]]), state)
    return state


def begins(corpus: Corpus, kind: Context) -> list[int]:
    ids, eos = corpus.splits["test"].ids.tolist(), corpus.vocabulary.eos_id
    lines = [0, *(n + 1 for n, id in enumerate(ids[:-1]) if id == eos)]
    return {"carry": [0], "line": lines, "document": corpus.splits["test"].documents.tolist()}[kind]


def looped(model: LanguageModel, corpus: Corpus, kind: Context, options: ContextOptions) -> dict[str, dict[int, float]]:
    """E(n) of each change, read literally: for every start, length and change all its words anew."""
    ids, eos = corpus.splits["test"].ids.tolist(), corpus.vocabulary.eos_id
    bounds = [*begins(corpus, kind), len(ids)]
    found: dict[str, dict[int, list[float]]] = {}
    for begin, end in pairwise(bounds):
        inputs = [eos, *ids[begin : end - 1]]  # what is read before each target of this context
        targets = ids[begin:end]
        wholes = [surprise(model, inputs[: at + 1], targets[at], model.init_state(1)) for at in range(end - begin)]
        for start in range(1, end - begin):
            before = after(model, inputs[:start])
            empty = model.init_state(1)
            whole = wholes[start]
            found.setdefault(TRUNCATED, {}).setdefault(0, []).append(
                surprise(model, [eos], targets[start], empty) - whole
            )
            states = {
                TRUNCATED: empty,
                NO_MEMORY: LMState(before.encoder, empty.memory),
                NO_ENCODER: LMState(empty.encoder, before.memory),
            }
            for n in options.lengths:
                if start + n <= end - begin:
                    read, target = inputs[start : start + n], targets[start + n - 1]
                    whole = wholes[start + n - 1]
                    for name, state in states.items():
                        more = surprise(model, read, target, state) - whole
                        found.setdefault(name, {}).setdefault(n, []).append(more)
                if start + FAR + n <= end - begin:
                    read, target = inputs[start + FAR : start + FAR + n], targets[start + FAR + n - 1]
                    whole = wholes[start + FAR + n - 1]
                    draw = np.random.default_rng([options.seed, begin + start])
                    far = draw.permutation(np.array(inputs[start : start + FAR])).tolist()
                    more = surprise(model, [*far, *read], target, before) - whole
                    found.setdefault(SHUFFLED, {}).setdefault(n, []).append(more)
                    draw = np.random.default_rng([options.seed, begin + start])
                    kept = sorted(draw.choice(FAR, FAR // 2, replace=False).tolist())
                    more = surprise(model, [*(inputs[start + k] for k in kept), *read], target, before) - whole
                    found.setdefault(DROPPED, {}).setdefault(n, []).append(more)
    return {name: {n: float(np.mean(values)) for n, values in each.items()} for name, each in found.items()}


MEMORIES = {
    "key_value": KeyValueConfig(roles=3, window=3),
    "attentive": AttentiveConfig(score="combined"),
}


@pytest.mark.parametrize(("memory", "kind"), [("key_value", "document"), ("attentive", "line")])
def test_every_number_is_that_of_the_loop(
    corpus: Corpus, memory: str, kind: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where few streams are read at a time, and a few steps."""
    model = made(MEMORIES[memory], len(corpus.vocabulary))
    options = ContextOptions(positions=10_000, lengths=LENGTHS[::-1], far=FAR)  # every place there is
    monkeypatch.setattr(context, "STREAMS", 7)
    monkeypatch.setattr(context, "STEPS", 3)
    found = measure_context(model, corpus, "test", Protocol(context=kind), options)
    expected = looped(model, corpus, kind, options)
    assert found.curves.keys() - {REPLACED} == expected.keys() and len(expected) >= 3
    for name, points in expected.items():
        assert {point.words for point in found.curves[name]} == points.keys()
        for point in found.curves[name]:
            assert point.excess == pytest.approx(points[point.words], abs=1e-9), (name, point)
    assert found.curves[TRUNCATED][1].positions > found.curves[TRUNCATED][-1].positions, "contexts end"


def test_a_text_as_one_stream_and_a_model_without_memory(corpus: Corpus) -> None:
    model = made(NoMemoryConfig(), len(corpus.vocabulary))
    options = ContextOptions(positions=40, lengths=(1, 3, 40), far=0, seed=5)
    found = measure_context(model, corpus, "test", Protocol(), options)
    assert found.curves.keys() == {TRUNCATED}, "there is no memory to empty, and nothing far is changed"
    assert [point.words for point in found.curves[TRUNCATED]][:3] == [0, 1, 3]
    assert found.gain == found.curves[TRUNCATED][0].excess
    assert found == measure_context(model, corpus, "test", Protocol(), options), "the same seed, the same numbers"
    with pytest.raises(InputError, match="positions=1: must be at least 2"):
        ContextOptions(positions=1)


def test_words_are_replaced_by_others_as_frequent() -> None:
    counts = np.array([0, 1, 2, 3, 4, 5, 6, 7, 16, 31, 64, 90, 5, 6])
    vocabulary = Vocabulary((*"abcdefghijkl", "<eos>", "<unk>"))
    eos, unk = vocabulary.eos_id, vocabulary.unk_id
    replacer = context._Replacer(counts, vocabulary)
    draw = np.random.default_rng(0)
    for word in range(len(counts)):
        drawn = set(replacer(np.full(400, word), draw).tolist())
        band = {
            n for n in range(len(counts)) if int(counts[n] or 1).bit_length() == int(counts[word] or 1).bit_length()
        }
        assert drawn == ({word} if word in (eos, unk) else band - {eos, unk})
    often = np.bincount(replacer(np.full(20_000, 4), draw), minlength=8)[4:8] / 20_000
    assert often == pytest.approx(np.array([4, 5, 6, 7]) / 22, abs=0.02)


def test_the_effective_length_is_where_a_hundredth_of_the_gain_is_left() -> None:
    words = [0, 1, 10, 100]
    assert effective_length(words, np.array([2.0, 1.0, 0.04, 0.0])) == pytest.approx(10**1.5), "half way from 10 to 100"
    assert effective_length(words, np.array([2.0, 0.0, 0.0, 0.0])) == pytest.approx(0.99)
    assert effective_length(words, np.array([2.0, 0.01, 0.04, 0.0])) == pytest.approx(10**1.5), (
        "from there on, not once"
    )
    assert effective_length(words, np.array([2.0, 1.0, 0.5, 0.03])) == math.inf
    assert effective_length(words, np.array([-0.1, 0.0, 0.0, 0.0])) == 0, "nothing is gained by any word"
