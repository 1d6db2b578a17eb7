"""What is recorded is what the model did: compared with its own readout, step by step and document by document."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from spanlm.analysis.attend import attention_by_lag
from spanlm.data.batching import make_batcher
from spanlm.data.token_files import TokenFile
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError
from spanlm.evaluation.attention import attend_words, check_attends
from spanlm.models.encoders import LSTMConfig
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import KeyValueConfig, NoMemoryConfig, PointerSentinelConfig, RecurrentMemoryConfig

VOCABULARY = Vocabulary((EOS, UNK, *"abcdefgh"))
TEXT = f"a b c {EOS} d {UNK} {EOS} e {EOS} {EOS} f g h {EOS} a b c d {EOS}".split()
DOCUMENTS = np.array([0, 7, 10])
WINDOW = 3
MEMORIES = {0: RecurrentMemoryConfig(window=WINDOW), 1: KeyValueConfig(roles=2, window=WINDOW)}
every_nearest_lag = pytest.mark.parametrize("nearest_lag", MEMORIES)


def make_model(memory: Any) -> LanguageModel:
    torch.manual_seed(0)
    config = ModelConfig(embedding_size=5, encoder=LSTMConfig(hidden_size=6), memory=memory, init_range=0.7)
    return LanguageModel(config, len(VOCABULARY)).eval()


def stepwise(model: LanguageModel, targets: list[str]) -> list[dict[int, float]]:
    """For each position the weight of each lag, one step at a time."""
    state, found = model.init_state(1), []
    for word in [EOS, *targets[:-1]]:
        with torch.no_grad():
            readout, state = model(torch.tensor([[VOCABULARY.id(word)]]), state)
        row = readout.attention.weights[0, 0].tolist()
        found.append({readout.attention.nearest_lag + i: weight for i, weight in enumerate(reversed(row))})
    return found


@every_nearest_lag
def test_a_record_has_every_weight_at_its_lag(nearest_lag: int) -> None:
    model = make_model(MEMORIES[nearest_lag])
    record = attend_words(model, VOCABULARY, TEXT, title="t")
    assert list(record.lags) == list(range(nearest_lag + WINDOW - 1, nearest_lag - 1, -1))
    assert (record.targets, record.words) == (TEXT, [EOS, *TEXT[:-1]])
    for position, weights in enumerate(stepwise(model, TEXT)):
        assert dict(zip(record.lags, record.weights[position].tolist(), strict=True)) == pytest.approx(
            weights, abs=1e-6
        )
    filled = [min(position + 1 - nearest_lag, WINDOW) for position in range(len(TEXT))]
    assert record.occupied.sum(axis=1).tolist() == filled


@pytest.mark.parametrize("sharp", [1, 1_000])
@every_nearest_lag
def test_by_lag_is_the_mean_over_full_windows_of_every_document(nearest_lag: int, sharp: float) -> None:
    """However sure the model is: weights of full windows are 0 in float32 then."""
    model = make_model(MEMORIES[nearest_lag])
    with torch.no_grad():
        of_scores: Any = model.memory
        (of_scores.score if nearest_lag else of_scores.keys.weight).mul_(sharp)
    tokens = TokenFile(np.array(VOCABULARY.encode(TEXT), np.int32), DOCUMENTS)
    batcher = make_batcher("documents", tokens, VOCABULARY.eos_id, batch_size=2, length=2)
    profile = attention_by_lag(model, batcher)
    rows = []
    for start, end in zip(DOCUMENTS, [*DOCUMENTS[1:], len(TEXT)], strict=True):
        rows += stepwise(model, TEXT[start:end])[WINDOW - 1 + nearest_lag :]
    assert (profile.positions, profile.left_out) == (len(rows), len(TEXT) - len(rows))
    for lag, percent in zip(profile.lags, profile.percent, strict=True):
        assert percent == pytest.approx(100 * np.mean([row[lag] for row in rows]), abs=1e-4)


def test_words_that_nothing_opens_begin_with_one_that_is_read_and_not_predicted() -> None:
    """Had the opening <eos> been that word, the rest were the same."""
    model = make_model(MEMORIES[1])
    one = attend_words(model, VOCABULARY, [EOS, "a", "b", EOS], opened=False)
    other = attend_words(model, VOCABULARY, ["a", "b", EOS])
    assert (one.words, one.targets) == (other.words, other.targets) == ([EOS, "a", "b"], ["a", "b", EOS])
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(one.surprisal, other.surprisal)
    with pytest.raises(InputError, match="at least 2 words"):
        attend_words(model, VOCABULARY, ["a"], opened=False)


def test_a_model_without_attention_is_refused_before_any_work() -> None:
    for memory in MEMORIES.values():
        check_attends(make_model(memory))
    with pytest.raises(InputError, match="attends to nothing"):
        check_attends(make_model(NoMemoryConfig()))


def test_of_a_pointer_the_mean_gate_is_what_lies_on_no_word() -> None:
    model = make_model(PointerSentinelConfig(window=WINDOW))
    record = attend_words(model, VOCABULARY, TEXT)
    with torch.no_grad():
        readout, _ = model(torch.tensor([VOCABULARY.encode([EOS, *TEXT[:-1]])]).T, model.init_state(1))
    gates = readout.mixture.log_gate.exp().flatten()
    np.testing.assert_allclose(1 - record.weights.sum(axis=1), gates, atol=1e-6)
    tokens = TokenFile(np.array(VOCABULARY.encode(TEXT), np.int32), np.array([0]))
    profile = attention_by_lag(model, make_batcher("streams", tokens, VOCABULARY.eos_id, batch_size=1, length=4))
    assert (list(profile.lags), profile.left_out) == ([2, 1, 0], WINDOW - 1)
    assert profile.null_mass == pytest.approx(100 * float(gates[WINDOW - 1 :].mean()), abs=1e-4)
