"""Weights stand where the words are, for every memory that attends, however long the text; excerpts of corpora."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spanlm.analysis.attend import attention_by_lag, attention_flatness, excerpt
from spanlm.analysis.flatness import FlatnessAccumulator, mean_flatness
from spanlm.analysis.heat_maps import by_word
from spanlm.data.batching import make_batcher
from spanlm.data.corpora import Corpus
from spanlm.data.token_files import TokenFile
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError
from spanlm.models.encoders import LSTMConfig
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import AttentiveConfig, KeyValueConfig
from spanlm.scoring.attention import STEPS, AttentionRecord, attention_record
from tests.cases import rest_slow
from tests.models.small import SMALL_MEMORIES, identify

VOCABULARY = Vocabulary((EOS, UNK, *"abcdefgh"))
WORDS = ["a", "b", "zebra", "c", "d", "e", "<unk>", "f", "g", "h", "a", "b"]
TEXT = [*WORDS, EOS, "a", EOS, EOS, *"hgfedcba", EOS]
ATTENDING = [
    pytest.param(config, id=identify(config))
    for configs in SMALL_MEMORIES.values()
    for config in configs
    if config.kind not in ("none", "ngram") and getattr(config, "score", None) != "none"
]


def make_model(memory: Any) -> LanguageModel:
    torch.manual_seed(0)
    config = ModelConfig(embedding_size=5, encoder=LSTMConfig(hidden_size=6), memory=memory, init_range=0.7)
    return LanguageModel(config, len(VOCABULARY)).eval()


LONG = TEXT * 6
"""More words than are read at a time."""


def make_map(config: Any, words: list[str] = WORDS) -> AttentionRecord:
    return attention_record(make_model(config), VOCABULARY, [*words, EOS])


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
    record = make_map(config)
    assert (record.words, record.targets) == ([EOS, *WORDS], [*WORDS, EOS])
    matrix, expected = by_word(record), stepwise(config, record.words)
    if record.span > 1:  # there is no slot at the lags where no span ends
        matrix, expected = np.nan_to_num(matrix), np.nan_to_num(expected)
    np.testing.assert_allclose(matrix, expected, atol=1e-6)  # NaN stands at the same places


@pytest.mark.parametrize("config", ATTENDING)
def test_a_text_in_parts_is_the_text_whole(config: Any) -> None:
    """Of a memory that grows, later parts have wider windows."""
    model, parts = make_model(config), attention_record(make_model(config), VOCABULARY, LONG)
    with torch.no_grad():
        words = torch.tensor(VOCABULARY.encode([EOS, *LONG[:-1]])).unsqueeze(1)
        whole = model(words, model.init_state(1))[0].attention.by_lag()[:, 0]
    assert len(LONG) > STEPS and parts.window == whole.shape[-1]
    np.testing.assert_allclose(parts.weights, whole, atol=1e-6)


@pytest.mark.parametrize("config", rest_slow(ATTENDING, always=2, kind=lambda case: case.values[0].kind))
@pytest.mark.parametrize("kind", ["sentences", "documents"])
def test_sums_over_a_corpus_are_those_of_its_pieces_read_alone(config: Any, kind: Any) -> None:
    """Flatness, and where the window has one length the mean by lag."""
    documents = np.array([0, 13, 15])
    tokens = TokenFile(np.array(VOCABULARY.encode(TEXT), np.int32), documents)
    ends = np.flatnonzero(tokens.ids == 0) + 1 if kind == "sentences" else [*documents[1:], len(TEXT)]
    batcher = make_batcher(kind, tokens, 0, batch_size=2, length=4)
    model, lag = make_model(config), make_map(config).nearest_lag
    slots = config.slots
    expected, full = FlatnessAccumulator(lag), []
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        record = attention_record(model, VOCABULARY, TEXT[start:end])
        rows, held = record.weights, np.clip(np.arange(len(record)) + 1 - lag, 0, record.window)
        if config.kind == "span_buffer":  # only the lags where spans end have slots, and each that is there has weight
            held = (rows > 0).sum(axis=1)
            rows = np.stack([np.pad(row[row > 0], (record.window, 0))[-record.window :] for row in rows])
        expected.update(rows, held)
        full += [row[-slots:] for row in rows[held == slots]] if slots else []
    if expected.rows == 0:  # a window of one word
        with pytest.raises(InputError, match=f"none of {len(TEXT)} positions"):
            attention_flatness(model, batcher)
        return
    found = attention_flatness(model, batcher)
    assert found.left_out == expected.left_out and found.nearest_lag == lag
    for one, other in zip(found.groups, expected.result().groups, strict=True):
        assert one[:2] == other[:2]
        assert one[2:] == pytest.approx(other[2:], abs=1e-5)
    if slots:
        profile = attention_by_lag(model, batcher)
        assert (profile.positions, profile.left_out, profile.nearest_lag) == (len(full), len(TEXT) - len(full), lag)
        assert profile.percent == pytest.approx(100 * np.mean(full, axis=0), abs=1e-4)
        assert profile.span == found.span


@pytest.mark.parametrize("score", ["single", "combined"])
def test_by_lag_of_a_memory_that_grows_tells_the_nearest_apart(score: Any) -> None:
    config = AttentiveConfig(score=score)
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
    assert profile.null_mass == pytest.approx(elsewhere, abs=1e-3)
    assert profile.counted == "with at least 3 words to look back at"


def test_a_window_is_full_even_where_weights_are_0_in_float32() -> None:
    model: Any = make_model(KeyValueConfig(roles=2, window=3))
    with torch.no_grad():
        model.memory.score.mul_(1_000)
    weights = attention_record(model, VOCABULARY, TEXT).weights[3:]
    tokens = TokenFile(np.array(VOCABULARY.encode(TEXT), np.int32), np.array([0]))
    profile = attention_by_lag(model, make_batcher("streams", tokens, 0, batch_size=1, length=4))
    assert not weights[:, 0].all() and (profile.positions, profile.left_out) == (len(weights), 3)
    assert profile.percent == pytest.approx(100 * weights.mean(axis=0), abs=1e-4)


def test_a_sentence_of_one_word_has_no_flatness() -> None:
    assert mean_flatness([make_map(AttentiveConfig(), ["a"])]) is None
    two = [make_map(AttentiveConfig(), ["a"]), make_map(AttentiveConfig())]
    both, long = mean_flatness(two), mean_flatness(two[1:])
    assert both is not None and long is not None
    assert (both.overall, both.left_out) == (long.overall, long.left_out + 2)


# --- excerpts ---

LINES = f"a b c {EOS} d {UNK} {EOS} e {EOS} {EOS} f g h {EOS} a b".split()
#        1 2 3 4     5 6     7     8 9     10    11...


def corpus(starts: tuple[int, ...] = (0, 7, 10)) -> Corpus:
    ids = np.array(VOCABULARY.encode(LINES), np.int32)
    tokens = TokenFile(ids, np.array(starts, np.int64))
    about: Any = {"notes": [], "oov": {"valid": 0}, "tokenizer": "whitespace"}
    return Corpus(name="small", vocabulary=VOCABULARY, splits={"valid": tokens}, **about)


@pytest.mark.parametrize(
    ("start", "first"),
    [(1, 1), (4, 1), (5, 5), (6, 5), (7, 5), (8, 8), (10, 10), (11, 11), (14, 11), (15, 15), (16, 15)],
)
def test_from_begins_with_the_line_that_holds_the_token(start: int, first: int) -> None:
    found = excerpt(corpus((0,)), "valid", start=start, length=3)
    assert found.words == LINES[first - 1 : first + 2]
    assert f"tokens {first} to " in found.source and "document" not in found.source


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 30))
def test_nothing_of_another_document_is_taken(document: int, start: int, length: int) -> None:
    whole = excerpt(corpus(), "valid", document=document, length=99).words
    found = excerpt(corpus(), "valid", document=document, start=start, length=length).words
    at = len(whole) - len(excerpt(corpus(), "valid", document=document, start=start, length=99).words)
    assert found == whole[at : at + length]
    assert at < start and (at == 0 or whole[at - 1] == EOS) and EOS not in whole[at : start - 1]


def test_a_corpus_without_documents_says_what_to_do() -> None:
    with pytest.raises(InputError, match=r"^document=2: small valid is not cut into documents; start=TOKEN .* 16"):
        excerpt(corpus((0,)), "valid", document=2)
    assert excerpt(corpus((0,)), "valid", document=1).words == LINES, "all of it is one"
