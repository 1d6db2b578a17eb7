"""Cloze scores are those of a plain loop over candidates, whatever is read together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlm.data.cbt import Defect, Question
from spanlm.data.config import Tokenizer
from spanlm.data.tokenizer import tokenize
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError
from spanlm.evaluation import cloze
from spanlm.evaluation.cloze import CONTEXTS, ClozeContext, RankedQuestion, rank_questions
from spanlm.models.language_model import LanguageModel, ModelConfig
from tests.evaluation import reference
from tests.models.small import language_model, models

VOCABULARY = reference.VOCABULARY
MODEL = reference.small_model()


def question(
    context: Sequence[str] = ("the cat sat .", "a dog ran on"),
    before: str = "the naïve",
    after: str = "ran on the mat .",
    candidates: Sequence[str] = ("cat", "dog", "mat", "zebra"),
    answer: str = "",
    line: int = 1,
) -> Question:
    return Question("q", line, tuple(context), before, after, answer or candidates[0], tuple(candidates))


QUESTIONS = [
    question(),
    question(context=[], line=2),
    question(before="", line=3),
    question(after="", line=4),
    question(context=["the"], before="", after="", line=5),
    question(candidates=["the cat sat", "dog", "zebra on", "."], line=6),
    question(context=["the dog ran on the mat . the cat sat on the dog ."] * 7, before="the " * 9, line=7),
    question(context=["", "the cat", ""], line=8),
]


def loop(
    model: LanguageModel, q: Question, context: ClozeContext, tokenizer: Tokenizer = "whitespace", opened: bool = True
) -> tuple[list[float], list[float]]:
    """Both scores of each candidate: one candidate at a time, all its text in one go, from an empty state."""
    sentences = [[*tokenize(sentence, tokenizer), EOS] for sentence in q.context] if context == "full" else []
    before = tokenize(q.before, tokenizer) if context != "none" else []
    after = tokenize(q.after, tokenizer) if context != "none" else []
    whole, place = [], []
    for candidate in q.candidates:
        words = tokenize(candidate, tokenizer)
        opening = [EOS, *(word for sentence in sentences for word in sentence)]
        targets = [*before, *words, *after, EOS]
        if not opened:
            opening, targets = targets[:1], targets[1:]
        ids = VOCABULARY.encode([*opening, *targets])
        with torch.no_grad():
            log_p, _ = model.log_probs(torch.tensor(ids[:-1]).unsqueeze(1), model.init_state(1))
        rows = log_p[len(opening) - 1 :, 0].double()
        values = [float(row[id]) for row, id in zip(rows, ids[len(opening) :], strict=True)]
        whole.append(sum(values))
        begin = len(before) - (not opened)
        place.append(sum(values[begin : begin + len(words)]))
    return whole, place


def ranks(questions: Sequence[Question | Defect], model: LanguageModel = MODEL, **options: Any) -> list[RankedQuestion]:
    found = list(rank_questions(model, VOCABULARY, options.pop("tokenizer", "whitespace"), questions, **options))
    assert all(isinstance(item, RankedQuestion) for item in found), found
    return [item for item in found if isinstance(item, RankedQuestion)]


def assert_loop(
    found: Sequence[RankedQuestion], model: LanguageModel = MODEL, tokenizer: Tokenizer = "whitespace"
) -> None:
    for ranked in found:
        whole, place = loop(model, ranked.question, ranked.context, tokenizer)
        assert list(ranked.sentence) == pytest.approx(whole, rel=1e-10, abs=1e-12)
        assert list(ranked.candidate) == pytest.approx(place, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("config", models())
def test_scores_are_those_of_one_candidate_at_a_time_with_every_room(config: ModelConfig) -> None:
    model = language_model(config)
    found = ranks(QUESTIONS, model, contexts=CONTEXTS)
    assert [(r.question.line, r.context) for r in found] == [(q.line, c) for q in QUESTIONS for c in CONTEXTS]
    assert_loop(found, model)
    assert all(len(set(r.sentence)) == len(set(r.candidate)) == len(r.oov) for r in found), "no constants"


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_where_nothing_opens_a_sentence_its_first_word_has_no_score(batch_size: int) -> None:
    """Nor is a question scored whose gap comes first: there is nothing to rank its candidates by."""
    found = list(
        rank_questions(
            MODEL, VOCABULARY, "whitespace", QUESTIONS, contexts=["query"], batch_size=batch_size, opened=False
        )
    )
    assert [item.line for item in found if isinstance(item, Defect)] == [3, 5]
    assert all("the gap is the first word" in str(item) for item in found if isinstance(item, Defect))
    for item in found:
        if isinstance(item, RankedQuestion):
            whole, place = loop(MODEL, item.question, "query", opened=False)
            assert list(item.sentence) == pytest.approx(whole, rel=1e-10)
            assert list(item.candidate) == pytest.approx(place, rel=1e-10)


@pytest.mark.parametrize("context", ["full", "none"])
def test_no_other_context_where_nothing_opens_a_sentence(context: ClozeContext) -> None:
    with pytest.raises(InputError, match=f"context={context}: must be query where sentences are not opened"):
        rank_questions(MODEL, VOCABULARY, "whitespace", QUESTIONS, contexts=[context], opened=False)


SENTENCES = st.lists(st.sampled_from([*reference.WORDS[1:], "zebra"]), max_size=7).map(" ".join)
CANDIDATES = st.lists(
    st.lists(st.sampled_from([*reference.WORDS[1:], "zebra", "gnu"]), min_size=1, max_size=3).map(" ".join),
    min_size=2,
    max_size=5,
    unique=True,
)
RANDOM = st.builds(question, st.lists(SENTENCES, max_size=4), SENTENCES, SENTENCES, CANDIDATES)


@settings(max_examples=20, deadline=None)
@given(
    questions=st.lists(RANDOM, min_size=1, max_size=6),
    context=st.sampled_from(CONTEXTS),
    batch_size=st.integers(1, 4),
    batches=st.integers(1, 3),
    tokens=st.integers(1, 40),
)
def test_how_much_is_read_together_changes_nothing(
    questions: list[Question], context: ClozeContext, batch_size: int, batches: int, tokens: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cloze, "BATCHES", batches)
        patch.setattr(cloze, "TOKENS", tokens)
        found = list(
            rank_questions(MODEL, VOCABULARY, "whitespace", questions, contexts=[context], batch_size=batch_size)
        )
    assert len(found) == len(questions)
    for item, q in zip(found, questions, strict=True):
        if isinstance(item, Defect):
            assert all(set(c.split()) & {"zebra", "gnu"} for c in q.candidates)
        else:
            assert item.question is q
    assert_loop([item for item in found if isinstance(item, RankedQuestion)])


def test_words_are_cut_as_in_training() -> None:
    q = question(context=["The cat, sat."], before="The", after="Ran.", candidates=["Dog.", "cat", "Mat"])
    found = ranks([q], tokenizer="words")
    assert found[0].oov == (False, False, False)
    assert_loop(found, tokenizer="words")
    (as_written,) = ranks([q])
    assert as_written.oov == (True, False, True)
    assert as_written.sentence != found[0].sentence


def test_unknown_candidates_are_unk_and_flagged_and_score_exactly_alike() -> None:
    model = reference.small_model().float()
    q = question(candidates=["gnu", "cat", "zebra", "<unk>", "dog"])
    for ranked in ranks([q, replace(q, context=()), q], model, contexts=CONTEXTS):
        assert ranked.oov == (True, False, True, False, False)
        assert ranked.answer_oov
        assert ranked.sentence[0] == ranked.sentence[2] == ranked.sentence[3]
        assert ranked.candidate[0] == ranked.candidate[2] == ranked.candidate[3]
    for answer, unknown in (("cat", False), ("zebra", True), ("<unk>", False)):
        assert ranks([replace(q, answer=answer)], model)[0].answer_oov == unknown


def test_candidates_that_are_all_unknown_are_a_defect_where_the_question_stood() -> None:
    bad = question(candidates=["zebra", "gnu", "the gnu"], line=7)
    handed_on = Defect("other", 3, "broken")
    found = list(
        rank_questions(MODEL, VOCABULARY, "whitespace", [question(), bad, handed_on, question()], batch_size=1)
    )
    assert [type(item) for item in found] == [RankedQuestion, Defect, Defect, RankedQuestion]
    assert found[1] == Defect("q", 7, "none of the 3 candidates is in the vocabulary")
    assert found[2] is handed_on
    (kept,) = ranks([question(candidates=["zebra", "gnu", "the"])])
    assert kept.oov == (True, True, False)


def test_questions_are_ranked_before_the_last_is_read() -> None:
    read = 0

    def endless() -> Iterator[Question]:
        nonlocal read
        while True:
            read += 1
            yield question()

    found = rank_questions(MODEL, VOCABULARY, "whitespace", endless(), batch_size=2)
    assert read == 0
    next(found)
    assert read == 2 * cloze.BATCHES
