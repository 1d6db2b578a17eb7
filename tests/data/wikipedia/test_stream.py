from __future__ import annotations

import bz2
import gzip
import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from spanlm.data.wikipedia.stream import CHUNK_BYTES, ByteStream, Damage
from spanlm.errors import InputError
from tests.data.wikipedia.small import several_bzip2_streams, several_gzip_members

CONTENT = "".join(random.Random(1).choices("abc\n é", k=400_000)).encode()
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "gzip members": several_gzip_members,
    "gzip padded": lambda content: gzip.compress(content) + b"\0" * 700,
    "bzip2": bz2.compress,
    "bzip2 streams": several_bzip2_streams,
}


def read(path: Path) -> bytes:
    with ByteStream(path) as stream:
        return b"".join(stream.chunks())


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("content", [CONTENT, b"x", b"a\n" * (3 * CHUNK_BYTES)], ids=["text", "a byte", "repeats"])
def test_every_byte_comes_out(tmp_path: Path, packed: str, content: bytes) -> None:
    path = tmp_path / "any.name"
    path.write_bytes(PACKED[packed](content))
    with ByteStream(path) as stream:
        chunks = list(stream.chunks())
        assert b"".join(chunks) == content and max(map(len, chunks)) <= CHUNK_BYTES
        assert (stream.offset, stream.line, stream.position) == (len(content), 1 + content.count(b"\n"), stream.size)
        assert stream.sha256() == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_hash_is_that_of_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(CONTENT, 0))
    with ByteStream(path) as stream:
        next(stream.chunks())
        assert stream.sha256() == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("packed", [name for name in PACKED if name not in ("plain", "gzip padded")])
def test_cut_off_anywhere(tmp_path: Path, packed: str) -> None:
    whole, path = PACKED[packed](CONTENT), tmp_path / "x"
    for cut in (7, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        found = b""
        with ByteStream(path) as stream, pytest.raises(Damage, match="ends too early") as damage:
            for chunk in stream.chunks():
                found += chunk
        assert CONTENT.startswith(found)
        assert (damage.value.offset, damage.value.line) == (len(found), 1 + found.count(b"\n"))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_wrong_inside(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    content = bytearray(pack(CONTENT))
    content[len(content) // 2 : len(content) // 2 + 40] = bytes(40)
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(Damage, match=r"damaged at byte \d+ of its text \(line \d+\): the compressed data"):
        read(tmp_path / "x")


def test_what_follows_gzip_data_and_is_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(gzip.compress(b"good\n") + b"bad")
    with pytest.raises(Damage, match=r"at byte 5 .*line 2"):
        read(tmp_path / "x")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none: cannot be read \(No such file"):
        read(tmp_path / "none")
