import gzip
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data.cbt import Defect, Question, is_cbt_like, read_questions, word_class
from spanlm.errors import InputError

CANDIDATES = ["king", "queen", "old", "was", "gold"]


def block(
    query: str = "The XXXXX was old .", fields: str = "king\t\t" + "|".join(CANDIDATES), context: int = 20
) -> list[str]:
    sentences = [f"Sentence {n} of the king ." for n in range(context)]
    return [f"{n} {line}" for n, line in enumerate([*sentences, f"{query}\t{fields}"], start=1)]


GOOD = block()
Read = Callable[..., list[Question | Defect]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(*blocks: Sequence[str], end: str = "\n", name: str = "q.txt") -> list[Question | Defect]:
        content = "".join(end.join(lines) + end + end for lines in blocks).encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return list(read_questions(path, "q"))

    return read


def questions(found: Sequence[Question | Defect]) -> list[Question]:
    assert all(isinstance(item, Question) for item in found), found
    return [item for item in found if isinstance(item, Question)]


def test_a_question_is_its_sentences_its_gap_its_answer_and_its_candidates(read: Read) -> None:
    context = tuple(f"Sentence {n} of the king ." for n in range(20))
    assert read(GOOD) == [Question("q", 21, context, "The", "was old .", "king", tuple(CANDIDATES))]


@pytest.mark.parametrize(("query", "before", "after"), [("XXXXX", "", ""), ("21 men and XXXXX .", "21 men and", ".")])
def test_a_gap_may_open_or_close_the_query(read: Read, query: str, before: str, after: str) -> None:
    (question,) = questions(read(block(query)))
    assert (question.before, question.after) == (before, after)


def test_what_is_harmless_changes_nothing(read: Read, tmp_path: Path) -> None:
    """Windows line ends, compression, no numbers, no blank line, several, white space, no end."""
    expected = questions(read(GOOD, GOOD))
    plain = [line.split(" ", 1)[1] for line in GOOD]
    for found in (
        read(GOOD, GOOD, end="\r\n"),
        read(GOOD, GOOD, name="q.txt.gz"),
        read(plain, plain),
        read(GOOD + GOOD),
        read(plain + plain),
        read([*GOOD, "", " \t"], GOOD),
        read([f"  {line} " for line in GOOD], GOOD),
    ):
        assert [replace(q, line=0) for q in questions(found)] == [replace(q, line=0) for q in expected]
    path = tmp_path / "no-end.txt"
    path.write_text("\n\n" + "\n".join(GOOD))
    assert [q.line for q in questions(list(read_questions(path)))] == [23]


def test_a_sentence_may_begin_with_a_number_where_lines_have_none(read: Read) -> None:
    lines = ["1 of them sat .", "Then", "3 others came .", "The XXXXX sat .\tking\t\tking|queen"]
    (question,) = questions(read(lines))
    assert question.context == ("1 of them sat .", "Then", "3 others came .")


DEFECTS = {
    "no gap": (block("The king was old ."), 21, "no XXXXX in the query sentence"),
    "two gaps": (block("The XXXXX and XXXXX ."), 21, "XXXXX stands there 2 times"),
    "glued gap": (block("The XXXXX, old ."), 21, "XXXXX is only a part of a word"),
    "no query": (GOOD[:20], 20, "without a line that has an answer and candidates"),
    "no candidates": (block(fields="king"), 21, "1 field(s) after the query sentence"),
    "too many fields": (block(fields="king\t\tking|queen\t\tking|old"), 21, "3 field(s) after the query sentence"),
    "one candidate": (block(fields="king\t\tking"), 21, "fewer than two candidates: king"),
    "empty candidate": (block(fields="king\t\tking||queen"), 21, "an empty candidate"),
    "strange answer": (block(fields="King\t\tking|queen"), 21, "the answer 'King' is not a candidate"),
    "a line lost": ([*GOOD[:4], *GOOD[5:]], 5, "the number 6 where 5 was expected"),
    "a line without number": ([*GOOD[:4], "A line .", *GOOD[5:]], 5, "no number where 5 was expected"),
    "a number too long to be one": (["9" * 5000 + " A line .", "2 The XXXXX .\tking\t\tking|old"], 1, "where 1 was"),
    "gap in the context": ([*GOOD[:4], "5 The XXXXX sat .", *GOOD[5:]], 5, "XXXXX in a context sentence"),
}


@pytest.mark.parametrize("name", DEFECTS)
@pytest.mark.parametrize("blank_line", [True, False])
def test_a_defect_is_told_with_its_line_and_the_next_question_is_read(read: Read, name: str, blank_line: bool) -> None:
    lines, line, reason = DEFECTS[name]
    first, defect, last = read(GOOD, *([lines, GOOD] if blank_line else [[*lines, *GOOD]]))
    assert isinstance(first, Question) and isinstance(last, Question)
    assert isinstance(defect, Defect) and reason in defect.reason
    assert str(defect) == f"q, line {22 + line}: {defect.reason}"
    assert replace(last, line=first.line) == first


def test_a_text_without_questions_does_not_grow_in_memory(read: Read) -> None:
    found = read(["A line of a novel ."] * 2400, GOOD)
    assert [type(item) for item in found] == [Defect, Defect, Defect, Question]


@given(
    st.lists(
        st.sampled_from([*GOOD[:3], GOOD[20], "", "\t", "21 XXXXX\ta\t\ta|b", "x", "1", "XXXXX\t|\t|"]), max_size=30
    )
)
def test_any_lines_are_questions_or_defects(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_text("\n".join(lines))
    if not any(line.strip() for line in lines):
        with pytest.raises(InputError, match="no question in it"):
            list(read_questions(path))
        return
    found = list(read_questions(path))
    assert [item.line for item in found] == sorted({item.line for item in found})
    assert sum("\t" in line.strip() for line in lines) <= len(found)
    for item in found:
        if isinstance(item, Question):
            assert item.answer in item.candidates and len(set(item.candidates)) >= 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n\n \n", "no question in it"),
        (b"a \xff\n", "not UTF-8 at byte 2"),
        (b"1 a\n2 <eos> XXXXX\ta\t\ta|b\n", "line 2: the word <eos> is reserved"),
    ],
)
def test_a_file_that_is_no_text_of_questions_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"bad\.txt.*{message}"):
        list(read_questions(path))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cbtest_NE_test_2500ex.txt", "NE"), ("cbtlike_V_valid_2000.txt.gz", "V"), ("VERY_NEAT.txt.gz", "VERY_NEAT")],
)
def test_a_name_tells_the_word_class_and_whether_it_is_cbt_like(name: str, expected: str) -> None:
    path = Path("cbtlike_NE_folder") / name
    assert (word_class(path), is_cbt_like(path)) == (expected, name.startswith("cbtlike"))
