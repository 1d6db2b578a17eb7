import os
import re
from pathlib import Path

import pytest

from spanlm.data.config import DataConfig
from spanlm.data.corpora import load_corpus
from tests.data.wikipedia.small import build, texts

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif("SPANLM_DATA" not in os.environ, reason="needs a folder with corpora: set SPANLM_DATA"),
]


@pytest.mark.slow
def test_some_real_articles(tmp_path: Path) -> None:
    source = Path(os.environ["SPANLM_DATA"]) / "wikipedia"
    told = build(source, tmp_path / "out", articles=150, jobs=2, vocabulary=12_000)
    assert sum(split["articles"] for split in told["splits"].values()) == 150
    # the paper's sentences have 25 tokens, and its articles 3,300
    assert 23 < told["words_per_sentence"] < 29
    assert 0.9 < told["vocabulary"]["coverage"] < 0.99
    text = "\n".join(texts(tmp_path / "out").values())
    assert not re.search(r"[\[{]{2}|\]\]|\}\}|<(?!unk> |unk>$| )\S|https?:|&[a-z]+;|\( \)", text, re.M)
    assert not re.search(r"(?<!\S)[\d.,]*\d[\d.,]*(?!\S)", text), "a number that is not N"
    assert all(line == line.strip() and "  " not in line for line in text.split("\n"))
    corpus = load_corpus(DataConfig(corpus=str(tmp_path / "out"), documents="blank-line"))
    assert len(corpus.vocabulary) == 12_000
    for split, tokens in corpus.splits.items():
        assert len(tokens) == told["splits"][split]["tokens"]
        assert len(tokens.documents) == told["splits"][split]["articles"]
