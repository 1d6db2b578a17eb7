"""Sources that are damaged, or that are something else."""

import bz2
import json
import sys
from pathlib import Path

import pytest

from spanlm.errors import InputError
from tests.data.wikipedia.small import build, dump, json_line, json_lines, listed, made_articles

ARTICLES = made_articles(40)


def test_a_line_that_is_not_json(tmp_path: Path) -> None:
    lines = [json_line(made) for made in ARTICLES]
    lines[25] = lines[25][:-30] + b"\n"
    (tmp_path / "x.jsonl").write_bytes(b"".join(lines))
    at = sum(map(len, lines[:25]))
    with pytest.raises(InputError, match=rf"x.jsonl: damaged at byte {at} of its text \(line 26\): not JSON"):
        build(tmp_path / "x.jsonl", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_damage_counts_only_where_it_is_reached(tmp_path: Path) -> None:
    (tmp_path / "x.bz2").write_bytes(bz2.compress(dump(ARTICLES)[:-2000]))
    with pytest.raises(InputError, match=r"x.bz2: damaged at byte \d+ .*\(line \d+\): not well-formed XML"):
        build(tmp_path / "x.bz2", tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))
    build(tmp_path / "x.bz2", tmp_path / "out", jobs=2, articles=20)  # processes read ahead
    assert [row["id"] for row in listed(tmp_path / "out")] == [made.id for made in ARTICLES[:20]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"id,title,text\n1,a,b\n", "neither JSON lines nor XML"),
        (bytes(range(256)), "neither JSON lines nor XML"),
        (b'{"id": "1", "title": 5, "text": "b"}\n{}\n', "line 1: no object with an id"),
        (b'<?xml version="1.0"?><rss></rss>', "not a dump of a wiki: its root is <rss>"),
        (b"\x1f\x8b and no more", "damaged at byte 0"),
        (b'{"id": "1", "title": "a", "text": "\\ud800 \\udfff"}', "no article(s) in it (skipped: empty 1)"),
        (dump([]), "no article(s) in it (skipped: nothing)"),
    ],
)
def test_what_is_not_wikipedia(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InputError) as refused:
        build(tmp_path / "x", tmp_path / "out")
    assert message in str(refused.value)
    assert not list(tmp_path.glob("*out*"))


def test_a_line_that_is_no_article_costs_itself_alone(tmp_path: Path) -> None:
    lines = json_lines(ARTICLES).splitlines(keepends=True)
    lines[5:5] = [b'{"id": "x", "title": null, "text": "a b"}\n', b"[1]\n"]
    (tmp_path / "x.jsonl").write_bytes(b"".join(lines))
    build(tmp_path / "x.jsonl", tmp_path / "out")
    assert [row["id"] for row in listed(tmp_path / "out")] == [made.id for made in ARTICLES]
    assert json.loads((tmp_path / "out/corpus.json").read_text())["skipped"]["incomplete"] == 2


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.jsonl").write_bytes(json_lines(ARTICLES))
    for names, message in ((["empty"], "a folder without a file"), (["x.jsonl", "empty/../x.jsonl"], "comes twice")):
        with pytest.raises(InputError, match=message):
            build([tmp_path / name for name in names], tmp_path / "out")


def test_lines_without_an_end_and_odd_strings(tmp_path: Path) -> None:
    lines = [json_line(made, id=int(made.id)) for made in ARTICLES[:4]]
    odd = json_line(ARTICLES[4], title="A\tB\nC", text="\ud83d A\u2028B <eos> x\x00y <unk>.\n\nBut it ends.")
    (tmp_path / "x.jsonl").write_bytes(b"\xef\xbb\xbf" + b"".join(lines) + b"\r\n\n" + odd.strip())
    build(tmp_path / "x.jsonl", tmp_path / "out")
    rows = listed(tmp_path / "out")
    assert [(row["id"], row["title"]) for row in rows[3:]] == [("103", "Title 3"), ("104", "A B C")]


@pytest.mark.parametrize("library", ["sentencex", "mwparserfromhell"])
def test_a_library_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    (tmp_path / "x.jsonl").write_bytes(json_lines(ARTICLES))
    monkeypatch.setitem(sys.modules, library, None)  # as import has it where there is none
    with pytest.raises(InputError, match=rf"needs {library}: .*pip install"):
        build(tmp_path / "x.jsonl", tmp_path / "out")
