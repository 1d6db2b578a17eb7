from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
from spanlm.evaluation.words import ScoreOptions, WordScore, in_lines, lines_as_pieces, score_words
from spanlm.models.encoders import LSTMConfig
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import NoMemoryConfig
from tests.evaluation import reference
from tests.evaluation.reference import CONTEXTS

MODEL = reference.small_model()
VOCABULARY = reference.VOCABULARY


def score(lines: Iterable[str], model: LanguageModel = MODEL, **options: Any) -> list[WordScore]:
    opened = options.pop("opened", True)
    pieces = lines_as_pieces(lines, "whitespace")
    return list(score_words(model, VOCABULARY, pieces, ScoreOptions(**options), opened=opened))


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


SIZES = st.tuples(st.integers(1, 12), st.integers(1, 5), st.integers(1, 6))


@contextmanager
def sized(sizes: tuple[int, ...]) -> Iterator[None]:
    """Read so many steps, lines and words at a time."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in zip(("STEPS", "LINES", "WORDS"), sizes, strict=True):
            patch.setattr(words, name, size)
        yield


TEXTS = st.lists(st.lists(st.sampled_from([*reference.WORDS[1:], "zebra"]), max_size=9), min_size=1, max_size=7)


@settings(max_examples=25, deadline=None)
@given(
    lines=TEXTS,
    state=st.sampled_from(CONTEXTS),
    eos=st.booleans(),
    sizes=SIZES,
)
def test_how_much_is_computed_together_changes_nothing(
    lines: list[list[str]], state: Context, eos: bool, sizes: tuple[int, ...]
) -> None:
    while lines and not lines[0]:
        lines = lines[1:]  # see the test above
    if not lines:
        return
    expected = [r for r in reference.rows(MODEL, VOCABULARY, lines, state) if eos or r.word != "<eos>"]
    with sized(sizes):
        assert_rows(score(joined(lines), state=state, eos=eos), expected, base=2)


@settings(max_examples=20, deadline=None)
@given(lines=TEXTS, eos=st.booleans(), sizes=SIZES)
def test_of_lines_that_nothing_opens_the_first_word_is_read_and_has_no_numbers(
    lines: list[list[str]], eos: bool, sizes: tuple[int, ...]
) -> None:
    expected = [r for r in reference.rows_not_opened(MODEL, VOCABULARY, lines) if eos or r.word != "<eos>"]
    with sized(sizes):
        assert_rows(score(joined(lines), eos=eos, opened=False), expected, base=2)


@pytest.mark.parametrize("state", ["carry", "document"])
def test_lines_that_nothing_opens_know_nothing_of_each_other(state: Context) -> None:
    with pytest.raises(InputError, match=f"state={state}: must be line where lines are not opened"):
        score(["the"], state=state, opened=False)


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

    rows = score_words(MODEL, VOCABULARY, lines_as_pieces(endless(), "whitespace"), ScoreOptions(state=state))
    assert read == 0, "nothing is read before a row is asked for"
    seen = [next(rows) for _ in range(100)]
    assert seen[-1].sentence >= 50
    assert read - seen[-1].sentence <= 12


def test_entropy_of_a_certain_distribution_is_zero() -> None:
    """Probabilities that underflow to 0 add nothing, and no NaN."""
    model = reference.small_model()
    with torch.no_grad():
        model.head.bias.zero_()  # type: ignore[union-attr, operator]
        model.head.bias[1] = 1e5  # type: ignore[index, operator]
    (row,) = score(["the"], model)
    assert (row.surprisal, row.entropy, row.rank) == (0.0, 0.0, 1)
    assert math.copysign(1, row.surprisal) == math.copysign(1, row.entropy) == 1


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
    rows = list(score_words(model, many, lines_as_pieces([text], "whitespace"), ScoreOptions(base=math.e, eos=True)))
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
    return list(score_words(MODEL, VOCABULARY, pieces, ScoreOptions(**options)))


# what begins a sentence is a word that the vocabulary lacks: it has no capitals
PARAGRAPHS = st.lists(st.lists(st.sampled_from(["the", "cat", ".", ".", "He", "<unk>"]), max_size=9), max_size=6)


@settings(max_examples=25, deadline=None)
@given(
    lines=PARAGRAPHS,
    state=st.sampled_from(CONTEXTS),
    eos=st.booleans(),
    sizes=SIZES,
)
def test_in_sentences_every_value_is_that_of_one_word_at_a_time(
    lines: list[list[str]], state: Context, eos: bool, sizes: tuple[int, ...]
) -> None:
    expected = [row for row in sentence_rows(lines, state) if eos or row.word != "<eos>"]
    with sized(sizes):
        assert_rows(score_sentences(joined(lines), state=state, eos=eos), expected, base=2)
