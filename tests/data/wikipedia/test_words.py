from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data.wikipedia.text import normalise
from spanlm.data.wikipedia.words import cut_sentence


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("Well-known O'Brien left.", "Well-known O'Brien left ."),
        ('He said, "Go!"', 'He said , " Go ! "'),
        ("She didn't; they'll, it's Ann's.", "She did n't ; they 'll , it 's Ann 's ."),
        ("You cannot, won't and can't.", "You can not , wo n't and ca n't ."),
        ("The players' day", "The players ' day"),
        ("Mr. J. A. Smith Jr. of AT&T Inc. came.", "Mr. J. A. Smith Jr. of AT&T Inc. came ."),
        ("He moved to the U.S.", "He moved to the U.S."),
        ("It was World War I.", "It was World War I ."),
        ("He wrote Op. 5, No. 3 and said no.", "He wrote Op. N , No. N and said no ."),
        ("Pay $1,234.5 or 5% at 10:30, not .308.", "Pay $ N or N % at N , not N ."),
        ("In 1914–18 and 1978-79, 3/4 and 5½", "In N – N and N , N and N"),
        ("the 1990s, the 19th and a 30-year-old in the 90's", "the 1990s , the 19th and a 30-year-old in the N 's"),
        ("5'6\" tall", "N ' N \" tall"),
        ("and/or (see e.g. ch. 2)", "and / or ( see e.g. ch. N )"),
        ("so on... or -- and—then", "so on ... or -- and — then"),
        ("Last.fm and U.S.-led rock 'n' roll of the '80s", "Last.fm and U.S.-led rock 'n' roll of the '80s"),
        ("<unk> and <eos>", "< unk > and < eos >"),
        ("நிலம் é", "நிலம் é"),
        ("", ""),
    ],
)
def test_treebank_conventions(sentence: str, words: str) -> None:
    assert cut_sentence(sentence) == words.split()


def test_small_letters_leave_numbers() -> None:
    assert cut_sentence("The N of 12 Words.", lowercase=True) == ["the", "N", "of", "N", "words", "."]


def accounted_for(sentence: str, words: list[str]) -> bool:
    """Whether the words are the sentence without its white space; `N` is a number, or itself."""
    one = {"N": r"(?:N|[\d¼-¾⅐-⅞.,:/-]+)"}
    pattern = "".join(one.get(word, re.escape(word)) for word in words)
    return re.fullmatch(pattern, "".join(sentence.split())) is not None


TEXTS = st.one_of(
    st.text(max_size=60),
    st.text("ab Ae.'-,N1½9 (\"s)&/:n’t—U$%", max_size=60),
)


@given(TEXTS)
def test_every_letter_is_accounted_for(text: str) -> None:
    sentence = normalise(text)
    words = cut_sentence(sentence)
    assert accounted_for(sentence, words)
    assert all(words) and not any(re.search(r"\s", word) for word in words)
    assert not {"<unk>", "<eos>"} & set(words)


@given(TEXTS, TEXTS)
def test_a_word_is_cut_the_same_wherever_it_stands(before: str, after: str) -> None:
    """Only the last of a sentence may differ, by its period."""
    first, second = normalise(before), normalise(after)
    together = cut_sentence(f"{first} {second} end")
    assert together == cut_sentence(f"{first} end")[:-1] + cut_sentence(f"{second} end")


@given(st.integers(0, 10**9))
def test_numbers_are_one_symbol(number: int) -> None:
    for written in (f"{number}", f"{number:,}", f"{number}.{number}", f".{number}"):
        assert cut_sentence(f"a {written} b") == ["a", "N", "b"]
    assert "N" not in cut_sentence(f"a {number}th b")
