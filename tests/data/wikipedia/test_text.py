from __future__ import annotations

import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data.wikipedia.text import clean, normalise, prose


@pytest.mark.parametrize(
    ("line", "cleaned"),
    [
        ("Plain (with 1 < 2 & more) stays.", "Plain (with 1 < 2 & more) stays."),
        ("Keeble &amp; Co. &lt;br&gt; and &quot;x&quot;", 'Keeble & Co.   and "x"'),
        ('sources,<ref name="x">A "note".</ref> and<ref name=y/> more', "sources, and more"),
        ("name () of (, ; born 1900; ) and ( ) and (also, )", "name  of (born 1900) and  and (also)"),
        ("see [http://x.org/a?b a label], https://y.org/z. and www.q.net/r", "see a label, . and"),
        ("left [[a|b]] and {{cn}} behind", "left b and  behind"),
        ("<poem>A rose</poem><br/>is", "A rose  is"),
    ],
)
def test_what_extractors_leave_behind(line: str, cleaned: str) -> None:
    assert clean(normalise(line)) == cleaned


@given(st.text(max_size=50))
def test_normalised_text_has_nothing_invisible(text: str) -> None:
    found = normalise(text)
    assert normalise(found) == found
    assert unicodedata.is_normalized("NFC", found)
    assert all(letter in " \n" or not letter.isspace() for letter in found)
    found.encode()


def test_one_way_to_write_a_letter_a_quote_and_a_space() -> None:
    assert normalise("“e\u0301” ‘x’\u00a0y\u200b\u00ad…\u2011z\r\u0007\ud800") == "\"é\" 'x' y...-z\n"


@given(st.text("ab. (),", max_size=40))
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    assert set(clean(text)) <= set(text) and clean(text).replace(" ", "").isascii()


ARTICLE = """Ann Lee

Ann Lee (, born 1900) was a writer. She wrote.
Early life.
She was born here. It is a town.
Works.
He died.
Her books:
Among the books that she wrote are these:
• One, a novel.
* Two
Three (1950)
and a line that stops
A long line that stops in mid-sentence is kept. It has a sentence that ends in it, so
! Year || Place
{| class="x"
The end of it is a very long sentence that nobody would take for a heading."""


def test_lines_that_are_no_prose_are_left_out_and_counted() -> None:
    left_out: Counter[str] = Counter()
    assert list(prose(ARTICLE, "Ann Lee", left_out)) == [
        "Ann Lee (born 1900) was a writer. She wrote.",
        "She was born here. It is a town.",
        "He died.",
        "Among the books that she wrote are these:",
        "A long line that stops in mid-sentence is kept. It has a sentence that ends in it, so",
        "The end of it is a very long sentence that nobody would take for a heading.",
    ]
    assert left_out == {"title": 2, "heading": 3, "list": 6, "fragment": 9, "table": 6}


def test_where_blank_lines_part_paragraphs_short_ones_are_no_headings() -> None:
    assert list(prose("Early life.\n\nMore of it.\n\nEnd.", "T", Counter())) == ["Early life.", "More of it.", "End."]


@given(st.lists(st.sampled_from(["Ann Lee", "Early life.", "He died.", "• a b", "x y", "Is it? Yes.", ""]), max_size=9))
def test_every_word_is_given_out_or_counted(lines: list[str]) -> None:
    left_out: Counter[str] = Counter()
    given_out = sum(len(line.split()) for line in prose("\n".join(lines), "Ann Lee", left_out))
    assert given_out + left_out.total() == sum(len(line.split()) for line in lines)
