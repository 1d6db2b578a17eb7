from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.analysis.attend import excerpt
from spanlm.data.corpora import Corpus
from spanlm.data.token_files import TokenFile
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError

VOCABULARY = Vocabulary((EOS, UNK, *"abcdefgh"))
TEXT = f"a b c {EOS} d {UNK} {EOS} e {EOS} {EOS} f g h {EOS} a b".split()
#        1 2 3 4     5 6     7     8 9     10    11...


def corpus(starts: tuple[int, ...] = (0, 7, 10)) -> Corpus:
    ids = np.array(VOCABULARY.encode(TEXT), np.int32)
    tokens = TokenFile(ids, np.array(starts, np.int64))
    about: Any = {"notes": [], "oov": {"valid": 0}, "tokenizer": "whitespace"}
    return Corpus(name="small", vocabulary=VOCABULARY, splits={"valid": tokens}, **about)


@pytest.mark.parametrize(
    ("start", "first"),
    [(1, 1), (4, 1), (5, 5), (6, 5), (7, 5), (8, 8), (10, 10), (11, 11), (14, 11), (15, 15), (16, 15)],
)
def test_from_begins_with_the_line_that_holds_the_token(start: int, first: int) -> None:
    found = excerpt(corpus((0,)), "valid", start=start, length=3)
    assert found.words == TEXT[first - 1 : first + 2]
    assert f"tokens {first} to " in found.source and "document" not in found.source


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 30))
def test_nothing_of_another_document_is_taken(document: int, start: int, length: int) -> None:
    whole = excerpt(corpus(), "valid", document=document, length=99).words
    found = excerpt(corpus(), "valid", document=document, start=start, length=length).words
    at = len(whole) - len(excerpt(corpus(), "valid", document=document, start=start, length=99).words)
    assert found == whole[at : at + length]
    assert at < start and (at == 0 or whole[at - 1] == EOS) and EOS not in whole[at : start - 1]


def test_a_corpus_without_documents_says_what_to_do() -> None:
    with pytest.raises(InputError, match=r"^document=2: small valid is not cut into documents; start=TOKEN .* 16"):
        excerpt(corpus((0,)), "valid", document=2)
    assert excerpt(corpus((0,)), "valid", document=1).words == TEXT, "all of it is one"
