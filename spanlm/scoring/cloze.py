"""Cloze questions: a model ranks candidate words for a gap.

A question's stream begins with `<eos>`, and an `<eos>` closes each context sentence s_i and the query, as everywhere in
this project. With q_< and q_> for the query before and after its gap, a candidate c has two scores:

    sentence    log p(q_<, c, q_>, <eos> | context)
    candidate   log p(c | context, q_<)

in natural logarithms; all words of a candidate count. Daniluk et al. (2017, Figure 2d) do not say how they score; this
project scores the whole query sentence. The contexts are:

    full    <eos> s_1 <eos> … s_20 <eos>
    query   <eos>: the query sentence from an empty state

A model of independent lines (`training.batching.kind=sentences`) can use only the query, so its context is `query`. If
it was trained without predicting first words (Salton et al., 2017), no `<eos>` opens a question, and the first word of
the query has no score. If the gap comes first, the candidates have no score.

A word outside the vocabulary is read and scored as `<unk>`, so two such candidates score alike. An answer is right only
if it scores higher than every other candidate.

Questions are texts of `spanlm.scoring.prefix_tree`: all candidates of a question share one reading of the context and
q_<, and context words are not scored. Questions are read side by side and independently.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from statistics import fmean
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from spanlm.data.cbt import Defect, Question
from spanlm.data.tokenizer import Tokenizer
from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError
from spanlm.models.interfaces import NextWordModel
from spanlm.options import Precision
from spanlm.scoring.options import ClozeContext
from spanlm.scoring.prefix_tree import Ids, read_texts
from spanlm.scoring.tally import wilson

Score = Literal["sentence", "candidate"]

SCORES: tuple[Score, ...] = get_args(Score)

CANDIDATES = 10
"""Candidates per question, as in the Children's Book Test."""

BATCHES = 8
"""Batches of questions held at a time, so that questions side by side have similar lengths."""


@dataclass(frozen=True, slots=True)
class RankedQuestion:
    """A question, its context, both scores of each candidate (nats), and whether the candidate is unknown (`oov`)."""

    question: Question
    context: ClozeContext
    sentence: tuple[float, ...]
    candidate: tuple[float, ...]
    oov: tuple[bool, ...]

    def predicted(self, by: Score) -> str | None:
        """The candidate that scores higher than every other one; None if several share the highest score."""
        return best[0] if len(best := self.best(by)) == 1 else None

    def right(self, by: Score) -> bool:
        """Whether the answer scores higher than every other candidate."""
        return self.predicted(by) == self.question.answer

    def tied(self, by: Score) -> bool:
        """Whether the answer shares the highest score with another candidate."""
        best = self.best(by)
        return len(best) > 1 and self.question.answer in best

    @property
    def answer_oov(self) -> bool:
        """Whether the vocabulary does not have the answer."""
        return self.oov[self.question.candidates.index(self.question.answer)]

    def best(self, by: Score) -> list[str]:
        values = self.sentence if by == "sentence" else self.candidate
        return [word for word, value in zip(self.question.candidates, values, strict=True) if value == max(values)]

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.question.file,
            "line": self.question.line,
            "context": self.context,
            "answer": self.question.answer,
            "predicted": {by: self.predicted(by) for by in SCORES},
            "right": {by: self.right(by) for by in SCORES},
            "candidates": list(self.question.candidates),
            "sentence": list(self.sentence),
            "candidate": list(self.candidate),
            "oov": list(self.oov),
        }


@dataclass(frozen=True, slots=True)
class _Gap:
    """A question as ids: an <eos> before every context sentence, and none in the query."""

    question: Question
    context: list[int]
    before: list[int]
    after: list[int]
    candidates: list[Ids]
    oov: tuple[bool, ...]


@dataclass(frozen=True)
class Ranker:
    """Ranks candidates; `predict_first`: an <eos> opens sentences, without which the only context is query."""

    model: NextWordModel
    vocabulary: Vocabulary
    tokenizer: Tokenizer
    contexts: Sequence[ClozeContext]
    batch_size: int  # questions read at a time
    precision: Precision
    predict_first: bool = True

    def ranked(self, questions: Iterator[Question | Defect]) -> Iterator[RankedQuestion | Defect]:
        """Yield, for each question in order, its ranks with each context, or a defect.

        A defect is the question's own; or all candidates are outside the vocabulary, one is a reserved word, or they
        come first in a sentence that no <eos> opens.
        """
        size = self.batch_size
        while items := list(islice(questions, min(size * BATCHES, sys.maxsize))):
            prepared = [self._prepared(item) for item in items]
            gaps, firsts = [item for item in prepared if isinstance(item, _Gap)], dict[Ids, int]()
            for gap, context in product(gaps, self.contexts):
                texts, first = self._texts(gap, context)
                firsts |= dict.fromkeys(texts, first)
            log_p, _ = read_texts(self.model, firsts, self.precision, size * CANDIDATES)
            for item in prepared:
                if isinstance(item, Defect):
                    yield item
                else:
                    yield from (self._scored(item, context, log_p) for context in self.contexts)

    def _texts(self, gap: _Gap, context: ClozeContext) -> tuple[list[Ids], int]:
        """Return the text for each candidate, and the index of the first predicted query word."""
        read = [*(gap.context if context == "full" else ()), *[self.vocabulary.eos_id] * self.predict_first]
        texts = [(*read, *gap.before, *ids, *gap.after, self.vocabulary.eos_id) for ids in gap.candidates]
        return texts, max(len(read), 1)

    def _scored(self, gap: _Gap, context: ClozeContext, log_p: Mapping[Ids, NDArray[np.float64]]) -> RankedQuestion:
        words = [log_p[text] for text in self._texts(gap, context)[0]]
        start = len(gap.before) - (not self.predict_first)
        gaps = (values[start : start + len(ids)] for values, ids in zip(words, gap.candidates, strict=True))
        sentence, candidate = (tuple(float(values.sum()) for values in parts) for parts in (words, gaps))
        return RankedQuestion(gap.question, context, sentence, candidate, gap.oov)

    def _prepared(self, item: Question | Defect) -> _Gap | Defect:
        """Encode a question; return a defect if it cannot be ranked."""
        try:
            return item if isinstance(item, Defect) else self._gap(item)
        except InputError as error:
            return Defect(item.file, item.line, str(error))

    def _gap(self, question: Question) -> _Gap:
        """Encode a question; InputError: it cannot be ranked, or has a reserved word, as <eos> among the candidates."""
        words = [self._after(question.before, candidate) for candidate in question.candidates]
        oov = tuple(any(word not in self.vocabulary for word in candidate) for candidate in words)
        if all(oov):
            raise InputError(f"none of the {len(oov)} candidates is in the vocabulary")
        before = self.vocabulary.encode(self._after("", question.before))
        if not (self.predict_first or before):
            problem = "the gap is the first word, which this model only reads (training.batching.predict_first=false)"
            raise InputError(problem)
        return _Gap(
            question,
            self.vocabulary.encode(word for text in question.context for word in (EOS, *self._after("", text))),
            before,
            self.vocabulary.encode(self._after("any", question.after)),
            [tuple(self.vocabulary.encode(candidate)) for candidate in words],
            oov,
        )

    def _after(self, before: str, text: str) -> list[str]:
        """Return the tokens of words that follow others, or none."""
        return self.tokenizer.tokens(f" {text}" if before and text else text)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Numbers of right answers and of questions."""

    right: int
    questions: int

    @property
    def share(self) -> float | None:
        """Share of right answers; None without questions."""
        return self.right / self.questions if self.questions else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's 95 % interval of the share; None without questions."""
        return wilson(self.right, self.questions) if self.questions else None

    def to_json(self) -> dict[str, Any]:
        return {"right": self.right, "questions": self.questions, "accuracy": self.share, "interval": self.interval}


@dataclass(slots=True)
class ClozeTally:
    """Counts over ranked questions; `ties`, by score, are answers that share the highest score and so are wrong."""

    questions: int = 0
    answers_oov: int = 0
    candidates: int = 0
    candidates_oov: int = 0
    ties: Counter[Score] = field(default_factory=Counter)
    _right: Counter[tuple[Score, bool]] = field(default_factory=Counter)

    def add(self, ranked: RankedQuestion) -> None:
        self.questions += 1
        self.answers_oov += ranked.answer_oov
        self.candidates += len(ranked.oov)
        self.candidates_oov += sum(ranked.oov)
        for by in SCORES:
            self.ties[by] += ranked.tied(by)
            self._right[by, ranked.answer_oov] += ranked.right(by)

    def accuracy(self, by: Score) -> Accuracy:
        return Accuracy(self._right[by, False] + self._right[by, True], self.questions)

    def accuracy_in_vocabulary(self, by: Score) -> Accuracy:
        """Accuracy over questions whose answer is in the vocabulary."""
        return Accuracy(self._right[by, False], self.questions - self.answers_oov)

    def to_json(self) -> dict[str, Any]:
        return {
            "questions": self.questions,
            "answers_oov": self.answers_oov,
            "candidates": self.candidates,
            "candidates_oov": self.candidates_oov,
            **{
                by: {
                    **self.accuracy(by).to_json(),
                    "ties": self.ties[by],
                    "answer_in_vocabulary": self.accuracy_in_vocabulary(by).to_json(),
                }
                for by in SCORES
            },
        }


def macro_average(accuracies: Iterable[Accuracy]) -> float | None:
    """Return the mean share over sets of questions, equally weighted; None if no set has a question."""
    shares = [accuracy.share for accuracy in accuracies if accuracy.share is not None]
    return fmean(shares) if shares else None
