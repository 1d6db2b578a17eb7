from __future__ import annotations

import math

import pytest

from spanlm.data.cbt import Question
from spanlm.evaluation.cloze import Accuracy, ClozeTally, RankedQuestion, macro_average


@pytest.mark.parametrize(
    ("right", "questions", "low", "high"),
    [
        # found by bisection from the definition: the bounds p0 with |p - p0| = z sqrt(p0 (1 - p0) / n)
        (5, 10, 0.236593, 0.763407),
        (0, 10, 0.0, 0.277533),
        (10, 10, 0.722467, 1.0),
        (1308, 2500, 0.503601, 0.542728),
    ],
)
def test_the_interval_is_wilsons(right: int, questions: int, low: float, high: float) -> None:
    interval = Accuracy(right, questions).interval
    assert interval is not None
    assert interval == pytest.approx((low, high), abs=1e-5)
    for bound in interval:
        if 1e-9 < bound < 1 - 1e-9:
            distance = abs(right / questions - bound)
            assert distance == pytest.approx(1.959964 * math.sqrt(bound * (1 - bound) / questions), rel=1e-5)


def test_of_no_questions_there_is_no_accuracy() -> None:
    assert Accuracy(0, 0).share is None
    assert Accuracy(0, 0).interval is None
    assert macro_average([]) is None
    assert macro_average([Accuracy(0, 0), Accuracy(1, 4), Accuracy(3, 4)]) == 0.5


def scored(*values: float, answer: str = "a") -> RankedQuestion:
    names = "abcdef"[: len(values)]
    question = Question("q", 1, (), "", "", answer, tuple(names))
    return RankedQuestion(question, "full", values, tuple(-value for value in values), (False,) * len(names))


def test_an_answer_is_right_only_if_it_scores_higher_than_all_others() -> None:
    best = scored(-1.0, -2.0, -3.0)
    assert (best.right("sentence"), best.tied("sentence"), best.predicted("sentence")) == (True, False, "a")
    assert (best.right("candidate"), best.tied("candidate"), best.predicted("candidate")) == (False, False, "c")
    tie = scored(-1.0, -1.0, -3.0)
    assert (tie.right("sentence"), tie.tied("sentence"), tie.predicted("sentence")) == (False, True, None)
    others = scored(-1.0, -0.5, -0.5)
    assert (others.right("sentence"), others.tied("sentence"), others.predicted("sentence")) == (False, False, None)
    last = scored(-1.0, -0.5, answer="b")
    assert last.right("sentence") and not last.right("candidate")


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
