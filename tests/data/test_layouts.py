"""Layouts of published tables, and repairs of their traps."""

from typing import NamedTuple

import pytest

from spanlm.data.layouts import LAYOUTS, REPAIRS, repaired, with_marks, words_of
from spanlm.data.tables import RowNotes
from spanlm.errors import InputError


class Row(NamedTuple):
    text: str
    order: tuple[float, ...]
    place: str = ""
    line: tuple[object, ...] = (1,)


def test_layouts_name_repairs_that_there_are() -> None:
    for layout in LAYOUTS.values():
        assert set(layout.repair.split(",")) <= set(REPAIRS)


def test_a_table_has_one_of_the_columns_that_a_layout_takes() -> None:
    meco = LAYOUTS["meco"]
    later = meco.columns(["lang", "trialid", "wordnum", "word", "ianum"], {})
    assert later == {"text": "word", "line": "lang,trialid", "order": "wordnum"}
    assert meco.columns(["lang", "trialid", "ianum", "ia"], {"line": "lang"}) == later | {
        "text": "ia",
        "line": "lang",
        "order": "ianum",
    }
    with pytest.raises(InputError, match="needs a column trialid") as why:
        meco.columns(["lang", "ia"], {"order": "x"})
    assert str(why.value).startswith("--line=lang,trialid: ")
    assert "The table has lang, ia; --line names another" in str(why.value)


@pytest.mark.parametrize(
    ("word", "right"),
    [
        ("donâ€™t", "don’t"),
        ("â€œname,â€\x9d", "“name,”"),
        ("cafÃ©", "café"),
        ("don\ufffdt", "don’t"),
        ("\ufffdname", "\ufffdname"),
        ("café", "café"),
        ("naïve “name”", "naïve “name”"),
        ("TRUE", "true"),
        ("True", "True"),
        ("TRUE,", "TRUE,"),
    ],
)
def test_a_word_that_a_spreadsheet_or_an_encoding_changed(word: str, right: str) -> None:
    assert repaired(word, {"encoding", "logicals"}) == right
    assert repaired(word, {"readings"}) == word
    assert repaired(right, {"encoding"}) == right


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("( The cat ) sat .", "_ (The cat) _ sat. _"),
        ("`` It is n't '' , he 's", "_ ``It isn't'',_ _ _ he's _"),
        ('" a " b " c "', '_ "a" _ b _ "c" _'),
        ("a -- b & c", "a -- b & c"),
        (". a", ". a"),
        ("a (", "a( _"),
        ("a 95 %", "a 95% _"),
    ],
)
def test_marks_and_endings_are_read_with_the_word_beside_them(rows: str, words: str) -> None:
    joined = with_marks(rows.split())
    assert [word for word in joined if word] == words.replace("_", " ").split()
    assert len(joined) == len(rows.split())


def test_readings_of_one_word_are_in_the_spelling_that_most_have() -> None:
    rows = [Row("the", (1,), "a"), Row("The ", (1,), "b"), Row("The", (1,), "c"), Row("cat", (2,), "d")]
    odd = RowNotes()
    assert [[row.place for row in readings] for readings in words_of(rows, odd)] == [["b", "c"], ["d"]]
    assert odd.reasons == {"a": "has 'the' where other rows have 'The'; left out"}


def test_a_gap_between_places_is_named_but_not_where_places_begin_anew() -> None:
    odd = RowNotes()
    rows = [Row("a", (1, 3)), Row("b", (1, 4)), Row("c", (2, 1)), Row("d", (2, 4), "here"), Row("e", (9, 9), "", (2,))]
    assert len(list(words_of(rows, odd))) == 5
    assert odd.reasons == {"here": "line 1 has no row for 2 places before this word"}
