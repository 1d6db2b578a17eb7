from __future__ import annotations

import os
from pathlib import Path

import pytest

from spanlm.data.cbt import Question, read_questions, word_class
from spanlm.data.config import DataConfig
from spanlm.data.corpora import CORPORA, load_corpus

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif("SPANLM_DATA" not in os.environ, reason="needs a folder with corpora: set SPANLM_DATA"),
]


@pytest.mark.parametrize(
    ("name", "types", "tokens"),
    [
        ("ptb", 10_000, {"train": 929_589, "valid": 73_760, "test": 82_430}),
        ("wikitext-2", 33_278, {"train": 2_088_628, "valid": 217_646, "test": 245_569}),
    ],
)
def test_the_published_counts_are_exact(name: str, types: int, tokens: dict[str, int]) -> None:
    corpus = load_corpus(DataConfig(corpus=name))
    assert len(corpus.vocabulary) == types
    assert {split: len(found) for split, found in corpus.splits.items()} == tokens
    assert corpus.oov == {"train": 0, "valid": 0, "test": 0}
    assert name in CORPORA


@pytest.mark.slow
def test_the_childrens_books_have_their_published_counts() -> None:
    corpus = load_corpus(DataConfig(corpus="cbt"))
    eos = corpus.vocabulary.eos_id
    sentences = {split: int((tokens.ids == eos).sum()) for split, tokens in corpus.splits.items()}
    assert sentences == {"train": 263_372, "valid": 12_742, "test": 16_641}
    assert {split: len(tokens) for split, tokens in corpus.splits.items()} == {
        "train": 5_809_773,
        "valid": 269_017,
        "test": 347_278,
    }
    assert {split: len(tokens.documents) for split, tokens in corpus.splits.items()} == {
        "train": 98,
        "valid": 5,
        "test": 5,
    }
    assert len(corpus.vocabulary) == 60_822
    assert not any("_BOOK_TITLE_" in word for word in corpus.vocabulary.words)
    assert ["rebuilt" in note for note in corpus.notes] == [True]


@pytest.mark.slow
def test_the_childrens_books_with_a_smaller_vocabulary() -> None:
    corpus = load_corpus(DataConfig(corpus="cbt", max_size=16_000))
    assert len(corpus.vocabulary) == 16_000
    assert corpus.oov == {"train": 106_840, "valid": 5_977, "test": 9_089}


@pytest.mark.parametrize("word_kind", ["NE", "CN", "V", "P"])
@pytest.mark.parametrize(("part", "questions"), [("valid_2000", 2_000), ("test_2500", 2_500)])
def test_every_question_is_well_formed(word_kind: str, part: str, questions: int) -> None:
    path = Path(os.environ["SPANLM_DATA"]) / "cbt" / "questions" / f"cbtlike_{word_kind}_{part}.txt.gz"
    found = list(read_questions(path))
    assert len(found) == questions
    assert all(isinstance(question, Question) for question in found)
    assert {len(question.context) for question in found if isinstance(question, Question)} == {20}
    assert {len(question.candidates) for question in found if isinstance(question, Question)} == {10}
    assert word_class(path) == word_kind


def test_wikitext_2_has_its_articles() -> None:
    corpus = load_corpus(DataConfig(corpus="wikitext-2", documents="heading"))
    articles = {split: len(tokens.documents) for split, tokens in corpus.splits.items()}
    assert articles == {"train": 600, "valid": 60, "test": 60}
    assert len(corpus.splits["train"]) == 2_088_628
