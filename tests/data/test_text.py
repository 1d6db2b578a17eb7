from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data import text as text_module
from spanlm.data.text import Text, fingerprint, pieces
from spanlm.errors import InputError, RunError

CHARACTERS = st.sampled_from(
    ["a", "b", "é", "漢", "😀", "\u0301", "\u2028", "\u00a0", "\u0085", "\ufeff", *" \n\t\r\v\f", " <unk> ", "x<eos>"]
)
TEXTS = st.lists(CHARACTERS, max_size=40).map("".join)


def read(path: Path, data: bytes, chunk_bytes: int = 1 << 20) -> list[bytes]:
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "CHUNK_BYTES", chunk_bytes)
        return list(pieces(Text(path), hashlib.sha256(data).hexdigest()))


@given(TEXTS, st.integers(1, 9))
def test_pieces_joined_are_the_text_wherever_the_chunks_are_cut(
    tmp_path_factory: pytest.TempPathFactory, text: str, chunk_bytes: int
) -> None:
    data = text.encode()
    found = read(tmp_path_factory.getbasetemp() / "any.txt", data, chunk_bytes)
    plain = data.removeprefix(b"\xef\xbb\xbf")
    assert b"".join(found) == plain + (b"" if plain.endswith(b"\n") or not plain else b"\n")
    for piece in found:
        piece.decode()
    assert all(piece[-1:].isspace() for piece in found[:-2])


def test_a_long_line_comes_in_small_pieces(tmp_path: Path) -> None:
    found = read(tmp_path / "a.txt", b"word " * 1000, 64)
    assert max(map(len, found)) <= 64 + len(b"word")
    assert len(found) > 50


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"caf\xc3\xa9 \xff a\n", r"not UTF-8 at byte 6 \(invalid start byte\)"),
        (b"\xef\xbb\xbfab \xe6\xbc\n", "not UTF-8 at byte 6"),
        (b"ab \xe6\xbc", r"not UTF-8 at byte 3 \(unexpected end of data\)"),
        (b"one\ntwo \xed\xa0\x80 three", "not UTF-8 at byte 8"),
        (b"one\n two\0\n", "a NUL byte at byte 8"),
        (b"one\ntwo\n\nthe <eos> here\n", "line 4: the word <eos> is reserved"),
        (b"\xef\xbb\xbf<eos>", "line 1: the word <eos> is reserved"),
        (b"a<eos> <eos>b\n\t<eos>\v", "line 2: the word <eos> is reserved"),
    ],
)
def test_bad_bytes_are_refused_with_their_place(tmp_path: Path, data: bytes, message: str, chunk_bytes: int) -> None:
    with pytest.raises(InputError, match=rf"bad\.txt.*{message}"):
        read(tmp_path / "bad.txt", data, chunk_bytes)


def test_a_word_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "LONGEST_WORD", 20)
    with pytest.raises(InputError, match="a word of more than 20 bytes at byte 3"):
        read(tmp_path / "a.txt", b"ab " + b"x" * 99, 4)
    assert b"".join(read(tmp_path / "a.txt", b"ab " + b"x" * 18, 4)) == b"ab " + b"x" * 18 + b"\n"


def test_gzip_gives_the_same_pieces_and_the_hash_of_the_text(tmp_path: Path) -> None:
    data = "één\ntwee drie\n".encode() * 50
    (tmp_path / "a.txt").write_bytes(data)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(data))
    for name in ("a.txt", "a.txt.gz"):
        for text in (Text(tmp_path / name), Text(tmp_path / name, 6, 32)):
            expected = data[text.start : text.stop]
            assert fingerprint(text) == hashlib.sha256(expected).hexdigest()
            assert b"".join(pieces(text, fingerprint(text))) == expected


def test_the_line_number_in_a_part_is_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\nthree <eos>\n")
    with pytest.raises(InputError, match="line 3"):
        list(pieces(Text(tmp_path / "a.txt", 4)))


def test_a_file_that_changes_meanwhile_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n")
    before = fingerprint(Text(path))
    path.write_bytes(b"two\n")
    with pytest.raises(RunError, match=r"a\.txt: the file was changed while it was read"):
        list(pieces(Text(path), before))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    for name, message in (
        ("none.txt", r"none\.txt: no such file"),
        ("", "a folder where a text file is needed"),
        ("empty.txt/none.txt", r"none\.txt.*cannot be read \(Not a directory\)"),
        ("empty.txt", r"empty\.txt: the file is empty"),
    ):
        with pytest.raises(InputError, match=message):
            fingerprint(Text(tmp_path / name))


@pytest.mark.parametrize("damage", ["truncated", "not gzip", "flipped"])
def test_a_damaged_gzip_file_is_refused(tmp_path: Path, damage: str) -> None:
    packed, path = gzip.compress(b"some words of a text\n" * 100), tmp_path / "a.txt.gz"
    flipped = packed[:40] + bytes([packed[40] ^ 0xFF]) + packed[41:]
    path.write_bytes({"truncated": packed[:-20], "not gzip": b"plain words\n", "flipped": flipped}[damage])
    with pytest.raises(InputError, match=r"a\.txt\.gz: damaged gzip file"):
        fingerprint(Text(path))
