from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlm.data.tokenizer import into_sentences
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError
from spanlm.evaluation import words
from spanlm.evaluation.perplexity import evaluate
from spanlm.evaluation.protocol import Context, Protocol
from spanlm.evaluation.words import WordScore, in_lines, lines_as_pieces, score_words
from spanlm.models.encoders import LSTMConfig
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import NoMemoryConfig
from tests.evaluation import reference
from tests.evaluation.reference import CONTEXTS

MODEL = reference.small_model()
VOCABULARY = reference.VOCABULARY


def score(lines: Iterable[str], model: LanguageModel = MODEL, **options: Any) -> list[WordScore]:
    return list(score_words(model, VOCABULARY, lines_as_pieces(lines, "whitespace"), **options))


def joined(lines: reference.Lines) -> list[str]:
    return [" ".join(line) for line in lines]


def assert_rows(found: list[WordScore], expected: list[reference.Row], base: float, rel: float = 1e-10) -> None:
    places = [(s.sentence, s.index, s.word, s.rank, s.oov) for s in found]
    assert places == [(r.sentence, r.index, r.word, r.rank, r.oov) for r in expected]
    unit = math.log(base)
    assert [s.surprisal for s in found] == pytest.approx([r.nll / unit for r in expected], rel=rel, nan_ok=True)
    assert [s.entropy for s in found] == pytest.approx([r.entropy / unit for r in expected], rel=rel, nan_ok=True)


@pytest.mark.parametrize("memory", reference.MEMORIES)
@pytest.mark.parametrize("state", CONTEXTS)
@pytest.mark.parametrize("eos", [True, False])
def test_every_value_is_that_of_one_word_at_a_time(state: Context, memory: str, eos: bool) -> None:
    model = reference.small_model(memory)
    expected = reference.rows(model, VOCABULARY, reference.TEXT, state)
    found = score(joined(reference.TEXT), model, state=state, eos=eos)
    assert_rows(found, [row for row in expected if eos or row.word != "<eos>"], base=2)
    assert len({row.rank for row in expected}) > 3


@pytest.mark.parametrize("opening", [[[]], [[], []]], ids=["one", "two"])
def test_blank_lines_before_the_first_word_open_no_document(opening: list[list[str]]) -> None:
    lines = [*opening, *reference.TEXT]
    rows = score(joined(lines), state="document", eos=True, base=math.e)
    result = evaluate(MODEL, reference.corpus(lines), protocol=Protocol(context="document"))
    assert sum(row.surprisal for row in rows) == pytest.approx(result.nll, rel=1e-12)


TEXTS = st.lists(st.lists(st.sampled_from([*reference.WORDS[1:], "zebra"]), max_size=9), min_size=1, max_size=7)


@settings(max_examples=25, deadline=None)
@given(
    lines=TEXTS,
    state=st.sampled_from(CONTEXTS),
    eos=st.booleans(),
    steps=st.integers(1, 12),
    beside=st.integers(1, 5),
    length=st.integers(1, 6),
)
def test_how_much_is_computed_together_changes_nothing(
    lines: list[list[str]], state: Context, eos: bool, steps: int, beside: int, length: int
) -> None:
    while lines and not lines[0]:
        lines = lines[1:]  # see the test above
    if not lines:
        return
    expected = [r for r in reference.rows(MODEL, VOCABULARY, lines, state) if eos or r.word != "<eos>"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "STEPS", steps)
        patch.setattr(words, "LINES", beside)
        patch.setattr(words, "WORDS", length)
        assert_rows(score(joined(lines), state=state, eos=eos), expected, base=2)


@settings(max_examples=20, deadline=None)
@given(lines=TEXTS, eos=st.booleans(), steps=st.integers(1, 12), beside=st.integers(1, 5), length=st.integers(1, 6))
def test_of_lines_that_nothing_opens_the_first_word_is_read_and_has_no_numbers(
    lines: list[list[str]], eos: bool, steps: int, beside: int, length: int
) -> None:
    expected = [r for r in reference.rows_not_opened(MODEL, VOCABULARY, lines) if eos or r.word != "<eos>"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "STEPS", steps)
        patch.setattr(words, "LINES", beside)
        patch.setattr(words, "WORDS", length)
        assert_rows(score(joined(lines), eos=eos, opened=False), expected, base=2)


@pytest.mark.parametrize("state", ["carry", "document"])
def test_lines_that_nothing_opens_know_nothing_of_each_other(state: Context) -> None:
    with pytest.raises(InputError, match=f"state={state}: must be line where lines are not opened"):
        score(["the"], state=state, opened=False)


@pytest.mark.parametrize("state", CONTEXTS)
def test_what_is_held_at_a_time_is_bounded(state: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "STEPS", 8)
    monkeypatch.setattr(words, "LINES", 3)
    monkeypatch.setattr(words, "WORDS", 20)
    shapes: list[tuple[int, int]] = []
    original = LanguageModel.log_probs

    def recording(self: LanguageModel, tokens: torch.Tensor, state: Any) -> Any:
        shapes.append((tokens.shape[0], tokens.shape[1]))
        return original(self, tokens, state)

    monkeypatch.setattr(LanguageModel, "log_probs", recording)
    score([*joined(reference.TEXT), "the cat " * 40, "the dog"], state=state)
    assert max(steps for steps, _ in shapes) <= 8
    assert max(beside for _, beside in shapes) == (3 if state == "line" else 1)


@pytest.mark.parametrize("state", CONTEXTS)
def test_rows_come_before_the_text_ends(state: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "STEPS", 10)
    monkeypatch.setattr(words, "LINES", 4)
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "the cat sat" if read % 3 else ""

    rows = score_words(MODEL, VOCABULARY, lines_as_pieces(endless(), "whitespace"), state=state)
    assert read == 0, "nothing is read before a row is asked for"
    seen = [next(rows) for _ in range(100)]
    assert seen[-1].sentence >= 50
    assert read - seen[-1].sentence <= 12


def test_lines_side_by_side_are_as_lines_alone() -> None:
    model = reference.small_model().float()
    lines = joined(reference.TEXT)
    together = score(lines, model)
    alone = [row for line in lines for row in score([line], model)]
    assert [row.word for row in together] == [row.word for row in alone]
    for name in ("surprisal", "entropy"):
        a, b = ([getattr(row, name) for row in rows] for rows in (together, alone))
        assert a == pytest.approx(b, abs=1e-5)
    exact = score(lines)
    assert [row.surprisal for row in together] == pytest.approx([row.surprisal for row in exact], abs=1e-4)


def test_entropy_of_a_certain_distribution_is_zero() -> None:
    """Probabilities that underflow to 0 add nothing, and no NaN."""
    model = reference.small_model()
    with torch.no_grad():
        model.head.bias.zero_()  # type: ignore[union-attr, operator]
        model.head.bias[1] = 1e5  # type: ignore[index, operator]
    (row,) = score(["the"], model)
    assert (row.surprisal, row.entropy, row.rank) == (0.0, 0.0, 1)
    assert math.copysign(1, row.surprisal) == math.copysign(1, row.entropy) == 1


def test_entropy_of_an_impossible_word_is_no_nan() -> None:
    model = reference.small_model()
    (expected,) = score(["cat"], model)
    with torch.no_grad():
        model.head.bias[1] = -math.inf  # type: ignore[index, operator]
    (row,) = score(["cat"], model)
    assert 0 < row.entropy < math.log2(10)
    assert row.surprisal < expected.surprisal


def test_entropy_of_equal_chances_is_the_logarithm_of_their_number() -> None:
    model = reference.small_model()
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.zero_()
    rows = score(["the cat zebra"], model)
    for row in rows:
        assert row.surprisal == pytest.approx(math.log2(11)) == row.entropy
        assert row.rank == 1, "no word is more probable"


def test_entropy_of_many_words_is_summed_in_float64() -> None:
    torch.manual_seed(0)
    many = Vocabulary((EOS, UNK, *map(str, range(50_000))))
    config = ModelConfig(embedding_size=2, encoder=LSTMConfig(hidden_size=2), memory=NoMemoryConfig())
    model = LanguageModel(config, len(many)).eval()
    with torch.no_grad():
        model.head.bias.normal_(std=2)  # type: ignore[union-attr, operator]
        log_p, _ = model.log_probs(torch.arange(8).unsqueeze(1), model.init_state(1))
    exact = [-sum(math.exp(x) * x for x in row) for row in log_p[:, 0].tolist()]
    text = " ".join(many.words[1:8])
    rows = list(score_words(model, many, lines_as_pieces([text], "whitespace"), base=math.e, eos=True))
    assert [row.entropy for row in rows] == pytest.approx(exact, rel=1e-8)


def test_unknown_words_are_scored_as_unk_and_flagged() -> None:
    written, unknown = score(["the <unk> sat"]), score(["the zebra sat"])
    assert [row.oov for row in written] == [False, False, False]
    assert [row.oov for row in unknown] == [False, True, False]
    assert unknown[1].word == "zebra"
    assert [row.surprisal for row in unknown] == [row.surprisal for row in written]
    assert [row.rank for row in unknown] == [row.rank for row in written]


def test_unknown_words_are_refused_by_line_and_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "WORDS", 2)
    with pytest.raises(InputError, match=r"line 3, word 4: 'zebra' is not in the vocabulary\..*oov=flag"):
        score(["the cat", "", "the cat sat zebra on"], oov="error")
    assert len(score(["the cat", "", "the <unk> sat"], oov="error")) == 5


def sentences_of(line: list[str]) -> list[tuple[int, list[str]]]:
    """The sentences of a line, as the rule for corpora cuts it, and how many words come before each."""
    if not line:
        return []
    ids = [*VOCABULARY.encode(line), VOCABULARY.eos_id]
    cut, _ = into_sentences(np.array(ids, np.int32), np.zeros(1, np.int64), VOCABULARY)
    # the n-th of them ends n words earlier than its <eos> stands
    ends = [int(end) - n for n, end in enumerate(np.flatnonzero(cut == VOCABULARY.eos_id))]
    return [(begin, line[begin:end]) for begin, end in pairwise([0, *ends])]


def sentence_rows(lines: list[list[str]], state: Context) -> list[reference.Row]:
    """Every target of a text in sentences, from its definition; each has the number of its line, and its own there."""
    found = []
    for group in reference.groups(lines, state):
        sentences = [(n, *sentence) for n in group for sentence in sentences_of(lines[n])]
        for together in [[sentence] for sentence in sentences] if state == "line" else [sentences]:
            for row in reference.rows(MODEL, VOCABULARY, [sentence for _, _, sentence in together], "carry"):
                n, before, _ = together[row.sentence - 1]
                found.append(replace(row, sentence=n + 1, index=before + row.index))
    return found


def score_sentences(lines: Iterable[str], **options: Any) -> list[WordScore]:
    pieces = in_lines(lines_as_pieces(lines, "whitespace"), "sentences", VOCABULARY)
    return list(score_words(MODEL, VOCABULARY, pieces, **options))


# what begins a sentence is a word that the vocabulary lacks: it has no capitals
PARAGRAPHS = st.lists(st.lists(st.sampled_from(["the", "cat", ".", ".", "He", "<unk>"]), max_size=9), max_size=6)


@settings(max_examples=25, deadline=None)
@given(
    lines=PARAGRAPHS,
    state=st.sampled_from(CONTEXTS),
    eos=st.booleans(),
    steps=st.integers(1, 12),
    beside=st.integers(1, 5),
    length=st.integers(1, 6),
)
def test_in_sentences_every_value_is_that_of_one_word_at_a_time(
    lines: list[list[str]], state: Context, eos: bool, steps: int, beside: int, length: int
) -> None:
    expected = [row for row in sentence_rows(lines, state) if eos or row.word != "<eos>"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "STEPS", steps)
        patch.setattr(words, "LINES", beside)
        patch.setattr(words, "WORDS", length)
        assert_rows(score_sentences(joined(lines), state=state, eos=eos), expected, base=2)


@pytest.mark.parametrize("state", CONTEXTS)
@pytest.mark.parametrize("lines", [[""], ["", ""], []])
def test_a_text_of_blank_lines_has_no_sentence(state: Context, lines: list[str]) -> None:
    assert score_sentences(lines, state=state, eos=True) == []
