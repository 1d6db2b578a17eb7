"""Text that a trained run is given is cut into words and lines as the text of its training was."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.data.cbt import Question
from spanlm.data.config import DataConfig
from spanlm.evaluation.cloze import RankedQuestion
from spanlm.trained import TrainedModel

LOWERED = {"words": {"tokenizer": "words"}, "the demo": {"corpus": "demo"}}


@pytest.fixture(scope="module", params=LOWERED.values(), ids=LOWERED)
def lowered(request: pytest.FixtureRequest, tiny_run: Path) -> TrainedModel:
    """A run whose words are lower-cased; of the demo they are without its configuration saying so."""
    return _with_data(spanlm.load(tiny_run), **request.param)


def _with_data(model: TrainedModel, **data: Any) -> TrainedModel:
    config = replace(model.config, data=DataConfig(**{"corpus": model.config.data.corpus, **data}))
    return TrainedModel(model.model, model.vocabulary, config, model.folder)


def test_capitals_and_punctuation_are_scored_as_they_were_trained(lowered: TrainedModel) -> None:
    found = list(lowered.score("The Cat.\nA DOG", eos=True))
    assert [row.word for row in found] == ["the", "cat", ".", "<eos>", "a", "dog", "<eos>"]
    assert found == list(lowered.score("the cat .\na dog", eos=True))
    assert not any(row.oov for row in found)
    assert lowered.tokenize("The Cat.") == ["the", "cat", "."]


def test_another_file_is_cut_into_words_as_the_training_was(lowered: TrainedModel, tmp_path: Path) -> None:
    (tmp_path / "written.txt").write_text("The Cat sat.\nA ZEBRA ran on the mat.\n")
    (tmp_path / "cut.txt").write_text("the cat sat .\na zebra ran on the mat .\n")
    written, cut = (lowered.evaluate(str(tmp_path / name)) for name in ("written.txt", "cut.txt"))
    assert (written.tokens, written.oov_tokens) == (cut.tokens, cut.oov_tokens) == (13, 1)
    assert written.nll == cut.nll


def test_cloze_questions_are_cut_into_words_as_the_training_was(lowered: TrainedModel) -> None:
    question = Question("q", 1, ("The Cat sat.",), "The", "ran.", "DOG", ("DOG", "cat"))
    (ranked,) = lowered.cloze([question], contexts=["query"])
    assert isinstance(ranked, RankedQuestion)
    assert ranked.oov == (False, False)
    for candidate, log_p in zip(("dog", "cat"), ranked.sentence, strict=True):
        rows = list(lowered.score(f"the {candidate} ran .", base=math.e, eos=True))
        assert log_p == pytest.approx(-sum(row.surprisal for row in rows), rel=1e-5)


def test_another_file_is_cut_into_sentences_if_the_training_was(sentence_run: Path, tmp_path: Path) -> None:
    model = spanlm.load(sentence_run)
    (tmp_path / "paragraph.txt").write_text("The cat sat . A dog ran\n\nThe mat\n")
    (tmp_path / "sentences.txt").write_text("The cat sat .\nA dog ran\nThe mat\n")
    paragraph, sentences = (model.evaluate(str(tmp_path / f"{name}.txt")) for name in ("paragraph", "sentences"))
    assert paragraph.tokens == sentences.tokens == 9 + 3
    assert paragraph.nll == pytest.approx(sentences.nll, rel=1e-6)
    assert paragraph.protocol == sentences.protocol == model.evaluate().protocol
    assert "sentences" in paragraph.protocol
