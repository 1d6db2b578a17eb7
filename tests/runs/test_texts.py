"""Texts that a trained run is given: cut as the text of its training was, and told from it."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.config import RunConfig
from spanlm.data.cbt import Question
from spanlm.data.config import DataConfig
from spanlm.errors import InputError
from spanlm.runs.model import TrainedModel
from spanlm.scoring.cloze import RankedQuestion
from tests.conftest import tiny_lines

LOWERED = {"words": {"tokenizer": "words"}, "the demo": {"corpus": "demo"}}


@pytest.fixture(scope="module", params=LOWERED.values(), ids=LOWERED)
def lowered(request: pytest.FixtureRequest, tiny_run: Path) -> TrainedModel:
    """A run whose words are lower-cased; of the demo they are without its configuration saying so."""
    return _with_data(spanlm.load(tiny_run), **request.param)


def _with_data(model: TrainedModel, **data: Any) -> TrainedModel:
    config = replace(model.config, data=DataConfig(**{"corpus": model.config.data.corpus, **data}))
    return TrainedModel(model.model, model.vocabulary, config, model.folder)


def _trained_on(corpus: str, config: RunConfig, folder: Path) -> RunConfig:
    """Train for one epoch on a text of the name `corpus`, which is written."""
    Path(corpus).write_text("\n".join(tiny_lines(200, 1)) + "\n")
    config = replace(config, training=replace(config.training, epochs=1), data=DataConfig(corpus=corpus))
    spanlm.train(config, spanlm.load_corpus(config.data), folder)
    return config


@pytest.mark.parametrize(
    ("data", "starts"), [({"corpus": "demo"}, 3), ({"documents": "heading"}, 3), ({"documents": "none"}, 1)]
)
def test_a_corpus_that_knows_its_documents_is_cut_into_them(
    tiny_run: Path, tmp_path: Path, data: dict[str, str], starts: int
) -> None:
    """By a run that is reset at documents, whatever started those of its training."""
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("\nthe cat\n\na dog\nran\n\nthe mat\n")
    (tmp_path / "corpus.json").write_text("{}")  # as `spanlm data wikipedia` leaves it
    found = _with_data(spanlm.load(tiny_run), **data).corpus(tmp_path, "test")
    assert len(found.splits["test"].documents) == starts


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


def test_the_text_of_the_training_has_its_parts_however_and_wherever_it_is_named(
    tiny_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never taken whole, which would be a test on what was trained on. A relative path in a run's configuration is none
    of the folder that the model is used in.
    """
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    _trained_on("own.txt", tiny_config, tmp_path / "run")
    parts = spanlm.load("run").evaluate().tokens
    monkeypatch.chdir("elsewhere")
    model, text = spanlm.load(tmp_path / "run"), tmp_path / "own.txt"
    Path("link.txt").symlink_to(text)
    for name in (text, tmp_path / "." / "own.txt", Path("link.txt")):
        assert model.evaluate(str(name)).tokens == model.evaluate(str(name), "test").tokens == parts
    assert model.corpus(str(text), "test").splits.keys() == {"test"}
    Path("copy.txt").write_text(text.read_text())
    assert model.evaluate("copy.txt").tokens == parts
    Path("other.txt").write_text("\n".join(tiny_lines(200, 2)) + "\n")
    Path("line.txt").write_text("the cat\n")
    for name in ("other.txt", "line.txt"):
        assert model.corpus(name).splits.keys() == {"text"}


def test_a_text_that_was_changed_since_the_training_is_noted(tiny_config: RunConfig, tmp_path: Path) -> None:
    """Its parts may hold what was trained on."""
    text = tmp_path / "own.txt"
    config = _trained_on(str(text), tiny_config, tmp_path / "run")
    model = spanlm.load(tmp_path / "run")
    assert model.corpus().notes == spanlm.load_corpus(config.data, model.vocabulary).notes
    text.write_text("\n".join(tiny_lines(200, 1)[50:]) + "\n")
    for name in (None, str(text)):
        assert model.corpus(name, "test").notes[-1].startswith("own.txt test: not the text that it was when this model")
    assert model.evaluate().notes == tuple(model.corpus(None, "test").notes)
    (tmp_path / "copy.txt").write_text(text.read_text())
    assert not any("not the text" in note for note in model.corpus(str(tmp_path / "copy.txt")).notes)
    (tmp_path / "run" / "provenance.jsonl").unlink()
    assert not any("not the text" in note for note in model.corpus().notes)


def test_a_part_that_no_corpus_has_is_refused(lowered: TrainedModel) -> None:
    for ask in (lowered.evaluate, lowered.tune_dynamic):
        with pytest.raises(InputError, match=r"^split=dev: must be train, valid, test or text$"):
            ask(split="dev")  # type: ignore[arg-type]
