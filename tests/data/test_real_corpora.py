from __future__ import annotations

import os

import pytest

from spanlm.data.config import DataConfig
from spanlm.data.corpora import load_corpus
from spanlm.data.registry import CORPORA

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


def test_wikitext_2_has_its_articles() -> None:
    corpus = load_corpus(DataConfig(corpus="wikitext-2", documents="heading"))
    articles = {split: len(tokens.documents) for split, tokens in corpus.splits.items()}
    assert articles == {"train": 600, "valid": 60, "test": 60}
    assert len(corpus.splits["train"]) == 2_088_628
