from __future__ import annotations

import itertools
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data.config import Documents
from spanlm.data.documents import DocumentFinder
from tests.data.reference import document_starts

EOS_ID, EQUALS_ID = 0, 1
LINES = st.lists(
    st.one_of(
        st.just([]),
        st.just([]),
        st.sampled_from([[1, 5, 1], [1, 5, 6, 7, 1], [1, 1, 5, 1, 1], [1, 1, 1], [1, 5], [1], [5, 1], [1, 1]]),
        st.lists(st.integers(1, 6), max_size=7),
    ),
    max_size=12,
)


def find(lines: list[list[int]], documents: Documents, cuts: list[int] = []) -> list[int]:  # noqa: B006
    ids = np.array([id for line in lines for id in (*line, EOS_ID)], np.int32)
    finder = DocumentFinder(documents, eos_id=EOS_ID, equals_id=EQUALS_ID)
    edges = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    for begin, end in itertools.pairwise(edges):
        finder.feed(ids[begin:end])
    return [int(start) for start in finder.starts()]


def as_words(lines: list[list[int]]) -> list[list[str]]:
    return [["=" if id == EQUALS_ID else str(id) for id in line] for line in lines]


@pytest.mark.parametrize("documents", get_args(Documents))
@given(lines=LINES, cuts=st.lists(st.integers(0, 60), max_size=8))
def test_documents_are_those_of_a_plain_loop_wherever_the_pieces_are_cut(
    documents: Documents, lines: list[list[int]], cuts: list[int]
) -> None:
    assert find(lines, documents, cuts) == document_starts(as_words(lines), documents)


def test_every_single_cut_gives_the_same_headings() -> None:
    lines = [
        [],
        [1, 5, 1],
        [],
        [5, 6],
        [1, 6, 1],
        [5],
        [],
        [1, 1, 5, 1, 1],
        [],
        [5],
        [],
        [1, 5, 6, 7, 1],
        [],
        [1, 5, 1, 6, 1],
        [],
        [6],
    ]
    expected = find(lines, "heading")
    assert len(expected) == 3
    total = sum(len(line) + 1 for line in lines)
    for cut in range(total):
        assert find(lines, "heading", [cut]) == expected


def test_a_heading_is_framed_by_one_sign_on_each_side() -> None:
    body = [5, 6]
    assert find([body, [1, 5, 1], body], "heading") == [0, 3]
    for other in ([1, 1, 5, 1, 1], [1, 1, 1], [1, 1], [1], [1, 5], [5, 1], [1, 1, 5, 1], [1, 5, 1, 1]):
        assert find([body, other, body], "heading") == [0]


def test_wikitext_headings_stand_between_blank_lines() -> None:
    lines = [[], [1, 5, 1], [], [5], [1, 6, 1], [5], [], [1, 7, 1], [], [6]]
    assert find(lines, "heading") == [0, 15]


def test_without_blank_lines_every_framed_line_is_a_heading() -> None:
    assert find([[1, 5, 1], [5], [1, 6, 1], [5]], "heading") == [0, 6]


def test_blank_lines_belong_to_the_document_before() -> None:
    assert find([[5], [], [], [6], [7], [], [8]], "blank-line") == [0, 4, 9]


def test_what_opens_the_text_belongs_to_its_first_document() -> None:
    assert find([[], [], [5], [], [6]], "blank-line") == [0, 5]
    assert find([[], [1, 5, 1], [], [6]], "heading") == [0]


def read_books(parts: list[list[int] | None]) -> list[int]:
    """Document starts of ids in pieces; None is a title line."""
    finder = DocumentFinder("book-title", eos_id=EOS_ID, equals_id=EQUALS_ID)
    for part in parts:
        if part is None:
            finder.title()
        else:
            finder.feed(np.array(part, np.int32))
    return [int(start) for start in finder.starts()]


def test_what_follows_a_title_starts_a_document() -> None:
    assert read_books([None, [5, 6], [EOS_ID], None, [5], [EOS_ID, 6, EOS_ID], None, [6, EOS_ID]]) == [0, 3, 7]


def test_titles_in_a_row_and_titles_at_the_edges_start_one_document_or_none() -> None:
    assert read_books([None, None, [5, EOS_ID], None, [], None, [6, EOS_ID], None]) == [0, 2]


def test_what_stands_before_the_first_word_belongs_to_the_first_book() -> None:
    assert read_books([[EOS_ID], None, [EOS_ID, 5, EOS_ID], None, [EOS_ID], None, [6, EOS_ID]]) == [0, 4, 5]


def test_without_marks_all_is_one_document() -> None:
    assert find([[5], [], [1, 5, 1], [], [6]], "none") == [0]
    assert find([[5]], "heading") == [0]
