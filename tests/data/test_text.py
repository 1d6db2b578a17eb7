import gzip
import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data.text import CHUNK_BYTES, Text, fingerprint, pieces, without_marks
from spanlm.errors import InputError, RunError
from tests.data.reference import PLACES, cut_at

CHARACTERS = st.sampled_from(
    ["a", "b", "é", "漢", "😀", "\u0301", "\u2028", "\u00a0", "\u0085", "\ufeff", *" \n\t\r\v\f", " <unk> ", "x<eos>"]
)
TEXTS = st.lists(CHARACTERS, max_size=40).map("".join)


def read(path: Path, data: bytes) -> list[bytes]:
    path.write_bytes(data)
    return list(pieces(Text(path), hashlib.sha256(data).hexdigest()))


@given(TEXTS, PLACES)
def test_pieces_joined_are_the_text_wherever_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, text: str, place: int | None
) -> None:
    data = cut_at(place, text.encode())
    found = read(tmp_path_factory.getbasetemp() / "any.txt", data)
    plain = data.removeprefix(b"\xef\xbb\xbf")
    assert b"".join(found) == plain + (b"" if plain.endswith(b"\n") or not plain else b"\n")
    for piece in found:
        piece.decode()
    assert all(piece[-1:].isspace() for piece in found[:-2])


def test_a_long_line_comes_in_small_pieces(tmp_path: Path) -> None:
    found = read(tmp_path / "a.txt", b"word " * 1_000_000)
    assert len(found) > 4 and max(map(len, found)) <= CHUNK_BYTES + len(b"word")


@pytest.mark.parametrize("place", [None, 4, 7])
@pytest.mark.parametrize(
    ("data", "at", "message"),
    [
        (b"caf\xc3\xa9 \xff a\n", 6, r"not UTF-8 at byte {} \(invalid start byte\)"),
        (b"ab \xe6\xbc", 3, r"not UTF-8 at byte {} \(unexpected end of data\)"),
        (b"one\ntwo \xed\xa0\x80 three", 8, "not UTF-8 at byte {}"),
        (b"one\n two\0\n", 8, "a NUL byte at byte {}"),
        (b"one\ntwo\n\nthe <eos> here\n", 9, "the word <eos> is reserved"),
        (b"a<eos> <eos>b\n\t<eos>\v<eos>", 14, "the word <eos> is reserved"),
        (b"\xef\xbb\xbfab \xe6\xbc\n", 6, "not UTF-8 at byte {}"),
    ],
)
def test_bad_bytes_are_refused_with_their_place(
    tmp_path: Path, data: bytes, at: int, message: str, place: int | None
) -> None:
    whole = cut_at(place, data)
    at += len(whole) - len(data)
    told = message.format(at) if "{}" in message else f"line {1 + whole.count(10, 0, at)}: {message}"
    with pytest.raises(InputError, match=rf"bad\.txt.*{told}"):
        read(tmp_path / "bad.txt", whole)


def test_a_word_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a word of more than 16,?777,?216 bytes at byte 3"):
        read(tmp_path / "a.txt", b"ab " + b"x" * (18 << 20))


def test_gzip_gives_the_same_pieces_and_the_hash_of_the_text(tmp_path: Path) -> None:
    data = "één\ntwee drie\n".encode() * 50
    (tmp_path / "a.txt").write_bytes(data)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(data))
    for name in ("a.txt", "a.txt.gz"):
        for text in (Text(tmp_path / name), Text(tmp_path / name, 6, 32)):
            expected = data[text.start : text.stop]
            assert fingerprint(text) == hashlib.sha256(expected).hexdigest()
            assert b"".join(pieces(text, fingerprint(text))) == expected


def test_a_file_that_changes_meanwhile_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n")
    before = fingerprint(Text(path))
    path.write_bytes(b"two\n")
    with pytest.raises(RunError, match=r"a\.txt: the file was changed while it was read"):
        list(pieces(Text(path), before))


def test_a_very_long_word_is_cut_between_characters_where_all_is_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanlm.data.text.CHUNK_BYTES", 100)
    monkeypatch.setattr("spanlm.data.text.LONGEST_WORD", 300)
    path = tmp_path / "a.txt"
    for length in range(280, 420, 3):
        for unit in ("x", "語", "<unk>", "<eos>"):
            text = f"a {unit * (length // len(unit))}<eos> b {unit * 200}\n".encode()
            path.write_bytes(text)
            found = list(pieces(Text(path, exact=True)))
            assert b"".join(found) == text and max(map(len, found)) <= 400
            assert all(piece.decode().endswith(unit) for piece in found[:1] if unit == "<unk>" and len(piece) > 250)
    path.write_bytes(b"a " + b"\x80" * 2000)
    assert b"".join(pieces(Text(path, exact=True, any_bytes=True))) == path.read_bytes() + b"\n"
    path.write_bytes(b"x" * 400)
    with pytest.raises(InputError, match=r"a word of more than 300 bytes at byte 0; .*data\.tokenizer=characters"):
        list(pieces(Text(path)))


MARKED = "<s> a </s>|b <eos>| <s>\tc </s>\r|<s> </s>|<eos>|<s> d </s> <eos>|\f|<s>x </s>|<s> e|f </s>|g </s> <s>|<s>"


@pytest.mark.parametrize("kept", [True, False])
def test_marks_at_the_ends_of_lines_are_left_out_wherever_the_text_is_cut(tmp_path: Path, kept: bool) -> None:
    lines = [line.split() for line in MARKED.split("|")]
    expected = []
    for words in lines:
        words = words[: len(words) - (words[-1:] == ["<eos>"])]
        around = not kept and len(words) > 1 and (words[0], words[-1]) == ("<s>", "</s>")
        expected.append(words[1:-1] if around else words)
    for place in range(0, len(MARKED), 5):
        data = cut_at(place, (MARKED.replace("|", "\n") + ("", "\n", " ")[place % 3]).encode())
        (tmp_path / "a.txt").write_bytes(data)
        found = b"".join(pieces(Text(tmp_path / "a.txt", marks=kept)))
        assert len(found) == len(data.removesuffix(b"\n")) + 1, "each word stays where it is"
        assert [line.split() for line in found.decode().split("\n")][-1 - len(lines) : -1] == expected, place
    for line, words in zip(MARKED.split("|"), expected, strict=True):
        assert without_marks(line, kept).split() == words and len(without_marks(line, kept)) == len(line)


def test_a_mark_in_a_very_long_line_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanlm.data.text.LONGEST_WORD", 1 << 20)
    (tmp_path / "a.txt").write_bytes(b"<s> " + b"word " * (1 << 19) + b"a </s>\n<s> b </s>\n")
    whole = b"".join(pieces(Text(tmp_path / "a.txt", marks=False)))
    assert whole.split()[:2] == [b"<s>", b"word"] and whole.split()[-3:] == [b"a", b"</s>", b"b"]
