"""Bytes, lines and pages of a source, and where they are damaged."""

import bz2
import gzip
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from spanlm.data.packed import BLOCK
from spanlm.data.wikipedia.sources import Page, Record, Source
from spanlm.errors import InputError
from tests.data.wikipedia import small
from tests.data.wikipedia.small import FOOTER, HEADER, dump, made_articles, page, wikitext

CONTENT = "".join(random.Random(1).choices("abc\n é", k=400_000)).encode()
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "gzip members": small.several_gzip_members,
    "gzip padded": lambda content: gzip.compress(content) + b"\0" * 700,
    "bzip2": bz2.compress,
    "bzip2 streams": small.several_bzip2_streams,
}


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("content", [CONTENT, b"x", b"a\n" * (3 * BLOCK)], ids=["text", "a byte", "repeats"])
def test_every_byte_comes_out(tmp_path: Path, packed: str, content: bytes) -> None:
    (tmp_path / "any.name").write_bytes(PACKED[packed](content))
    chunks = list(Source(tmp_path / "any.name", is_dump=False).chunks())
    assert b"".join(chunks) == content and max(map(len, chunks)) <= BLOCK


def pages(path: Path, content: bytes) -> list[Record]:
    path.write_bytes(content)
    return list(Source(path, is_dump=True).records())


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_pages_come_as_they_are(tmp_path: Path, encoding: str) -> None:
    articles = made_articles(30)
    found = pages(tmp_path / "x.xml", dump(articles).decode().encode(encoding))
    assert found == [Page(one.id, one.title, wikitext(one), silent=("datei", "kategorie")) for one in articles]


def test_markup_of_the_text_is_not_that_of_the_dump(tmp_path: Path) -> None:
    text = "<ref>a & b</ref> &lt; <title>no</title> \"c\" 'd' ]]> é 漢"
    (found,) = pages(tmp_path / "x.xml", (HEADER + page("1", "A & <B>", text) + FOOTER).encode())
    assert found[:3] == ("1", "A & <B>", text)


def test_half_a_surrogate_pair_is_no_letter_of_an_article(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": "1\\ud83d", "title": "A \\ud83dB", "text": "x"}\n')
    (found,) = Source(path, is_dump=False).records()
    assert found[:3] == ("1", "A B", "x")


GOOD = (HEADER + page("1", "A", "x") + page("2", "B", "y")).encode()


@pytest.mark.parametrize(
    ("bad", "at", "reason"),
    [
        (b"  <page><title>C &undefined; D", 17, "undefined entity"),
        (b"</wrong>", 2, "mismatched tag"),
        (b"  <page><title>C", 16, "no element found"),
        (b"  <page></pa", 8, "unclosed token"),
    ],
)
def test_damage_of_xml_has_its_place_and_what_was_before_it_is_good(
    tmp_path: Path, bad: bytes, at: int, reason: str
) -> None:
    *good, damage = pages(tmp_path / "x.xml", GOOD + bad)
    assert [one[0] for one in good if isinstance(one, Page)] == ["1", "2"]
    where = rf"at byte {len(GOOD) + at} of its text \(line {1 + GOOD.count(10)}\): .*{reason}"
    assert isinstance(damage, InputError) and re.search(where, str(damage))
