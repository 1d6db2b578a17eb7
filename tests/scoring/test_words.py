import math
import random
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

from spanlm.data import pieces as text_pieces
from spanlm.data.config import WordRule
from spanlm.data.pieces import in_lines, lines_as_pieces
from spanlm.data.tokenizer import Words, into_sentences, tokenize, written_words
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError
from spanlm.models.encoders import LSTMConfig, RNNConfig
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.lesions import lesioned
from spanlm.models.memories import KeyValueConfig, NoMemoryConfig
from spanlm.models.ops import precision
from spanlm.runs.texts import text_to_attend
from spanlm.scoring import stream, words
from spanlm.scoring.attention import attention_record
from spanlm.scoring.options import Context, ScoreOptions
from spanlm.scoring.perplexity import evaluate
from spanlm.scoring.protocol import Protocol
from spanlm.scoring.words import WordScore, score_words, written_scores
from tests.scoring import reference
from tests.scoring.reference import CONTEXTS

MODEL = reference.small_model()
VOCABULARY = reference.VOCABULARY


def score(lines: Iterable[str], model: LanguageModel = MODEL, **options: Any) -> list[WordScore]:
    predict_first = options.pop("predict_first", True)
    pieces = lines_as_pieces(lines, Words("whitespace"))
    return list(score_words(model, VOCABULARY, pieces, ScoreOptions(**options), predict_first=predict_first))


def joined(lines: reference.Lines) -> list[str]:
    return [" ".join(line) for line in lines]


def assert_rows(found: list[WordScore], expected: list[reference.Row], base: float, rel: float = 1e-10) -> None:
    places = [(s.sentence, s.index, s.word, s.rank, s.oov) for s in found]
    assert places == [(r.sentence, r.index, r.word, r.rank, r.oov) for r in expected]
    unit = math.log(base)
    assert [s.surprisal for s in found] == pytest.approx([r.nll / unit for r in expected], rel=rel, nan_ok=True)
    assert [s.entropy for s in found] == pytest.approx([r.entropy / unit for r in expected], rel=rel, nan_ok=True)


@pytest.mark.parametrize("memory", reference.MEMORIES | reference.LOOKING)
@pytest.mark.parametrize("state", CONTEXTS)
def test_every_value_is_that_of_one_word_at_a_time(state: Context, memory: str) -> None:
    """Also of memories that grow with a line, and stop where it is padded."""
    model = reference.small_model(memory)
    expected = reference.rows(model, VOCABULARY, reference.TEXT, state)
    found = score(joined(reference.TEXT), model, state=state, eos=True)
    assert_rows(found, expected, base=2)
    assert score(joined(reference.TEXT), model, state=state) == [row for row in found if row.word != "<eos>"]
    assert len({row.rank for row in expected}) > 3


@pytest.mark.parametrize("opening", [[[]], [[], []]], ids=["one", "two"])
def test_blank_lines_before_the_first_word_open_no_document(opening: list[list[str]]) -> None:
    lines = [*opening, *reference.TEXT]
    rows = score(joined(lines), state="document", eos=True, base=math.e)
    result = evaluate(MODEL, reference.corpus(lines), protocol=Protocol(context="document"))
    assert sum(row.surprisal for row in rows) == pytest.approx(result.nll, rel=1e-12)


SIZES = st.tuples(st.integers(1, 12), st.integers(1, 5), st.integers(1, 6), st.integers(1, 40))


@contextmanager
def sized(sizes: tuple[int, ...]) -> Iterator[None]:
    """Read so many steps, lines and words at a time, and so many words before they are computed."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in zip(("STEPS", "SENTENCES", "WORDS", "WAITING"), sizes, strict=True):
            patch.setattr(text_pieces if name == "WORDS" else words, name, size)
        yield


TEXTS = st.lists(st.lists(st.sampled_from([*reference.WORDS[1:], "zebra"]), max_size=9), min_size=1, max_size=7)


def many_lines(count: int, seed: int = 1) -> list[str]:
    """Lines of very different lengths, some of them blank, in no order."""
    draw = random.Random(seed)
    lengths = [min(int(draw.expovariate(1 / 8)), 60) for _ in range(count)]
    return [" ".join(draw.choices([*reference.WORDS[1:], "zebra"], k=length)) for length in lengths]


def test_a_bounded_number_of_probabilities_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    held, own = list[int](), MODEL.head.log_probs
    monkeypatch.setattr(MODEL.head, "log_probs", lambda readout: [x := own(readout), held.append(x.numel())][0])
    lines = many_lines(50)
    assert score(lines) and all(count % (stream.ROWS * len(VOCABULARY)) == 0 for count in held), "kernels are few"
    held.clear()
    monkeypatch.setattr(stream, "DISTRIBUTIONS", 5 * len(VOCABULARY) + 1)
    monkeypatch.setattr(stream, "ROWS", 1)
    rows = score(lines, eos=True)
    assert max(held) == 5 * len(VOCABULARY) and sum(held) == len(rows) * len(VOCABULARY), "what fills up is not read"
    monkeypatch.undo()
    assert [row.surprisal for row in rows] == pytest.approx([row.surprisal for row in score(lines, eos=True)])


def test_products_are_in_the_precision_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_processor_has_bf16", lambda: True)
    config = ModelConfig(embedding_size=6, encoder=RNNConfig(hidden_size=6), memory=KeyValueConfig(roles=3, window=3))
    torch.manual_seed(1)
    model, lines = LanguageModel(config, len(VOCABULARY)).eval(), many_lines(20)
    exact, rough = (score(lines, model, precision=how) for how in ("fp32", "bf16"))
    differences = [abs(one.surprisal - other.surprisal) for one, other in zip(exact, rough, strict=True)]
    assert 0 < max(differences) < 0.1
    with pytest.raises(InputError, match="precision=fp8: must be fp32, tf32 or bf16"):
        score(lines, model, precision="fp8")


@settings(max_examples=10)
@given(lines=TEXTS, eos=st.booleans(), sizes=SIZES)
def test_of_lines_that_nothing_opens_the_first_word_is_read_and_has_no_numbers(
    lines: list[list[str]], eos: bool, sizes: tuple[int, ...]
) -> None:
    expected = [r for r in reference.rows_not_opened(MODEL, VOCABULARY, lines) if eos or r.word != "<eos>"]
    with sized(sizes):
        assert_rows(score(joined(lines), eos=eos, predict_first=False), expected, base=2)


@pytest.mark.parametrize("state", CONTEXTS)
def test_rows_come_before_the_text_ends(state: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "STEPS", 10)
    monkeypatch.setattr(words, "WAITING", 8)
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "the cat sat" if read % 3 else ""

    rows = score_words(MODEL, VOCABULARY, lines_as_pieces(endless(), Words("whitespace")), ScoreOptions(state=state))
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
    rows = list(
        score_words(model, many, lines_as_pieces([text], Words("whitespace")), ScoreOptions(base=math.e, eos=True))
    )
    assert [row.entropy for row in rows] == pytest.approx(exact, rel=1e-8)


def test_unknown_words_are_refused_by_line_and_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_pieces, "WORDS", 2)
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
    pieces = in_lines(lines_as_pieces(lines, Words("whitespace")), "sentences", VOCABULARY)
    return list(score_words(MODEL, VOCABULARY, pieces, ScoreOptions(**options)))


# what begins a sentence is a word that the vocabulary lacks: it has no capitals
PARAGRAPHS = st.lists(st.lists(st.sampled_from(["the", "cat", ".", ".", "He", "<unk>"]), max_size=9), max_size=6)


@settings(max_examples=15)
@given(lines=PARAGRAPHS, state=st.sampled_from(CONTEXTS), eos=st.booleans(), sizes=SIZES)
def test_in_sentences_every_value_is_that_of_one_word_at_a_time(
    lines: list[list[str]], state: Context, eos: bool, sizes: tuple[int, ...]
) -> None:
    expected = [row for row in sentence_rows(lines, state) if eos or row.word != "<eos>"]
    with sized(sizes):
        assert_rows(score_sentences(joined(lines), state=state, eos=eos), expected, base=2)


WRITTEN = st.text(st.sampled_from("aé.,'’\"- \t\n\rTHE the…猫\u0301"), min_size=0, max_size=40)


def stub(tokens: Iterable[str]) -> list[WordScore]:
    """Scores that tell the tokens apart; the last stands for what comes after them."""
    return [WordScore(1, n, token, 2.0**n, n * 7 % 5, n, token == "the") for n, token in enumerate(tokens, 1)]


@given(text=WRITTEN, tokenizer=st.sampled_from(["whitespace", "words", "straight-words"]), data=st.data())
def test_words_as_written_have_their_place_and_the_sum_of_their_tokens(
    text: str, tokenizer: WordRule, data: st.DataObject
) -> None:
    """Wherever sentences end: between words, within one or not at all."""
    tokens = [
        part for word in tokenize(text, tokenizer) for part in [word, EOS] if part != EOS or data.draw(st.booleans())
    ]
    scores = stub([*tokens, EOS])
    sizes = [len(tokenize(word, tokenizer)) for word in written_words(text)]
    found = written_scores(text, scores, sizes)
    assert [text[one.start : one.end] for one in found] == [one.word for one in found] == text.split()
    assert " ".join(one.tokens for one in found).split() == [token for token in tokens if token != EOS]
    assert [one.index for one in found] == list(range(1, len(found) + 1))
    for one in found:
        own = [score for score in scores if 2.0**score.index in binary(one.surprisal)]
        assert [score.word for score in own if score.word != EOS] == one.tokens.split()
        assert (one.rank, one.entropy, one.oov) == (own[0].rank, own[0].entropy, any(x.oov for x in own))
        assert one.entropy_reduction == max(0, own[0].entropy - scores[own[-1].index].entropy)
    ends = written_scores(text, scores, sizes, eos=True)
    assert [one for one in ends if one.word != EOS] == found
    assert math.fsum(one.surprisal for one in ends) == math.fsum(score.surprisal for score in scores)


def test_a_written_word_without_tokens_has_a_row_and_no_numbers() -> None:
    rows = written_scores("the – cat", stub(["the", "cat", EOS]), [1, 0, 1])
    assert [(row.index, row.word, row.start, row.tokens) for row in rows] == [
        (1, "the", 0, "the"),
        (2, "–", 4, ""),
        (3, "cat", 6, "cat"),
    ]
    assert [math.isnan(row.surprisal) for row in rows] == [False, True, False] and rows[1].rank is None


def binary(number: float) -> list[float]:
    """The powers of two that add up to it."""
    return [2.0**n for n in range(200) if int(number) >> n & 1]


@settings(max_examples=4)
@given(lines=TEXTS.filter(lambda lines: bool(lines[0])), state=st.sampled_from(CONTEXTS), sizes=SIZES)
@pytest.mark.parametrize("memory", ["key_value", "attentive", "pointer_sentinel", "span_buffer"])
def test_looks_are_those_that_attend_records(
    memory: str, lines: list[list[str]], state: Context, sizes: tuple[int, ...]
) -> None:
    model = reference.small_model(memory)
    words, starts = text_to_attend(lines_as_pieces(joined(lines), Words("whitespace")), state)
    record = attention_record(model, VOCABULARY, words, starts=starts)
    with sized(sizes):
        rows = score(joined(lines), model, state=state, eos=True, looks=True, base=math.e)[: len(record)]
    for t, (row, weights) in enumerate(zip(rows, np.asarray(record.weights, np.float64), strict=True)):
        assert row.look is not None
        if not weights.any():
            assert (row.look.word, row.look.lag) == ("", None)
            assert math.isnan(row.look.weight) and math.isnan(row.look.entropy)
            continue
        share = weights[weights > 0] / weights.sum()
        assert row.look.entropy == pytest.approx(-(share * np.log(share)).sum(), abs=1e-5)
        assert row.look.weight == pytest.approx(weights.max(), abs=1e-6)
        assert row.look.lag is not None and row.look.word == record.words[t - row.look.lag]
        column = len(weights) - 1 + record.nearest_lag - row.look.lag
        assert weights[column] == pytest.approx(weights.max(), abs=1e-6)


def test_of_equal_weights_the_nearest_is_named_and_lines_that_nothing_opens_begin_with_none() -> None:
    model = reference.small_model("key_value")
    looks = [row.look for row in score(["the cat sat on"], model, looks=True, predict_first=False)]
    assert looks[0] is not None and math.isnan(looks[0].entropy) and looks[0].lag is None
    even = [row.look for row in score(["the cat sat on"], lesioned(model, "uniform", ""), looks=True, base=math.e)]
    third = even[2]
    assert third is not None and third.entropy == pytest.approx(math.log(2)) and third.lag == 1
