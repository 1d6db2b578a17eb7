from __future__ import annotations

from pathlib import Path

import pytest

from spanlm.data.wikipedia.pieces import Page
from spanlm.data.wikipedia.stream import ByteStream, Damage
from spanlm.data.wikipedia.xml_dump import DumpReader
from spanlm.errors import InputError
from tests.data.wikipedia.small import FOOTER, HEADER, dump, made_articles, page, wikitext


def pages(path: Path, content: bytes) -> tuple[list[Page], DumpReader]:
    path.write_bytes(content)
    with ByteStream(path) as stream:
        reader = DumpReader(stream)
        return list(reader.pages()), reader


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_pages_come_as_they_are(tmp_path: Path, encoding: str) -> None:
    articles = made_articles(30)
    found, reader = pages(tmp_path / "x.xml", dump(articles).decode().encode(encoding))
    assert [(one.id, one.title, one.text) for one in found] == [(one.id, one.title, wikitext(one)) for one in articles]
    assert not any(one.redirect for one in found) and {one.namespace for one in found} == {"0"}
    assert reader.silent == {"datei", "kategorie"}


def test_markup_of_the_text_is_not_that_of_the_dump(tmp_path: Path) -> None:
    text = "<ref>a & b</ref> &lt; <title>no</title> \"c\" 'd' ]]> é 漢"
    (found,), _ = pages(tmp_path / "x.xml", (HEADER + page("1", "A & <B>", text) + FOOTER).encode())
    assert (found.title, found.text) == ("A & <B>", text)


def test_what_is_no_article_comes_without_its_text(tmp_path: Path) -> None:
    body = page("1", "Talk:A", "long", namespace=1) + page("2", "B", "#REDIRECT", redirect=True) + page("3", "C", "x")
    found, _ = pages(tmp_path / "x.xml", (HEADER + body + FOOTER).encode())
    assert [(one.namespace, one.redirect, one.text) for one in found] == [
        ("1", False, ""),
        ("0", True, ""),
        ("0", False, "x"),
    ]


def test_damage_is_told_by_its_place_and_what_was_before_it_is_good(tmp_path: Path) -> None:
    good = (HEADER + page("1", "A", "x") + page("2", "B", "y")).encode()
    for bad, reason in ((b"  <page><title>C &undefined; D", "undefined entity"), (b"</wrong>", "mismatched tag")):
        (tmp_path / "x.xml").write_bytes(good + bad)
        at = len(good) + max(bad.find(b"&"), 0) + (2 if bad.startswith(b"</") else 0)
        line = 1 + good.count(b"\n")
        with ByteStream(tmp_path / "x.xml") as stream:
            found = []
            with pytest.raises(Damage, match=rf"at byte {at} of its text \(line {line}\): .*{reason}"):
                found += iter_into(found, stream)
        assert [one.id for one in found] == ["1", "2"]


def iter_into(found: list[Page], stream: ByteStream) -> list[Page]:
    for one in DumpReader(stream).pages():
        found.append(one)
    return []


def test_a_dump_that_stops(tmp_path: Path) -> None:
    content = dump(made_articles(3))
    for cut in (len(content) - 2, content.rindex(b"<text"), content.rindex(b"</page>")):
        (tmp_path / "x.xml").write_bytes(content[:cut])
        with ByteStream(tmp_path / "x.xml") as stream:
            found: list[Page] = []
            with pytest.raises(Damage, match="not well-formed XML") as damage:
                iter_into(found, stream)
            # where the data ends, or where the tag begins that it cuts in two
            assert damage.value.offset in (cut, content.rindex(b"<", 0, cut))
        assert len(found) == (3 if cut == len(content) - 2 else 2)


@pytest.mark.parametrize("content", [b"<html><body>x</body></html>", b'<?xml version="1.0"?><rss></rss>'])
def test_xml_that_is_no_dump(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError, match=r"root element is <(html|rss)> where a MediaWiki export has <mediawiki>"):
        pages(tmp_path / "x.xml", content)
