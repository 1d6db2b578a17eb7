"""Tokenizers below the word: text → tokens → text, in chunks and in lines, and the fold into written words."""

import json
import os
import re
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spanlm
from spanlm.data.config import DataConfig
from spanlm.data.pieces_file import learned, read_pieces
from spanlm.data.subwords import Bytes, Characters, Pieces, Subwords
from spanlm.data.text import without_padding
from spanlm.data.tokenizer import written_words
from spanlm.data.vocabulary import EOS, UNK
from spanlm.errors import InputError
from tests.cases import rest_slow

SEEN = "the man <unk> saw\tnaïve 漢字 don't  two the man naïve two\n"
TOKENIZERS: dict[str, Subwords] = {
    "characters": Characters(Characters.vocabulary([SEEN.encode()])),
    "bpe": Pieces(learned("bpe", [SEEN] * 9, 280)),
    "bytes": Bytes(Bytes.vocabulary()),
    "unigram": Pieces(learned("unigram", [SEEN] * 9, 280)),
}
KINDS = rest_slow(TOKENIZERS, always=2)
LETTERS = [
    "the",
    " ",
    "  ",
    "\t",
    "\r",
    "\v\f",
    "▁",
    "Ġ",
    "é",
    "e\u0301",
    "漢",
    "😀",
    "\u00a0",
    "\u2028",
    UNK,
    f"x{EOS}y",
]
LINES = st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"])) | st.lists(
    st.sampled_from(LETTERS)
).map("".join)


def allowed(line: str) -> bool:
    return EOS not in written_words(line)


@pytest.mark.parametrize("kind", KINDS)
@given(lines=st.lists(LINES.filter(allowed), min_size=1, max_size=4))
def test_text_to_tokens_to_text_is_the_same_in_lines_and_in_chunks(kind: str, lines: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]
    words = tokenizer._vocabulary.words
    tokens = [tokenizer.tokens(line) for line in lines]
    assert [tokenizer.text(line) for line in tokens] == lines
    assert all(EOS not in line and line.count(UNK) == text.count(UNK) for line, text in zip(tokens, lines, strict=True))
    encoded = tokenizer.encode("".join(f"{line}\n" for line in lines).encode())
    assert [words[id] for id in encoded] == [token for line in tokens for token in [*line, EOS]]
    assert "".join(tokenizer.readable(words[id] for id in encoded)) == "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("kind", KINDS)
@given(line=LINES.filter(allowed), data=st.data())
def test_any_cut_of_a_text_gives_the_same_chunks(kind: str, line: str, data: st.DataObject) -> None:
    tokenizer, text = TOKENIZERS[kind], f"{line}\n{line} <unk>\n".encode()
    cuts = sorted({0, len(text), *data.draw(st.lists(st.integers(0, len(text)), max_size=4))})
    pieces = [text[start:end] for start, end in pairwise(cuts)]
    chunks = list(tokenizer.chunks(pieces))
    assert b"".join(chunks) == text
    assert np.array_equal(np.concatenate([*map(tokenizer.encode, chunks)]), tokenizer.encode(text))


@pytest.mark.parametrize("kind", KINDS)
def test_a_very_long_line_is_cut_where_the_tokens_stay(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanlm.data.subwords.LONGEST_LINE", 100)
    tokenizer, text = TOKENIZERS[kind], b"the man saw  two <unk> the man saw don't the" * 20 + b"\nman\n"
    chunks = list(tokenizer.chunks(text[start : start + 5] for start in range(0, len(text), 5)))
    assert len(chunks) > 8 and b"".join(chunks) == text
    assert np.array_equal(np.concatenate([*map(tokenizer.encode, chunks)]), tokenizer.encode(text))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("word", ["17, ", "語", "é<unk>", "x<eos>", "<eos>語 , ", "語 <eos>x "])
def test_a_long_line_without_words_that_spaces_part_is_cut_between_characters(
    kind: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanlm.data.subwords.LONGEST_LINE", 200)
    tokenizer, text = TOKENIZERS[kind], f"{word * 300}\n".encode()
    chunks = list(tokenizer.chunks(text[start : start + 70] for start in range(0, len(text), 70)))
    assert b"".join(chunks) == text and max(map(len, chunks)) <= 200
    tokens = [token for chunk in chunks for token in tokenizer.tokens(chunk.decode().removesuffix("\n"))]
    assert tokenizer.text(tokens).encode() == text[:-1] and tokens.count(UNK) == text.count(b"<unk>")
    if kind in ("bytes", "characters"):
        assert tokens == tokenizer.tokens(text[:-1].decode())


def test_long_strings_between_spaces_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanlm.data.subwords._REMEMBERED_BYTES", 5000)
    tokenizer = TOKENIZERS["bpe"]
    assert isinstance(tokenizer, Pieces)
    for number in range(100):
        tokenizer.encode(f" {number}{'語' * 1000}\n".encode())
    assert sum(map(len, tokenizer._known)) < 10_000


@pytest.mark.parametrize("kind", KINDS)
@given(line=LINES.filter(allowed))
def test_written_words_take_their_tokens_and_the_space_before_them(kind: str, line: str) -> None:
    tokenizer = TOKENIZERS[kind]
    *words, last = tokenizer.by_word(line)
    assert [tokenizer.text(tokens).strip(" \t\r\v\f") for tokens in words] == written_words(line)
    assert tokenizer.is_space(last)
    assert [token for tokens in [*words, last] for token in tokens] == tokenizer.tokens(line)


def test_bytes_that_are_no_text_come_back_and_are_never_printed() -> None:
    tokenizer, text = TOKENIZERS["bytes"], b"a\xff\xe6\xbc b\n"
    tokens = [tokenizer._vocabulary.words[id] for id in tokenizer.encode(text)]
    assert tokenizer.text(tokens).encode("utf-8", "surrogateescape") == text
    assert list(tokenizer.readable(tokenizer.tokens("é😀")[:-1])) == ["", "é", "", "", ""]


def test_characters_that_training_saw_seldom_are_bytes() -> None:
    vocabulary = Characters.vocabulary([b"aab", "é▁\tb".encode()], min_count=2)
    assert vocabulary.words[2 + 256 :] == ("▁", "a", "b")
    assert Characters(vocabulary).tokens("aé") == ["a", "<0xC3>", "<0xA9>"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_reserved_word_and_what_is_no_text_are_refused(kind: str) -> None:
    with pytest.raises(InputError, match="reserved"):
        TOKENIZERS[kind].tokens(f"the {EOS}")
    with pytest.raises(InputError, match="half a character"):
        TOKENIZERS[kind].tokens("the \ud83d")
    if kind != "bytes":
        with pytest.raises(InputError, match=r"not UTF-8.*only data.tokenizer=bytes"):
            TOKENIZERS[kind].tokens("the \udcff")


# --- files of pieces ---


def field(number: int, value: bytes | int) -> bytes:
    """Return a field of a protocol buffer of short values."""
    return bytes([number << 3, value]) if isinstance(value, int) else bytes([number << 3 | 2, len(value)]) + value


def sentencepiece(kind: int, pieces: dict[str, float]) -> bytes:
    scored = ((piece.encode(), struct.pack("<f", score)) for piece, score in pieces.items())
    listed = [field(1, field(1, piece) + b"\x15" + score) for piece, score in scored]
    return b"".join([field(1, field(1, b"<unk>") + field(3, 2)), *listed, field(2, field(3, kind))])


UNIGRAM = {"▁the": -2.0, "▁": -3.0, "t": -5.0, "h": -5.0, "e": -5.0, "▁th": -4.5, "é": -4.0, "lé": -4.2, "l": -4.4}
MERGED = {
    "th": -1.0,
    "▁th": -2.0,
    "▁the": -3.0,
    "lé": -4.0,
    "▁": -5.0,
    "t": -6.0,
    "h": -7.0,
    "e": -8.0,
    "é": -9.0,
    "l": -10.0,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pieces.model"


@pytest.mark.parametrize(("kind", "number", "pieces"), [("unigram", 1, UNIGRAM), ("bpe", 2, MERGED)])
def test_pieces_of_sentencepiece_cut_as_there_and_keep_every_byte(
    file: Path, kind: Any, number: int, pieces: dict[str, float]
) -> None:
    file.write_bytes(sentencepiece(number, pieces))
    tokenizer = Pieces(read_pieces(str(file), kind))
    assert tokenizer.tokens("le the thé the") == ["l", "e", "Ġthe", "Ġth", "Ã©", "Ġthe"]
    for line in ("▁the  the\t漢 <unk> x<eos>y ", "lé the"):
        assert tokenizer.text(tokenizer.tokens(line)) == line
    assert tokenizer.tokens("lé")[0] == "lÃ©"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_pieces_of_a_run_stay_its_vocabulary(file: Path, kind: Any) -> None:
    vocabulary = TOKENIZERS[kind]._vocabulary
    file.write_text(vocabulary.pieces, encoding="utf-8")
    assert read_pieces(file, kind).hash == vocabulary.hash


def test_byte_pieces_of_a_unigram_model_are_used_for_what_nothing_else_reads(file: Path) -> None:
    """As transformers writes such a model: bytes have the score 0, the best, which none of them is meant to have."""
    pieces = [["<unk>", 0.0], *([f"<0x{byte:02X}>", 0.0] for byte in range(256)), ["▁the", -2.0], ["▁cat", -3.0]]
    content = {"model": {"type": "Unigram", "unk_id": 0, "vocab": pieces}, "added_tokens": [{"content": "<unk>"}]}
    file.write_text(json.dumps(content))
    assert Pieces(read_pieces(file, "unigram")).tokens(" the cat") == ["Ġthe", "Ġcat"]


def test_a_tokenizer_of_bytes_keeps_its_ids_and_gets_line_ends_and_unknown_words(file: Path) -> None:
    content = json.loads(TOKENIZERS["bpe"]._vocabulary.pieces)
    for token in content["added_tokens"]:
        token |= {"content": {EOS: "<|endoftext|>", UNK: "<pad>"}[token["content"]], "special": True}
        for name in (EOS, UNK):
            content["model"]["vocab"].pop(name, None)
    content["model"]["vocab"] |= {"<|endoftext|>": 0, "<pad>": 1}
    content["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    file.write_text(json.dumps(content))
    vocabulary = read_pieces(str(file), "bpe")
    assert vocabulary.words[:2] == ("<|endoftext|>", "<pad>") and vocabulary.words[-2:] == (EOS, UNK)
    tokenizer, line = Pieces(vocabulary), "the <unk> <|endoftext|> <pad>  man\u00a0 "
    tokens = tokenizer.tokens(line)
    assert UNK in tokens and not {"<|endoftext|>", "<pad>"} & {*tokens} and tokenizer.text(tokens) == line


def test_pieces_are_not_cut_at_random(file: Path) -> None:
    content = json.loads(TOKENIZERS["bpe"]._vocabulary.pieces)
    file.write_bytes(changed(model=content["model"] | {"dropout": 0.9}))
    line, kept, random = "the cat sat on the mat", TOKENIZERS["bpe"], Pieces(read_pieces(str(file), "bpe"))
    assert all(random.tokens(line) == kept.tokens(line) for _ in range(9))


def changed(**parts: Any) -> bytes:
    return json.dumps(json.loads(TOKENIZERS["bpe"]._vocabulary.pieces) | parts).encode()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is no tokenizer.json and no SentencePiece model, or is cut short"),
        (sentencepiece(1, UNIGRAM)[:-9], "is cut short"),
        (sentencepiece(4, UNIGRAM), "of the kind char; there are bpe and unigram"),
        (sentencepiece(1, UNIGRAM), "of the kind unigram, not bpe: take data.tokenizer=unigram"),
        (changed()[:-40], "is cut short"),
        (changed(model={"type": "WordPiece", "vocab": {}}), "of the kind wordpiece"),
        (changed(normalizer={"type": "Lowercase"}), "its normalizer or pre_tokenizer changes text"),
        (changed(pre_tokenizer=None), "its normalizer or pre_tokenizer changes text"),
        (changed(added_tokens=[{"id": 999, "content": "x"}]), "do not have the ids 0 to"),
        (changed(added_tokens=3), r"or is cut short\. Copy it again"),
        (changed(model={"type": "BPE"}), r"or is cut short\. Copy it again"),
        (changed(model={"type": "BPE", "vocab": 3}), r"or is cut short\. Copy it again"),
        (changed(pre_tokenizer={"type": "ByteLevel?"}), "the package tokenizers refuses it"),
    ],
)
def test_a_file_that_is_no_pieces_or_loses_text_is_refused(file: Path, data: bytes, problem: str) -> None:
    file.write_bytes(data)
    with pytest.raises(InputError, match=problem) as refused:
        read_pieces(str(file), "bpe")
    assert "data.pieces" in str(refused.value)
    assert not re.search(r"object|\('|unpack|unhashable", str(refused.value)), "words of Python"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_learned_pieces_depend_on_the_text_alone_and_have_the_size(kind: Any) -> None:
    lines = [f"{word} {word[::-1]} {number}\n" for number, word in enumerate(("over", "under", "naïve", "lower") * 20)]
    first, second = (learned(kind, iter(lines), 300) for _ in range(2))
    assert first.pieces == second.pieces and len(first) == {"bpe": 300, "unigram": 277}[kind]
    assert len(learned(kind, [""], 300)) == 258, "no text, no pieces but the bytes"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_frequent_words_are_pieces(kind: Any) -> None:
    words = ["over", "under", "naïve", "lower", "yesterday", "1987"]
    tokenizer = Pieces(learned(kind, [f" {' '.join(words)}\n"] * 20, 330))
    assert all(len(tokens) == 1 for tokens in tokenizer.by_word(" " + " ".join(words))[:-1])


def test_pieces_of_a_long_text_are_learned_from_parts_spread_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanlm.data.text.CHUNK_BYTES", 1000)
    monkeypatch.setattr("spanlm.data.corpora.MOST_LEARNED", 4000)
    monkeypatch.setenv("SPANLM_CACHE", str(tmp_path / "cache"))
    words = ["".join(pair) for pair in zip("abcdefghij" * 2, "ijabcdefgh" * 2, strict=True)]
    lines = [f"{words[number // 100]} {words[number // 100]}" for number in range(2000)]
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("\n".join(lines) + "\n")
    vocabulary = spanlm.load_corpus(DataConfig(corpus=str(tmp_path), tokenizer="bpe", vocabulary_size=400)).vocabulary
    pieces = {word.removeprefix("Ġ") for word in vocabulary.words if len(word) > 1}
    assert len(pieces.intersection(words)) > 3 and words[0] in pieces, "some words are not seen, those at both ends are"
    assert not pieces.issuperset(words)


@given(st.lists(st.text("ab \t", max_size=6), min_size=1, max_size=5), st.integers(0, 2**30))
def test_padding_of_lines_is_left_out_however_the_text_is_cut(lines: list[str], cuts: int) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    places = [0, *(n for n in range(1, len(text)) if cuts >> n & 1), len(text)]
    pieces = [text[a:b] for a, b in pairwise(places)]
    assert b"".join(without_padding(pieces)).decode() == "".join(f"{line.strip(' ')}\n" for line in lines)


def test_the_published_format_of_penn_treebank_is_none_of_its_text() -> None:
    if not (Path(os.environ.get("SPANLM_DATA", "")) / "ptb").is_dir():
        pytest.skip("needs Penn Treebank in $SPANLM_DATA")
    corpus = spanlm.load_corpus(DataConfig(corpus="ptb", tokenizer="bytes"), splits=["valid"])
    written = corpus.written("valid")
    assert written is not None and len(corpus.splits["valid"]) == written.bytes - 4 * corpus.unk_tokens("valid")
