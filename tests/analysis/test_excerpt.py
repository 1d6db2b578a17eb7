from __future__ import annotations

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
    return Corpus(
        name="small",
        vocabulary=VOCABULARY,
        splits={"valid": tokens},
        notes=[],
        oov={"valid": 0},
        tokenizer="whitespace",
    )


@pytest.mark.parametrize(
    ("document", "words", "source"),
    [
        (1, TEXT[:7], "small valid, document 1 of 3, tokens 1 to 7 of 7"),
        (2, TEXT[7:10], "small valid, document 2 of 3, tokens 1 to 3 of 3"),
        (3, TEXT[10:], "small valid, document 3 of 3, tokens 1 to 6 of 6"),
    ],
)
def test_a_document_is_what_stands_in_it(document: int, words: list[str], source: str) -> None:
    found = excerpt(corpus(), "valid", document=document)
    assert (found.words, found.source) == (words, source)


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
    with pytest.raises(InputError, match=r"--document=2: small valid is not cut into documents; --from TOKEN .* 16"):
        excerpt(corpus((0,)), "valid", document=2)
    assert excerpt(corpus((0,)), "valid", document=1).words == TEXT, "all of it is one"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"document": 0}, "--document=0: must be from 1 to 3, the documents of small valid"),
        ({"document": 4}, "--document=4: must be from 1 to 3"),
        ({"start": 0}, "--from=0: must be from 1 to 16, the tokens of small valid"),
        ({"start": 17}, "--from=17: must be from 1 to 16"),
        ({"document": 2, "start": 4}, "--from=4: must be from 1 to 3, the tokens of small valid, document 2 of 3"),
        ({"document": 1, "length": 0}, "--words=0: must be at least 1"),
    ],
)
def test_what_is_not_there_is_refused(asked: dict[str, int], message: str) -> None:
    with pytest.raises(InputError) as error:
        excerpt(corpus(), "valid", **asked)  # type: ignore[arg-type]
    assert message in str(error.value)
