from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spanlm.data.tokenizer import tokenize
from spanlm.errors import InputError

ANY_LINE = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \t\v\f.,'-<>=e"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("The cat sat.", ["the", "cat", "sat", "."]),
        ('He said: "Don\'t!"', ["he", "said", ":", '"', "don't", "!", '"']),
        ("a well-known fact - or so", ["a", "well-known", "fact", "-", "or", "so"]),
        ("1,000.50 is 3.5.", ["1,000.50", "is", "3.5", "."]),
        ("e.g. the U.S. army", ["e.g.", "the", "u.s.", "army"]),
        ("a.b.c.d ab.c. x.y.", ["a.b.c.d", "ab.c", ".", "x.y."]),
        ("wait...", ["wait", ".", ".", "."]),
        ("a <unk> (<UNK>)", ["a", "<unk>", "(", "<unk>", ")"]),
        ("cafe\u0301 हिन्दी naïve", ["cafe\u0301", "हिन्दी", "naïve"]),
        ("ΟΔΟΣ, İstanbul", ["οδος", ",", "i\u0307stanbul"]),
        ("snake_case() x+=1", ["snake_case", "(", ")", "x", "+", "=", "1"]),
        ("the ’90s’ end", ["the", "’", "90s", "’", "end"]),
        ("  \t ", []),
    ],
)
def test_words_lowercases_and_splits_punctuation_off(line: str, words: list[str]) -> None:
    assert tokenize(line, "words") == words


@given(ANY_LINE)
def test_whitespace_agrees_with_bytes_split(line: str) -> None:
    assume(b"<eos>" not in line.encode().split())
    assert tokenize(line, "whitespace") == [word.decode() for word in line.encode().split()]


@given(ANY_LINE)
def test_words_loses_no_character_and_changes_nothing_the_second_time(line: str) -> None:
    assume(b"<eos>" not in line.encode().split())
    words = tokenize(line, "words")
    assert "".join(words) == "".join(word.decode().lower() for word in line.encode().split())
    assert tokenize(" ".join(words), "words") == words


@given(ANY_LINE.map(lambda line: line.replace("e", "’")))
def test_straight_words_are_those_of_the_line_with_straight_apostrophes(line: str) -> None:
    assume("<eos>" not in line)
    assert tokenize(line, "straight-words") == tokenize(line.replace("’", "'"), "words")
    assert tokenize("They’d", "straight-words") == ["they'd"]


def test_the_reserved_word_is_refused() -> None:
    for tokenizer in ("whitespace", "words"):
        with pytest.raises(InputError, match="<eos> is reserved"):
            tokenize("a <eos> b", tokenizer)  # type: ignore[arg-type]
    assert tokenize("a<eos>b", "whitespace") == ["a<eos>b"]
    assert tokenize("a<eos>b", "words") == ["a", "<", "eos", ">", "b"]


def test_an_unknown_tokenizer_is_refused() -> None:
    with pytest.raises(InputError, match="tokenizer=bpe: must be whitespace or words"):
        tokenize("a", "bpe")  # type: ignore[arg-type]
