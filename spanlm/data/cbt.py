r"""Cloze questions in the format of the Children's Book Test (Hill et al., 2016).

A question is consecutive lines: context sentences, then the query sentence with one word `XXXXX`, a tab, the answer,
two tabs and the candidates with `|` between them. In the published files the lines are numbered from 1, there are 20
context sentences, ten candidates, and a blank line after each question:

    1 Once there was a king .
    …
    21 The XXXXX was old .\tking\t\tking|once|was|there|…

Accepted as well: lines without numbers, another number of context sentences or candidates, white space before
a line end, a missing blank line, `.gz`. A candidate that is listed twice counts once. Any other irregularity
makes a question a `Defect`: it is not scored, and the next question is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from spanlm.data.text import Text, lines_of, pieces
from spanlm.errors import InputError

BLANK = "XXXXX"
CBT_LIKE = "cbtlike"
"""Prefix of the names of files whose questions imitate CBT."""

MOST_LINES = 1000
"""Limit of lines per question."""

_CLASS = re.compile(r"(?:^|_)(NE|CN|V|P)(?=[_.]|$)")


@dataclass(frozen=True, slots=True)
class Question:
    """A query with a gap, the sentences before it, and at least two different candidates for the gap.

    `file` is the file's name as the user gave it, `line` the number of the query's line, from 1; `before` and `after`
    are the parts of the query around the gap.
    """

    file: str
    line: int
    context: tuple[str, ...]
    before: str
    after: str
    answer: str
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Defect:
    """A question that cannot be scored: the line of its defect, from 1, and the reason."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}"


def word_class(path: Path) -> str:
    """Return the word class in a name such as `cbtest_NE_test_2500ex.txt` (NE, CN, V or P), else the name's stem."""
    match = _CLASS.search(path.name)
    return match[1] if match else path.name.split(".")[0]


def is_cbt_like(path: Path) -> bool:
    """Return whether a file's name says that its questions only imitate CBT."""
    return path.name.startswith(CBT_LIKE)


def read_questions(path: Path, name: str | None = None) -> Iterator[Question | Defect]:
    """Yield the questions of a file in order. Questions and defects carry `name`, by default the path.

    Raises:
        InputError: The file cannot be read, breaks a rule of `spanlm.data.text`, or holds no question.
    """
    name = name or str(path)
    block: list[_Line] = []
    has_question = False
    for number, text in enumerate(lines_of(pieces(Text(path, as_text=True))), 1):
        line = _Line(number, text.strip(" \t\r\v\f"))
        # a block ends after its query, at a blank line, and, if its query was lost, before a line numbered 1
        if block and (
            not line.text or block[-1].is_query or len(block) == MOST_LINES or line.label == block[0].label == "1"
        ):
            has_question = True
            yield _question(name, block)
            block = []
        if line.text:
            block.append(line)
    if block:
        yield _question(name, block)
    elif not has_question:
        raise InputError(f"{name}: no question in it; give a file in the format of the Children's Book Test")


class _Line(NamedTuple):
    number: int
    text: str

    @property
    def is_query(self) -> bool:
        return "\t" in self.text

    @property
    def label(self) -> str | None:
        """The number at the start of the line."""
        match = re.match(r"[0-9]+(?!\S)", self.text)
        return None if match is None else match[0]


class _DefectiveError(Exception):
    """The line of a defect, and the reason."""


def _question(file: str, block: list[_Line]) -> Question | Defect:
    try:
        sentences = _without_numbers(block)
        query = block[-1]
        text, answer, candidates = _fields(query, sentences[-1])
        before, after = _around_gap(query, text)
        for line, sentence in zip(block[:-1], sentences, strict=False):
            if BLANK in sentence:
                raise _DefectiveError(line, f"{BLANK} in a context sentence")
    except _DefectiveError as error:
        line, reason = error.args
        return Defect(file, line.number, reason)
    return Question(file, query.number, tuple(sentences[:-1]), before, after, answer, candidates)


def _without_numbers(block: list[_Line]) -> list[str]:
    """Remove line numbers, if most lines have one; a gap in them is a defect."""
    labels = [line.label for line in block]
    if sum(label is not None for label in labels) * 2 <= len(block):
        return [line.text for line in block]
    for expected, (line, label) in enumerate(zip(block, labels, strict=True), start=1):
        if label != str(expected):
            shown = "no number" if label is None else f"the number {label}"
            raise _DefectiveError(line, f"{shown} where {expected} was expected; a line is missing or too many")
    return [line.text[len(label or "") :].lstrip() for line, label in zip(block, labels, strict=True)]


def _fields(line: _Line, text: str) -> tuple[str, str, tuple[str, ...]]:
    if not line.is_query:
        raise _DefectiveError(line, "the question ends without a line that has an answer and candidates after tabs")
    query, *others = text.split("\t")
    fields = [field.strip() for field in others if field.strip()]
    if len(fields) != 2:
        raise _DefectiveError(line, f"{len(fields)} field(s) after the query sentence, not answer and candidates")
    answer = fields[0]
    candidates = tuple(dict.fromkeys(candidate.strip() for candidate in fields[1].split("|")))
    if "" in candidates:
        raise _DefectiveError(line, "an empty candidate")
    if len(candidates) < 2:
        raise _DefectiveError(line, f"fewer than two candidates: {fields[1]}")
    if answer not in candidates:
        raise _DefectiveError(line, f"the answer {answer!r} is not a candidate")
    return query, answer, candidates


def _around_gap(line: _Line, query: str) -> tuple[str, str]:
    words = query.split(" ")
    gaps, times = words.count(BLANK), query.count(BLANK)
    if gaps == times == 1:
        at = words.index(BLANK)
        return " ".join(words[:at]), " ".join(words[at + 1 :])
    if not times:
        raise _DefectiveError(line, f"no {BLANK} in the query sentence")
    raise _DefectiveError(line, f"{BLANK} stands there {times} times" if gaps else f"{BLANK} is only a part of a word")
