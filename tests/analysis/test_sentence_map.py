"""Weights stand where the words are, for every memory that attends, however long the text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from spanlm.analysis import reading
from spanlm.analysis.attend import attend_words, attention_by_lag, attention_flatness
from spanlm.analysis.flatness import FlatnessAccumulator
from spanlm.analysis.sentence_map import SentenceMap, attend_sentence, common_scale, mean_flatness
from spanlm.data.batching import make_batcher
from spanlm.data.tokens import TokenFile
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError
from spanlm.models.memories import AttentiveConfig, NoMemoryConfig
from tests.models.small import SMALL_MEMORIES, identify

from .test_attend import make_model

VOCABULARY = Vocabulary((EOS, UNK, *"abcdefgh"))
WORDS = ["a", "b", "zebra", "c", "d", "e", "<unk>", "f", "g", "h", "a", "b"]
TEXT = [*WORDS, EOS, "a", EOS, EOS, *"hgfedcba", EOS]
ATTENDING = [
    pytest.param(config, id=identify(config))
    for configs in SMALL_MEMORIES.values()
    for config in configs
    if config.kind not in ("none", "ngram") and getattr(config, "score", None) != "none"
]


def make_map(config: Any, words: list[str] = WORDS) -> SentenceMap:
    return attend_sentence(make_model(config), VOCABULARY, words, name="m", memory=config.description)


def stepwise(config: Any, words: list[str]) -> np.ndarray:
    """(N, N): each weight where the word is that it is given to, one step at a time."""
    model = make_model(config)
    state, found = model.init_state(1), np.full((len(words), len(words)), np.nan)
    for t, word in enumerate(words):
        with torch.no_grad():
            readout, state = model(torch.tensor([[VOCABULARY.id(word)]]), state)
        for back, weight in enumerate(reversed(readout.attention.by_lag()[0, 0].tolist())):
            source = t - readout.attention.nearest_lag - back
            if source >= 0:
                found[t, source] = weight
    return found


@pytest.mark.parametrize("config", ATTENDING)
def test_a_map_has_every_weight_at_its_word(config: Any) -> None:
    one = make_map(config)
    assert (one.record.words, one.record.targets) == ([EOS, *WORDS], [*WORDS, EOS])
    expected = stepwise(config, one.record.words)
    np.testing.assert_array_equal(np.isnan(one.matrix), np.isnan(expected))
    np.testing.assert_allclose(one.matrix, expected, atol=1e-6)
    assert (~np.isnan(one.matrix)).sum(axis=1).tolist() == one.slots.tolist()
    np.testing.assert_allclose(np.nansum(one.matrix, axis=1) + one.on_no_word, one.slots > 0, atol=1e-6)
    if one.flatness is not None:  # a window of one word has none
        assert one.flatness.nearest_lag == one.record.nearest_lag


@pytest.mark.parametrize("config", ATTENDING)
def test_a_text_in_parts_is_the_text_whole(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a memory that grows, later parts have wider windows."""
    whole = attend_words(make_model(config), VOCABULARY, TEXT)
    monkeypatch.setattr(reading, "STEPS", 5)
    parts = attend_words(make_model(config), VOCABULARY, TEXT)
    assert parts.window == whole.window
    np.testing.assert_allclose(parts.weights, whole.weights, atol=1e-6)


def test_a_text_with_too_many_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "STEPS", 5)
    monkeypatch.setattr(reading, "MOST_WEIGHTS", len(TEXT) * 12)
    with pytest.raises(InputError, match=rf"{len(TEXT)} words, which look back at up to 14 .*part of it"):
        attend_words(make_model(AttentiveConfig()), VOCABULARY, TEXT)
    assert attend_words(make_model(AttentiveConfig(window=12)), VOCABULARY, TEXT).window == 12


@pytest.mark.parametrize("config", ATTENDING)
@pytest.mark.parametrize("kind", ["sentences", "documents"])
def test_flatness_of_a_corpus_is_that_of_its_pieces_read_alone(config: Any, kind: Any) -> None:
    documents = np.array([0, 13, 15])
    tokens = TokenFile(np.array(VOCABULARY.encode(TEXT), np.int32), documents)
    ends = np.flatnonzero(tokens.ids == 0) + 1 if kind == "sentences" else [*documents[1:], len(TEXT)]
    batcher = make_batcher(kind, tokens, 0, batch_size=2, length=4)
    model, lag = make_model(config), make_map(config).record.nearest_lag
    expected = FlatnessAccumulator(lag)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        record = attend_words(model, VOCABULARY, TEXT[start:end])
        rows, held = record.weights, np.clip(np.arange(len(record)) + 1 - lag, 0, record.window)
        if config.kind == "span_buffer":  # only the lags where spans end have slots, and each that is there has weight
            held = (rows > 0).sum(axis=1)
            rows = np.stack([np.pad(row[row > 0], (record.window, 0))[-record.window :] for row in rows])
        expected.update(rows, held)
    if expected.rows == 0:  # a window of one word
        with pytest.raises(InputError, match=f"none of {len(TEXT)} positions"):
            attention_flatness(model, batcher)
        return
    found = attention_flatness(model, batcher)
    assert found.left_out == expected.left_out and found.nearest_lag == lag
    for one, other in zip(found.groups, expected.result().groups, strict=True):
        assert one[:2] == other[:2]
        assert one[2:] == pytest.approx(other[2:], abs=1e-5)


@pytest.mark.parametrize("score", ["single", "combined"])
def test_by_lag_of_a_memory_that_grows_tells_the_nearest_apart(score: Any) -> None:
    config = AttentiveConfig(score=score, zero_slot=score == "single")
    tokens = TokenFile(np.array(VOCABULARY.encode(TEXT), np.int32), np.array([0]))
    batcher = make_batcher("sentences", tokens, 0, batch_size=2, length=4)
    profile = attention_by_lag(make_model(config), batcher, nearest=3)
    rows = []
    for line in ([EOS, *WORDS], [EOS, "a"], [EOS], [EOS, *"hgfedcba"]):
        rows += [row[~np.isnan(row)] for row in stepwise(config, line)]
    kept = [row for row in rows if len(row) >= 3]
    assert (profile.positions, profile.window, list(profile.lags)) == (len(kept), 3, [3, 2, 1])
    assert profile.percent == pytest.approx(tuple(100 * np.mean([row[-3:] for row in kept], axis=0)), abs=1e-4)
    assert profile.older == pytest.approx(100 * np.mean([row[:-3].sum() for row in kept]), abs=1e-4)
    elsewhere = 100 - 100 * np.mean([row.sum() for row in kept])
    assert profile.on_no_step == pytest.approx(elsewhere, abs=1e-3)


def test_unknown_words_are_marked_and_written_ones_are_not_doubled() -> None:
    one = make_map(AttentiveConfig())
    assert one.unknown == {"zebra", UNK}
    assert [one.mark(word) for word in ("zebra", UNK, "a")] == [f" {UNK}", "", ""]


@pytest.mark.parametrize(
    ("words", "message"), [([], "at least one word"), (["a"] * 121, "121 words.*at most 120.*--text")]
)
def test_sentences_of_another_length_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_map(AttentiveConfig(), words)


def test_a_model_without_attention_is_refused() -> None:
    with pytest.raises(InputError, match="attends to nothing"):
        make_map(NoMemoryConfig())


def test_a_sentence_of_one_word_has_no_flatness() -> None:
    assert make_map(AttentiveConfig(), ["a"]).flatness is None
    two = [make_map(AttentiveConfig(), ["a"]), make_map(AttentiveConfig())]
    both, long = mean_flatness(two), mean_flatness(two[1:])
    assert both is not None and long is not None
    assert (both.overall, both.left_out) == (long.overall, long.left_out + 2)


def test_the_scale_is_common_and_not_set_by_rows_of_few_words() -> None:
    one, other = make_map(AttentiveConfig(score="single")), make_map(AttentiveConfig())
    tops = [common_scale([each])[0] for each in (one, other)]
    assert common_scale([one, other]) == (max(tops), True)
    settled = np.concatenate([each.matrix[6:].ravel() for each in (one, other)])
    settled = settled[~np.isnan(settled)]
    assert (settled > max(tops)).mean() <= 0.05
    assert max(tops) <= 2 * np.quantile(settled, 0.95)
