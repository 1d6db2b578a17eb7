"""Bytes, lines and pages of a source, and where they are damaged."""

from __future__ import annotations

import bz2
import gzip
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from spanlm.data.wikipedia.sources import CHUNK_BYTES, ByteStream, Damage, DumpReader, Page, Source
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


def read_until_damage(path: Path) -> tuple[bytes, str]:
    found = b""
    with pytest.raises(Damage) as damage:
        for chunk in ByteStream(path).chunks():
            found += chunk
    return found, str(damage.value)


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("content", [CONTENT, b"x", b"a\n" * (3 * CHUNK_BYTES)], ids=["text", "a byte", "repeats"])
def test_every_byte_comes_out(tmp_path: Path, packed: str, content: bytes) -> None:
    path = tmp_path / "any.name"
    path.write_bytes(PACKED[packed](content))
    stream = ByteStream(path)
    chunks = list(stream.chunks())
    assert b"".join(chunks) == content and max(map(len, chunks)) <= CHUNK_BYTES
    assert (stream.offset, stream.line) == (len(content), 1 + content.count(b"\n"))


@pytest.mark.parametrize("packed", [name for name in PACKED if name not in ("plain", "gzip padded")])
def test_cut_off_anywhere(tmp_path: Path, packed: str) -> None:
    whole, path = PACKED[packed](CONTENT), tmp_path / "x"
    for cut in (7, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        found, damage = read_until_damage(path)
        assert CONTENT.startswith(found)
        assert damage.startswith(f"damaged at byte {len(found)} of its text (line {1 + found.count(10)}): ")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_wrong_inside_and_after_the_end(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    content = bytearray(pack(CONTENT))
    content[len(content) // 2 : len(content) // 2 + 40] = bytes(40)
    (tmp_path / "x").write_bytes(content)
    assert "the compressed data" in read_until_damage(tmp_path / "x")[1]
    (tmp_path / "x").write_bytes(pack(b"good\n") + b"bad")
    found, damage = read_until_damage(tmp_path / "x")
    assert found == b"good\n" and "at byte 5 of its text (line 2)" in damage


def pages(path: Path, content: bytes) -> list[Page | str]:
    path.write_bytes(content)
    return list(DumpReader(path).pages(ByteStream(path).chunks()))


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
    (found,) = Source(path, is_dump=False).records(ByteStream(path))
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
def test_damage_has_its_place_and_what_was_before_it_is_good(tmp_path: Path, bad: bytes, at: int, reason: str) -> None:
    path, found = tmp_path / "x.xml", []
    path.write_bytes(GOOD + bad)
    where = rf"at byte {len(GOOD) + at} of its text \(line {1 + GOOD.count(10)}\): .*{reason}"
    with pytest.raises(Damage) as damage:
        for one in DumpReader(path).pages(ByteStream(path).chunks()):
            found.append(one[0])
    assert damage.match(where) and found == ["1", "2"]
