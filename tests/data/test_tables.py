"""Tables of stimuli: what is read, and what is refused with its line."""

import csv
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data.tables import DELIMITERS, Kind, Row, RowNotes, read_table
from spanlm.errors import InputError

CELL = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8)


@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5), st.sampled_from(["csv", "tsv", "jsonl"]))
def test_what_pythons_writers_wrote_is_read(rows: list[tuple[str, str]], kind: Kind) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        with path.open("w", encoding="utf-8", newline="") as file:
            if kind == "jsonl":
                file.writelines(json.dumps({"a": a, "b": b}) + "\n" for a, b in rows)
            else:
                csv.writer(file, delimiter=",\t"[kind == "tsv"]).writerows([("a", "b"), *rows])
        assert [row.values for row in read_table(path, kind, [])] == [{"a": a, "b": b} for a, b in rows]


def test_lines_are_those_of_the_file_and_a_mark_of_order_and_gz_are_read(tmp_path: Path) -> None:
    text = '\ufeffitem,sentence\r\n1,"The cat,\nshe said, sat."\r\n\r\n2,A dog.\r\n'
    (tmp_path / "s.csv.gz").write_bytes(gzip.compress(text.encode()))
    found = list(read_table(tmp_path / "s.csv.gz", "csv", ["sentence"]))
    assert found == [
        Row(2, {"item": "1", "sentence": "The cat,\nshe said, sat."}),
        Row(5, {"item": "2", "sentence": "A dog."}),
    ]


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("csv", "item,sent\n1,a\n", "line 2: no column sentence.*item, sent"),
        ("csv", "item,sentence\n1,a\n2,b,c\n", "line 3: 3 cells where there are 2 columns"),
        ("csv", "item,sentence\n1,a\n2, \n", "line 3: the column sentence is empty"),
        ("csv", 'item,sentence\n1,"a\n', "line 2: "),
        ("csv", "sentence,sentence\na,b\n", "two columns are called 'sentence'"),
        ("csv", "item,sentence\n", "no rows"),
        ("csv", "item,sentence\n1,a\n2,a\0b\n", "line 3: a NUL character"),
        ("jsonl", '{"sentence": "a\\u0000b"}\n', "line 1: a NUL character"),
        ("jsonl", '{"sentence": "a"}\n{"sentence": \n', "line 2: not JSON"),
        ("jsonl", '{"sentence": ' + "[" * 100_000 + "\n", "line 1: not JSON"),
        ("jsonl", '{"sentence": "a \\ud800"}\n', "line 1: not JSON .*surrogates"),
        *(
            ("jsonl", f'{{"sentence": {x}}}\n', "line 1: sentence=")
            for x in ('["a"]', '{"a": "b"}', "5", "true", "NaN")
        ),
        ("jsonl", '{"sentence": "a"}\n{"sentence": "a", "sentence": "b"}\n', "line 2: .*sentence twice"),
        ("jsonl", '{"sentence": "a", "m": {"x": 1, "x": 2}}\n', "line 1: .*x twice"),
    ],
)
def test_what_is_wrong_is_named(kind: Kind, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(text)
    with pytest.raises(InputError, match=message):
        list(read_table(tmp_path / "t", kind, ["sentence"]))


@pytest.mark.parametrize(
    "text",
    [
        "Item;Satz;RT (ms, log)\n1;a b;3,5\n2;c;4\n",
        "Item;Satz;RT (ms, log);;\n1;a b;3,5;;\n2;c;4;;\n;;;;\n",
        "Item\tSatz\tRT (ms, log)\n1\ta b\t3,5\n2\tc\t4\n",
        '"Item, no.";Satz;"RT, ms, log"\n1;a b;3,5\n2;c;4\n',
        "Item,Satz,RT (ms; log; z; s)\n1,a b,3\n2,c,4\n",
    ],
    ids=["a comma in a name", "empty columns and rows", "tabs", "commas in quotation marks", "semicolons"],
)
def test_what_spreadsheets_and_r_call_csv_is_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    rows = list(read_table(tmp_path / "t.csv", "csv", ["Satz"]))
    assert [row.values["Satz"] for row in rows] == ["a b", "c"] and {len(row.values) for row in rows} == {3}


@pytest.mark.parametrize("mark", ["", '"'])
@pytest.mark.parametrize("place", range(3))
def test_a_cell_may_hold_a_document(mark: str, place: int, tmp_path: Path) -> None:
    rows = [["id", "sentence"], ["1", "a"], ["2", "b"]]
    rows[place][place > 0] += "the cat " * 50_000
    (tmp_path / "t.csv").write_text("".join(f"{one},{mark}{other}{mark}\n" for one, other in rows))
    found = list(read_table(tmp_path / "t.csv", "csv", ["sentence"]))
    assert [row.values for row in found] == [dict(zip(map(str.strip, rows[0]), row, strict=True)) for row in rows[1:]]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("item,,s,,,\n1,x,a,y,,\n2,,b,,,\n", "item column_2 s column_4"),
        ('"","s"\n"1","a"\n"2","b"\n', "column_1 s"),
        ("s;;\na;;\nb;;late\n", "s column_2 column_3"),
        ("s,\na,\nb,\n", "s"),
        ("sep=;\ns;;\na;;z\nb;;\n", "s column_2 column_3"),
        ("item;s, or text;;\n1;a, b;;note\n2;b;;\n", "item|s, or text|column_3|column_4"),
    ],
)
def test_columns_without_a_name_are_kept_where_they_hold_something(text: str, names: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    expected = names.split("|" if "|" in names else " ")
    rows = list(read_table(path, "csv", [expected[1] if "|" in names else "s"]))
    assert [list(row.values) for row in rows] == [expected] * 2


@pytest.mark.parametrize(
    ("kind", "text", "bad"),
    [
        ("csv", "i,s\n1,a\n2\n3,b\n4,\n5, \n6,c,d\n7,x\0\n8,c\n", [3, 5, 6, 7, 8]),
        (
            "jsonl",
            '{"s": "a"}\n5\n{"s": "b"}\n{"t": "b"}\n\n{"s": 1}\n{\n{"s":"a","s":"b"}\n{"s": "c"}\n',
            [2, 4, 6, 7, 8],
        ),
    ],
)
def test_a_bad_row_is_left_out_and_its_neighbours_keep_their_numbers(
    kind: Kind, text: str, bad: list[int], tmp_path: Path
) -> None:
    (tmp_path / "t").write_text(text)
    notes = RowNotes()
    for _ in range(2):  # a second reading counts nothing twice
        rows = list(read_table(tmp_path / "t", kind, ["s"], bad=notes))
        assert [row.values["s"] for row in rows] == ["a", "b", "c"] and rows[-1].number == 3 + len(bad)
        assert [int(place.rpartition(" ")[2]) for place in notes.reasons] == bad
    (line,) = notes.lines()
    assert f"{len(bad)} rows left out" in line and f"line {bad[2]}: " in line and f"line {bad[3]}: " not in line
    with pytest.raises(InputError, match=f"line {bad[0]}: "):
        list(read_table(tmp_path / "t", kind, ["s"], bad=RowNotes(strict=True)))
    with pytest.raises(InputError, match="No row is left"):
        list(read_table(tmp_path / "t", kind, ["s"], bad=RowNotes(), check=_refuse))


def _refuse(row: Row) -> None:
    raise InputError(f"row {row.number} is not wanted")


@pytest.mark.parametrize(("kind", "packed"), [("tsv", ""), ("csv", ".gz")])
@pytest.mark.parametrize("coding", ["utf-16", "latin-1"])
def test_how_to_convert_another_encoding_is_said(kind: Kind, packed: str, coding: str, tmp_path: Path) -> None:
    path = tmp_path / f"s.{kind}{packed}"
    rows = [[str(n), "the café is"] for n in ("item", *range(9))]
    content = "\n".join(DELIMITERS[kind].join(row) for row in rows).encode(coding)
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(InputError, match=rf"`{'gzip -dc' if packed else 'iconv'} .* > NEW\.{kind}`"):
        list(read_table(path, kind, []))
