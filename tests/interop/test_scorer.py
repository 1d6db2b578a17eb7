"""The verbs of minicons say what `score` says, and what minicons says of the exported model."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

import spanlm
from spanlm.errors import InputError
from tests.goldens.small import make_text, shrunk

TEXTS = ["The cat, sat on a mat.", "zebra He ran", "dog"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[spanlm.TrainedModel]:
    """A run of a few steps, with a tokenizer that cuts words."""
    folder = tmp_path_factory.mktemp("scorer")
    tree = shrunk("daniluk2017/kvp-w5", str(make_text(folder / "text")), epochs=1).to_tree()
    tree["data"]["tokenizer"] = "words"
    config = spanlm.RunConfig.from_tree(tree)
    spanlm.train(config, spanlm.load_corpus(config.data), folder / "run")
    yield spanlm.load(folder / "run", "cpu")


def test_scores_are_those_of_score(run: spanlm.TrainedModel) -> None:
    scorer = spanlm.Scorer(run)
    rows = [list(run.score(text)) for text in TEXTS]
    tokens = scorer.token_score(TEXTS, surprisal=True, base_two=True, rank=True)
    assert [[each[0] for each in own] for own in tokens] == [[row.word for row in own] for own in rows]
    for found, own in zip(tokens, rows, strict=True):
        assert [each[1] for each in found] == pytest.approx([row.surprisal for row in own], abs=1e-6)
    words = scorer.word_score(TEXTS[0])[0]
    assert [word for word, _ in words] == TEXTS[0].split()
    assert math.fsum(score for _, score in words) == pytest.approx(
        -sum(row.surprisal for row in rows[0]) * math.log(2), abs=1e-6
    )
    total = scorer.sequence_score(TEXTS[0], reduction=lambda scores: scores.sum().item(), base_two=True)
    assert total == pytest.approx([-sum(row.surprisal for row in rows[0])], abs=1e-6)


def test_a_prefix_is_read_and_not_counted(run: spanlm.TrainedModel) -> None:
    scorer = spanlm.Scorer(run)
    whole = [score for _, score in scorer.word_score("the cat sat on a mat .")[0]]
    found = scorer.conditional_score(["the cat"], ["sat on a mat ."], reduction=lambda scores: scores.sum().item())
    assert found == pytest.approx([math.fsum(whole[2:])], abs=1e-6)
    with pytest.raises(InputError, match="2 texts for 1"):
        scorer.conditional_score(["a", "b"], ["c"])


def test_a_word_that_reaches_from_the_prefix_on_is_refused(run: spanlm.TrainedModel) -> None:
    with pytest.raises(InputError, match="prefix='the do': goes on within a word in 'the dog sat'"):
        spanlm.Scorer(run).conditional_score(["the do"], ["g sat"], separator="")


def test_equal_texts_are_a_tie(run: spanlm.TrainedModel) -> None:
    scorer = spanlm.Scorer(run)
    assert scorer.compare(["the unicorn ran"], ["the giraffe ran"]) == [False]
    with pytest.raises(InputError, match="2 texts for 1"):
        scorer.compare(["the cat", "a dog"], ["cat the"])
    one, other = scorer.compare(["the cat", "cat the"], ["cat the", "the cat"])
    assert one != other
    assert scorer.compare(["the cat", "the cat"], ["the cat", "cat the"]) == [False, one]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the library's own warnings
def test_minicons_says_the_same_of_the_exported_model(run: spanlm.TrainedModel) -> None:
    minicons = pytest.importorskip("minicons.scorer", reason="pip install minicons")
    model, tokenizer = spanlm.to_hf(run)
    theirs = minicons.IncrementalLMScorer(model, "cpu", tokenizer=tokenizer)
    how = {"surprisal": True, "base_two": True}
    found = theirs.token_score(TEXTS, bos_token=True, **how)
    for one, other in zip(found, spanlm.Scorer(run).token_score(TEXTS, **how), strict=True):
        assert one[0] == ("<eos>", 0.0)
        assert [score for _, score in one[1:]] == pytest.approx([each[1] for each in other], abs=1e-6)
