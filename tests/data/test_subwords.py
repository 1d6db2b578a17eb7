"""Tokenizers below the word: text → tokens → text, in chunks and in lines, and the fold into written words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data.subwords import Bytes, Characters, Subwords
from spanlm.data.tokenizer import written_words
from spanlm.data.vocabulary import EOS, UNK
from spanlm.errors import InputError
from tests.cases import rest_slow

SEEN = "the man <unk> saw\tnaïve 漢字 don't  two\n"
TOKENIZERS: dict[str, Subwords] = {
    "characters": Characters(Characters.vocabulary([SEEN.encode()])),
    "bytes": Bytes(Bytes.vocabulary()),
}
KINDS = rest_slow(TOKENIZERS, always=4)
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
    monkeypatch.setattr("spanlm.data.subwords.LONGEST_LINE", 8)
    tokenizer, text = TOKENIZERS[kind], b"the man saw  two <unk> the man saw don't the\nman\n"
    chunks = list(tokenizer.chunks(text[start : start + 5] for start in range(0, len(text), 5)))
    assert len(chunks) > 4 and b"".join(chunks) == text
    assert np.array_equal(np.concatenate([*map(tokenizer.encode, chunks)]), tokenizer.encode(text))


@pytest.mark.parametrize("kind", KINDS)
@given(line=LINES.filter(allowed))
def test_written_words_take_their_tokens_and_the_space_before_them(kind: str, line: str) -> None:
    tokenizer = TOKENIZERS[kind]
    *words, last = tokenizer.by_word(line)
    assert [tokenizer.text(tokens).strip(" \t\r\v\f") for tokens in words] == written_words(line)
    assert tokenizer.is_space(last)
    assert [token for tokens in [*words, last] for token in tokens] == tokenizer.tokens(line)
    assert all(tokenizer.begins_word(tokens[0]) for tokens in words[1:])


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
def test_the_reserved_word_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match="reserved"):
        TOKENIZERS[kind].tokens(f"the {EOS}")
