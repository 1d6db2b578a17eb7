"""What context is worth, against a loop that reads every word by itself for every place, change and length."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import spanlm
from spanlm.analysis import context
from spanlm.analysis.context import (
    DROPPED,
    NO_ENCODER,
    NO_MEMORY,
    REPLACED,
    SHUFFLED,
    TRUNCATED,
    effective_context,
    effective_length,
    measure_context,
)
from spanlm.data.config import DataConfig
from spanlm.data.corpora import Corpus, load_corpus
from spanlm.data.token_files import TokenFile
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError
from spanlm.models.encoders import LSTMConfig
from spanlm.models.interfaces import LMState
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import AnyMemoryConfig, AttentiveConfig, KeyValueConfig, NoMemoryConfig
from spanlm.scoring.options import Context, ContextOptions
from spanlm.scoring.protocol import Protocol

LENGTHS, FAR = (1, 2, 4), 4


@pytest.fixture(scope="module")
def corpus(tiny_corpus: Path) -> Corpus:
    """The first tokens of the tiny test part, as two documents."""
    whole = load_corpus(DataConfig(corpus=str(tiny_corpus), documents="blank-line"))
    part = TokenFile(np.array(whole.splits["test"].ids[:30]), np.array([0, 12]))
    return replace(whole, splits={"test": part})


def made(memory: AnyMemoryConfig, words: int) -> LanguageModel:
    torch.manual_seed(4)
    config = ModelConfig(embedding_size=5, init_range=1.0, encoder=LSTMConfig(hidden_size=6), memory=memory)
    return LanguageModel(config, words).double().eval()


def read_whole(
    model: LanguageModel, inputs: list[int], targets: list[int], state: LMState | None = None
) -> tuple[list[LMState], list[float]]:
    """Read words one by one: the states before each, and the bits of each target."""
    states, bits = [model.init_state(1) if state is None else state], list[float]()
    with torch.no_grad():
        for word, target in zip(inputs, targets, strict=True):
            log_p, state = model.log_probs(torch.tensor([[word]]), states[-1])
            states.append(state)
            bits.append(-float(log_p[0, 0, target]) / math.log(2))
    return states, bits


def begins(corpus: Corpus, kind: Context) -> list[int]:
    ids, eos = corpus.splits["test"].ids.tolist(), corpus.vocabulary.eos_id
    lines = [0, *(n + 1 for n, id in enumerate(ids[:-1]) if id == eos)]
    return {"carry": [0], "line": lines, "document": corpus.splits["test"].documents.tolist()}[kind]


Both = tuple[float, float]
"""Mean bits of a change, and of the whole context, at the same targets."""


def looped(model: LanguageModel, corpus: Corpus, kind: Context, options: ContextOptions) -> dict[str, dict[int, Both]]:
    """Each change read literally: for every start and length its words anew."""
    ids, eos = corpus.splits["test"].ids.tolist(), corpus.vocabulary.eos_id
    bounds, empty = [*begins(corpus, kind), len(ids)], model.init_state(1)
    found: dict[str, dict[int, list[Both]]] = {}

    def add(name: str, n: int, read: list[int], state: LMState, at: int) -> None:
        _, bits = read_whole(model, read, [*read[1:], targets[at]], state)
        found.setdefault(name, {}).setdefault(n, []).append((bits[-1], wholes[at]))

    for begin, end in pairwise(bounds):
        inputs = [eos, *ids[begin : end - 1]]  # what is read before each target of this context
        targets = ids[begin:end]
        befores, wholes = read_whole(model, inputs, targets)
        for start in range(1, end - begin):
            before = befores[start]
            add(TRUNCATED, 0, [eos], empty, start)
            states = {
                TRUNCATED: empty,
                NO_MEMORY: LMState(before.encoder, empty.memory),
                NO_ENCODER: LMState(empty.encoder, before.memory),
            }
            for n in options.lengths:
                if start + n <= end - begin:
                    for name, state in states.items():
                        add(name, n, inputs[start : start + n], state, start + n - 1)
                if start + FAR + n <= end - begin:
                    words, read = inputs[start : start + FAR], inputs[start + FAR : start + FAR + n]
                    draw = np.random.default_rng([options.seed, begin + start])
                    far = draw.permutation(np.array(words)).tolist()
                    add(SHUFFLED, n, [*far, *read], before, start + FAR + n - 1)
                    draw = np.random.default_rng([options.seed, begin + start])
                    kept = sorted(draw.choice(FAR, FAR // 2, replace=False).tolist())
                    add(DROPPED, n, [*(words[k] for k in kept), *read], before, start + FAR + n - 1)
    return {
        name: {n: (float(np.mean(values, 0)[0]), float(np.mean(values, 0)[1])) for n, values in each.items()}
        for name, each in found.items()
    }


MEMORIES = {
    "key_value": KeyValueConfig(roles=3, window=3),
    "attentive": AttentiveConfig(score="combined"),
}


@pytest.mark.parametrize(
    ("memory", "kind"), [pytest.param("key_value", "document", marks=pytest.mark.slow), ("attentive", "line")]
)
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
            changed, whole = points[point.words]
            assert point.excess == pytest.approx(changed - whole, abs=1e-9), (name, point)
            assert point.bits == pytest.approx(changed, abs=1e-9), (name, point)
            assert math.isnan(point.interval[0]), "two blocks say nothing of others"
    assert math.isnan(found.effective)
    assert found.curves[TRUNCATED][1].positions > found.curves[TRUNCATED][-1].positions, "contexts end"


def test_a_text_as_one_stream_and_a_model_without_memory(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(NoMemoryConfig(), len(corpus.vocabulary))
    options = ContextOptions(positions=40, lengths=(1, 3, 40), far=0, seed=5)
    found = measure_context(model, corpus, "test", Protocol(), options)
    assert found.curves.keys() == {TRUNCATED}, "there is no memory to empty, and nothing far is changed"
    assert [point.words for point in found.curves[TRUNCATED]][:3] == [0, 1, 3]
    assert found.gain == found.curves[TRUNCATED][0].excess
    again = measure_context(model, corpus, "test", Protocol(), options)
    assert repr(found) == repr(again), "the same seed, the same numbers (nan is not itself)"
    seen = list[tuple[int, int]]()
    monkeypatch.setattr(context, "STREAMS", 1)  # so that each is reported
    few = ContextOptions(positions=2, lengths=(1, 3), far=0)
    measure_context(model, corpus, "test", Protocol(), few, report=lambda _, done, total: seen.append((done, total)))
    starts = np.random.default_rng(1).choice(np.arange(1, 30), 2, replace=False)
    assert seen[-1][1] == min(starts.max() + 3, 30) < 30, "nothing is read after the last target"
    with pytest.raises(InputError, match="positions=1: must be at least 2"):
        ContextOptions(positions=1)


def test_without_a_gain_there_is_no_effective_length(tiny_run: Path) -> None:
    """A model that learnt nothing predicts better without any context."""
    run, options = spanlm.load(tiny_run), ContextOptions(positions=400, lengths=(1, 3), far=0)
    text = run.corpus(None, "train")
    for model, gains in ((run.model, True), (made(NoMemoryConfig(), len(text.vocabulary)), False)):
        found = measure_context(model, text, "train", Protocol(), options)
        assert (found.gain > 0) == gains
        assert math.isnan(found.effective) == (not gains)


def test_words_are_replaced_by_others_as_frequent() -> None:
    counts = np.array([0, 1, 2, 3, 4, 5, 6, 7, 16, 64, 90, 600, 5, 6])
    vocabulary = Vocabulary((*"abcdefghijkl", "<eos>", "<unk>"))
    # the word of 16 has none beside it and is put to those of 64 and 90, as is that of 600, after which comes none
    bands = ({0, 1}, {2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11})
    replacer = context._Replacer(counts, vocabulary)
    draw = np.random.default_rng(0)
    for word in range(len(counts)):
        drawn = set(replacer(np.full(400, word), draw).tolist())
        others = next((band - {word} for band in bands if word in band), {word})  # <eos> and <unk> stay
        assert drawn == others
    often = np.bincount(replacer(np.full(20_000, 5), draw), minlength=8)[4:8] / 20_000
    assert often == pytest.approx(np.array([4, 0, 6, 7]) / 17, abs=0.02)
    alone = context._Replacer(np.array([3, 9, 2]), Vocabulary(("a", "<eos>", "<unk>")))
    assert alone(np.arange(3), draw).tolist() == [0, 1, 2], "there is no other word"


def test_the_effective_length_is_where_a_hundredth_of_the_gain_is_left() -> None:
    words = [0, 1, 10, 100]
    half_way = pytest.approx(10**1.5)  # from 10 to 100
    assert effective_length(words, np.array([2.0, 1.0, 0.04, 0.0]), 1) == half_way
    assert effective_length(words, np.array([2.0, 0.0, 0.0, 0.0]), 0) == pytest.approx(0.99)
    assert effective_length(words, np.array([2.0, 0.01, 0.04, 0.0]), 2) == half_way, "10 is surely above"
    assert effective_length(words, np.array([2.0, 0.0, 0.04, 0.0]), 0) == pytest.approx(0.99), "10 is above by chance"
    assert effective_length(words, np.array([2.0, 0.0, 0.0, 0.0]), 2) == pytest.approx(0.99), "a draw without that"
    assert effective_length(words, np.array([2.0, 1.0, 0.5, 0.03]), 2) == math.inf
    assert effective_length(words, np.array([-0.1, 0.0, 0.0, 0.0]), 0) == 0, "nothing is gained by any word"


def test_noise_at_long_lengths_makes_the_effective_length_no_longer() -> None:
    """E is 0.5 bits after a word and nothing after two, ± as much as the limit of 0.02 bits."""
    words, truth = [0, 1, *range(2, 40, 3)], np.array([2.0, 0.5, *[0.0] * 13])
    generator, found, covered = np.random.default_rng(1), [], 0
    for _ in range(40):
        excess = truth + generator.normal(0, 0.02, len(words))
        effective, (low, high) = effective_context(words, excess, excess + generator.normal(0, 0.02, (400, len(words))))
        found.append(effective)
        covered += low <= 2 ** (0.48 / 0.5) <= high
    assert 1.5 < np.median(found) < 2.5 and np.quantile(found, 0.75) < 6, "the largest of 13 would mostly be beyond"
    assert covered >= 34
