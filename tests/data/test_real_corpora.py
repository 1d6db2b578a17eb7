import os

import pytest

from spanlm.data.config import CORPORA, DataConfig
from spanlm.data.corpora import load_corpus
from tests.cases import rest_slow

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif("SPANLM_DATA" not in os.environ, reason="needs a folder with corpora: set SPANLM_DATA"),
]


@pytest.mark.parametrize(
    ("name", "types", "tokens"),
    rest_slow(
        [
            ("ptb", 10_000, {"train": 929_589, "valid": 73_760, "test": 82_430}),
            # published: 5017k, 393k and 442k characters, 50 with <eos>; the vocabulary also has <unk>
            ("ptb-char", 51, {"train": 5_017_482, "valid": 393_042, "test": 442_423}),
            ("wikitext-2", 33_278, {"train": 2_088_628, "valid": 217_646, "test": 245_569}),
        ]
    ),
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
    assert [int((tokens.ids == eos).sum()) for tokens in corpus.splits.values()] == [263_372, 12_742, 16_641]
    assert [len(tokens) for tokens in corpus.splits.values()] == [5_809_773, 269_017, 347_278]
    assert [len(tokens.documents) for tokens in corpus.splits.values()] == [98, 5, 5]
    assert len(corpus.vocabulary) == 60_822
    assert not any("_BOOK_TITLE_" in word for word in corpus.vocabulary.words)
    assert ["rebuilt" in note for note in corpus.notes] == [True]
    corpus = load_corpus(DataConfig(corpus="cbt", max_size=16_000))
    assert len(corpus.vocabulary) == 16_000
    assert corpus.oov == {"train": 106_840, "valid": 5_977, "test": 9_089}


@pytest.mark.slow
def test_wikitext_2_has_its_articles() -> None:
    corpus = load_corpus(DataConfig(corpus="wikitext-2", documents="heading"))
    assert [len(tokens.documents) for tokens in corpus.splits.values()] == [600, 60, 60]
