"""Cloze scores are those of a plain loop over candidates, whatever is read together."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from spanlm.data.cbt import Defect, Question
from spanlm.data.config import WordRule
from spanlm.data.tokenizer import Words, tokenize
from spanlm.data.vocabulary import EOS
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.scoring import prefix_tree
from spanlm.scoring.cloze import BATCHES, SCORES, Accuracy, ClozeTally, RankedQuestion, Ranker, macro_average
from spanlm.scoring.options import CONTEXTS, ClozeContext, ClozeOptions
from tests.models.small import language_model, models, one_of_each_kind
from tests.scoring import reference

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
    question(context=["the dog ran on the mat . the cat sat on the dog ."] * 2, before="the " * 9, line=7),
    question(context=["", "the cat", ""], line=8),
]


def loop(
    model: LanguageModel,
    q: Question,
    context: ClozeContext,
    tokenizer: WordRule = "whitespace",
    predict_first: bool = True,
) -> tuple[list[float], list[float]]:
    """Both scores of each candidate: one candidate at a time, all its text in one go, from an empty state."""
    sentences = [[*tokenize(sentence, tokenizer), EOS] for sentence in q.context] if context == "full" else []
    before = tokenize(q.before, tokenizer)
    after = tokenize(q.after, tokenizer)
    whole, place = [], []
    for candidate in q.candidates:
        words = tokenize(candidate, tokenizer)
        opening = [EOS, *(word for sentence in sentences for word in sentence)]
        targets = [*before, *words, *after, EOS]
        if not predict_first:
            opening, targets = targets[:1], targets[1:]
        ids = VOCABULARY.encode([*opening, *targets])
        with torch.no_grad():
            log_p, _ = model.log_probs(torch.tensor(ids[:-1]).unsqueeze(1), model.init_state(1))
        rows = log_p[len(opening) - 1 :, 0].double()
        values = [float(row[id]) for row, id in zip(rows, ids[len(opening) :], strict=True)]
        whole.append(sum(values))
        begin = len(before) - (not predict_first)
        place.append(sum(values[begin : begin + len(words)]))
    return whole, place


def rank(
    questions: Sequence[Question | Defect] = QUESTIONS, model: LanguageModel = MODEL, **options: Any
) -> list[RankedQuestion | Defect]:
    tokenizer, contexts = Words(options.pop("tokenizer", "whitespace")), options.pop("contexts", ["full"])
    predict_first = options.pop("predict_first", True)
    settings = ClozeOptions(**options)
    ranker = Ranker(model, VOCABULARY, tokenizer, contexts, settings.batch_size, settings.precision, predict_first)
    return list(ranker.ranked(iter(questions)))


def ranks(questions: Sequence[Question | Defect], model: LanguageModel = MODEL, **options: Any) -> list[RankedQuestion]:
    found = rank(questions, model, **options)
    assert all(isinstance(item, RankedQuestion) for item in found), found
    return [item for item in found if isinstance(item, RankedQuestion)]


def assert_loop(
    found: Sequence[RankedQuestion], model: LanguageModel = MODEL, tokenizer: WordRule = "whitespace"
) -> None:
    for ranked in found:
        whole, place = loop(model, ranked.question, ranked.context, tokenizer)
        assert list(ranked.sentence) == pytest.approx(whole, rel=1e-10, abs=1e-12)
        assert list(ranked.candidate) == pytest.approx(place, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("config", one_of_each_kind(models()))
def test_scores_are_those_of_one_candidate_at_a_time_with_every_room(config: ModelConfig) -> None:
    model = language_model(config)
    questions = QUESTIONS if config == models()[0].values[0] else QUESTIONS[1::2]
    found = ranks(questions, model, contexts=CONTEXTS, batch_size=3)
    assert [(r.question.line, r.context) for r in found] == [(q.line, c) for q in questions for c in CONTEXTS]
    assert_loop(found, model)
    assert all(len(set(r.sentence)) == len(set(r.candidate)) == len(r.oov) for r in found), "no constants"


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_where_nothing_opens_a_sentence_its_first_word_has_no_score(batch_size: int) -> None:
    """Nor is a question scored whose gap comes first: there is nothing to rank its candidates by."""
    found = rank(contexts=["query"], batch_size=batch_size, predict_first=False)
    assert [item.line for item in found if isinstance(item, Defect)] == [3, 5]
    assert all("the gap is the first word" in str(item) for item in found if isinstance(item, Defect))
    for item in found:
        if isinstance(item, RankedQuestion):
            whole, place = loop(MODEL, item.question, "query", predict_first=False)
            assert list(item.sentence) == pytest.approx(whole, rel=1e-10)
            assert list(item.candidate) == pytest.approx(place, rel=1e-10)


def test_contexts_too_long_to_be_read_at_once_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_tree, "TOKENS", 20)
    assert_loop(ranks(QUESTIONS, batch_size=4))


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
    found = rank([question(), bad, handed_on, question()], batch_size=1)
    assert [type(item) for item in found] == [RankedQuestion, Defect, Defect, RankedQuestion]
    assert found[1] == Defect("q", 7, "none of the 3 candidates is in the vocabulary")
    assert found[2] is handed_on
    reserved = rank([replace(bad, candidates=("cat", "<eos>")), question()])
    assert [type(item) for item in reserved] == [Defect, RankedQuestion] and "<eos>" in str(reserved[0])
    (kept,) = ranks([question(candidates=["zebra", "gnu", "the"])])
    assert kept.oov == (True, True, False)


def test_questions_are_ranked_before_the_last_is_read() -> None:
    read = 0

    def endless() -> Iterator[Question]:
        nonlocal read
        while True:
            read += 1
            yield question()

    ranker = Ranker(MODEL, VOCABULARY, Words("whitespace"), ["full"], batch_size=2, precision="fp32")
    found = ranker.ranked(endless())
    assert read == 0
    next(found)
    assert read == 2 * BATCHES


# which answers are right, and how many


def test_of_no_questions_there_is_no_accuracy() -> None:
    assert Accuracy(0, 0).share is None
    assert Accuracy(0, 0).interval is None
    assert macro_average([]) is None
    assert macro_average([Accuracy(0, 0), Accuracy(1, 4), Accuracy(3, 4)]) == 0.5


@pytest.mark.parametrize(
    ("values", "answer", "right", "tied", "predicted"),
    [
        ((-1.0, -2.0, -3.0), "a", True, False, "a"),
        ((-3.0, -2.0, -1.0), "a", False, False, "c"),
        ((-1.0, -1.0, -3.0), "a", False, True, None),
        ((-1.0, -0.5, -0.5), "a", False, False, None),
        ((-1.0, -0.5), "b", True, False, "b"),
    ],
)
def test_an_answer_is_right_only_if_it_scores_higher_than_all_others(
    values: tuple[float, ...], answer: str, right: bool, tied: bool, predicted: str | None
) -> None:
    other = tuple(-value for value in values)
    for by, sentence, candidate in zip(SCORES, (values, other), (other, values), strict=True):
        item = ranked(sentence, candidate, (False,) * len(values))
        item = replace(item, question=replace(item.question, answer=answer))
        assert (item.right(by), item.tied(by), item.predicted(by)) == (right, tied, predicted)


def ranked(sentence: tuple[float, ...], candidate: tuple[float, ...], oov: tuple[bool, ...]) -> RankedQuestion:
    words = tuple("abcd"[: len(oov)])
    return RankedQuestion(Question("q", 1, (), "", "", "a", words), "full", sentence, candidate, oov)


def test_counts() -> None:
    tally = ClozeTally()
    tally.add(ranked((-1.0, -2.0), (-2.0, -1.0), (False, False)))
    tally.add(ranked((-1.0, -1.0, -3.0), (-1.0, -2.0, -2.0), (True, True, False)))
    tally.add(ranked((-1.0, -2.0, -3.0), (-9.0, -2.0, -2.0), (True, False, False)))
    assert (tally.questions, tally.answers_oov, tally.candidates, tally.candidates_oov) == (3, 2, 8, 3)
    assert tally.accuracy("sentence") == Accuracy(2, 3)
    assert tally.accuracy("candidate") == Accuracy(1, 3)
    assert tally.accuracy_in_vocabulary("sentence") == Accuracy(1, 1)
    assert tally.accuracy_in_vocabulary("candidate") == Accuracy(0, 1)
    assert (tally.ties["sentence"], tally.ties["candidate"]) == (1, 0)
    record = tally.to_json()
    assert record["sentence"]["right"] == 2 and record["sentence"]["ties"] == 1
    assert record["candidate"]["answer_in_vocabulary"]["questions"] == 1
