"""The Python API on a trained run: each thing is one call, and is what a loop over the weights says."""

import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import spanlm
from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.data.text import Text
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError
from spanlm.runs.ensemble import TrainedEnsemble
from spanlm.runs.model import TrainedModel


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> TrainedModel:
    return spanlm.load(tiny_run)


@pytest.fixture(scope="module")
def text(tiny_corpus: Path) -> str:
    return (tiny_corpus / "test.txt").read_text(encoding="utf-8").removesuffix("\n")


def test_documents_of_a_text_that_is_one_are_refused(tmp_path: Path, model: TrainedModel) -> None:
    path = tmp_path / "one.txt"
    path.write_text("the cat sat .\na dog ran .\n")
    with pytest.raises(InputError, match=r"^state=document: one\.txt text is one document.*carry.*\(blank-line\)"):
        model.evaluate(str(path), state="document")
    assert model.evaluate(str(path)).nll == model.evaluate(str(path), state="carry").nll
    path.write_text("the cat sat .\n\na dog ran .\n")
    assert "2 documents" in model.evaluate(str(path), state="document").protocol


def test_a_model_trained_on_documents_evaluates_a_text_that_is_one_as_a_stream(
    tmp_path: Path, model: TrainedModel
) -> None:
    batching = replace(model.config.training.batching, kind="documents")
    config = replace(model.config, training=replace(model.config.training, batching=batching))
    trained = TrainedModel(model.model, model.vocabulary, config, model.folder)
    (tmp_path / "one.txt").write_text("the cat sat .\n")
    one = trained.corpus(str(tmp_path / "one.txt"))
    assert trained.texts.protocol(one, "text").context == "carry"
    assert trained.texts.protocol(trained.corpus(), "test").context == "document"


def test_other_texts_of_a_model_of_books_are_read_as_books(tmp_path: Path, model: TrainedModel) -> None:
    """Also where the configuration does not say so, because the corpus is cbt."""
    config = replace(model.config, data=DataConfig(corpus="cbt"))
    path = tmp_path / "books.txt"
    path.write_text("_BOOK_TITLE_ : a\nthe cat .\n_BOOK_TITLE_ : b\na dog .\n")
    corpus = TrainedModel(model.model, model.vocabulary, config, model.folder).corpus(str(path))
    assert len(corpus.splits["text"]) == 8
    assert corpus.splits["text"].documents.tolist() == [0, 4]
    assert len(model.corpus(str(path)).splits["text"]) == 16


def test_score_takes_a_file_as_it_streams(model: TrainedModel, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"the cat sat .\n" * 200_000 + b"\xff\n")
    assert next(iter(model.score(Text(tmp_path / "bad.txt")))).word == "the", "what is far behind has not been read"


def test_attend_is_the_models_own_attention(model: TrainedModel) -> None:
    """Read in parts of 128 steps, and here at once."""
    record = model.attend("the zebra sat on\n\nthe mat .\n" * 15, expected=3, state="carry")
    assert record.targets[:5] == record.words[1:6] == ["the", "zebra", "sat", "on", "<eos>"]
    tokens = torch.tensor(model.vocabulary.encode(record.words)).unsqueeze(1)
    with torch.no_grad():
        readout, _ = model.model(tokens, model.model.init_state(1))
        best = model.model.head.log_probs(readout)[:, 0].exp().topk(3)
    np.testing.assert_allclose(record.weights, readout.attention.weights[:, 0], atol=1e-6)
    for ids, values, expected in zip(best.indices.tolist(), best.values.tolist(), record.expected, strict=True):
        assert [word for word, _ in expected] == [model.vocabulary.word(i) for i in ids]
        assert [p for _, p in expected] == pytest.approx(values, abs=1e-6)


def test_a_corpus_of_another_vocabulary_is_refused(model: TrainedModel, tmp_path: Path) -> None:
    path = tmp_path / "other.txt"
    path.write_text("zebra mat the\nlion the\nlion\n")
    with pytest.raises(InputError, match="vocabulary"):
        model.evaluate(spanlm.load_corpus(DataConfig(corpus=str(path))))


def test_a_folder_of_runs_says_what_it_holds(tiny_run: Path, tmp_path: Path) -> None:
    for seed in (1, 2):
        shutil.copytree(tiny_run, tmp_path / f"seed-{seed}")
    with pytest.raises(InputError, match=r"holds seed-1, seed-2, and is no run itself\. Name one of them"):
        spanlm.load(tmp_path)


def swapped(folder: Path, *, hashed: bool) -> None:
    """Same size, same words, another order: shapes fit, meanings do not."""
    path = folder / "vocabulary.json"
    words = Vocabulary.load(path).words
    if hashed:
        Vocabulary((*words[2:], *words[:2])).save(path)
    else:
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "words": [words[0], words[2], words[1], *words[3:]]}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder, _: (folder / "vocabulary.json").unlink(), "vocabulary.json"),
        (lambda folder, other: shutil.copy(other / "model.safetensors", folder), "belongs to another config.yaml"),
        (lambda folder, _: swapped(folder, hashed=True), "model.safetensors: was trained with another vocabulary"),
        (lambda folder, _: swapped(folder, hashed=False), "does not match its words"),
    ],
)
def test_a_damaged_run_is_refused(
    tiny_run: Path, lstm_run: Path, tmp_path: Path, damage: Callable[[Path, Path], object], message: str
) -> None:
    folder = shutil.copytree(tiny_run, tmp_path / "copy")
    damage(folder, lstm_run)
    with pytest.raises(InputError, match=re.escape(message)):
        spanlm.load(folder)


def test_what_scripts_and_notebooks_give_is_taken(model: TrainedModel, text: str, tmp_path: Path) -> None:
    """Paths, generators and the numbers of numpy, as what they stand for."""
    path = tmp_path / "own.txt"
    path.write_text(text)
    assert model.evaluate(path).nll == model.evaluate(str(path)).nll
    for same in (path, text.split("\n")):
        np.testing.assert_array_equal(model.attend(same).bits, model.attend(text).bits)
    assert model.generate("the", seed=np.int64(3)) == model.generate("the", seed=3)
    assert model.score_texts(line for line in ["the cat", "a dog"])[0] == model.score_texts(["the cat", "a dog"])[0]
    cache = spanlm.CacheConfig(window=np.int32(5), theta=np.float32(0.5), lambda_=0.25)
    assert cache.to_json() == {"window": 5, "theta": 0.5, "lambda": 0.25, "tuned_on": None}
    assert json.dumps(cache.to_json())
    assert spanlm.load(model.folder, torch.device("cpu")).evaluate().nll == model.evaluate().nll
    assert list(spanlm.load_corpus("demo", splits=(split for split in ("valid", "test"))).splits) == ["valid", "test"]


@pytest.mark.parametrize("name", ["tiny_run", "sentence_run", "unopened_run"])
def test_a_text_without_words_is_a_line_end_and_never_certain(name: str, request: pytest.FixtureRequest) -> None:
    model = spanlm.load(request.getfixturevalue(name))
    (empty, _), _ = model.score_texts(["", "the cat"])
    eos, state = model.vocabulary.eos_id, model.model.init_state(1)
    end = float(model.model.log_probs(torch.tensor([[eos]]), state)[0][0, 0, eos].detach())
    # a model that never predicts the first word of a line predicts nothing of this one
    assert empty.log_prob == pytest.approx(end if model.texts.predict_first else -math.inf)


def test_it_is_loaded_and_trained_whatever_torch_is_set_to(
    model: TrainedModel, tiny_config: RunConfig, tmp_path: Path
) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        again = spanlm.load(model.folder)
    finally:
        torch.set_default_dtype(before)
    assert again.evaluate().nll == model.evaluate().nll
    with torch.no_grad():
        spanlm.train(tiny_config, spanlm.load_corpus(tiny_config.data), tmp_path / "run")


def test_tuning_refuses_what_it_cannot_try_before_it_reads(model: TrainedModel) -> None:
    for wrong in ({"k": 0}, {"lambdas": []}, {"lambdas": [1.5]}, {"temperatures": [-1.0]}, {"temperatures": []}):
        with pytest.raises(InputError, match=next(iter(wrong)).removesuffix("s")):
            model.tune_neighbours(**{"k": 3, **wrong})


def test_words_stay_as_written_under_a_lesion_and_another_temperature(span_run: Path, tiny_run: Path) -> None:
    model = spanlm.load(span_run).with_attention("none").as_written()
    for changed in (model.with_attention("uniform"), model.at_gate_temperature(0.2)):
        assert changed.texts is model.texts
    members = [spanlm.load(run).as_written() for run in (span_run, tiny_run)]
    members[0].texts.data = replace(members[0].texts.data, corpus="ptb")  # which would be rewritten
    assert TrainedEnsemble(members).texts.convention is None
    both = spanlm.load_ensemble([span_run, tiny_run]).as_written()
    for several in (both.reweighted([1, 3]), both.with_attention("uniform")):
        assert several.texts is both.texts


def test_a_corpus_that_was_cut_otherwise_is_refused(model: TrainedModel, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("The cat.\nThe dog.\nThe cat, the dog.\n" * 9)
    corpus = spanlm.load_corpus(DataConfig(corpus=str(tmp_path / "own.txt"), tokenizer="words"), model.vocabulary)
    assert model.evaluate("demo", "valid").tokens == model.evaluate(model.corpus("demo"), "valid").tokens
    with pytest.raises(InputError, match=r"is cut with data\.tokenizer=words, .* with whitespace\. Load it with model"):
        model.evaluate(corpus)


def test_torchs_generator_is_left_as_it_was(model: TrainedModel) -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    spanlm.load(model.folder).with_attention("none").evaluate(split="valid")
    assert torch.rand(1) == expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda m: m.evaluate(state="carry", batch_size=10**6),
            r"batch_size=1000000: must be at most \d+, the tokens of tiny test",
        ),
        (lambda m: m.evaluate(cache=500), "cache=500: must be a CacheConfig"),
        (lambda m: m.tune_cache(np.int64(500)), "windows=500: must be a list of values"),
        (lambda m: m.generate(None), "prompt=null: must be a string"),
        (lambda m: m.compare("a", None), "text 2=null: must be a string"),
        (lambda m: m.generate("the", length=None), "length=null: must be a whole number"),
        (lambda m: m.generate("the", seed=True), "seed=true: must be a whole number"),
        (lambda m: m.score("the", base="e"), "base='e': must be a number"),
        (lambda m: m.score("the", base=0.5), "base=0.5: must be above 1"),
        (lambda m: list(m.score(["the", math.nan])), "text 2=nan: must be a string"),
        (lambda m: m.score_texts(["the", None]), "text 2=null: must be a string"),
        (lambda m: m.samples(2.0), "count=2.0: must be a whole number"),
        (lambda m: m.attend("the cat", expected=None), "expected=null: must be a whole number"),
        (lambda m: m.score({"sentence": ["the cat"]}), r"text: is a table \(dict\); give the column"),
        (lambda m: list(m.score_items({"sentence": ["the cat"]})), r"items: is a table \(dict\)"),
        (lambda m: list(m.score_items(None)), "items=null: must be a list of strings"),
        (lambda m: list(m.cloze([], contexts=[])), r"contexts=\(\): must be some of full, query"),
        (lambda m: spanlm.load_ensemble(Path("run")), "runs=run: must be a list"),
        (lambda m: spanlm.load_ensemble({"a": 0.3}), r"runs: is a table \(dict\)"),
        (lambda m: TrainedEnsemble([m, m], weights=["1", "2"]), "weights=.*: must be 2 numbers"),
        (lambda m: spanlm.load_corpus("demo", "valid"), "vocabulary=valid: must be a Vocabulary, or None"),
        (lambda m: spanlm.load_ensemble("run"), "runs='run': is one string; give a list of them"),
        (lambda m: spanlm.load_corpus("demo", splits=["dev"]), "splits=dev: must be some of train, valid, test"),
        (lambda m: spanlm.CacheConfig(window=2, theta="x", lambda_=0), "cache.theta='x': must be a number"),
    ],
)
def test_what_means_nothing_is_refused_by_name(
    model: TrainedModel, wrong: Callable[[TrainedModel], object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        wrong(model)
