"""What would not be the same run is refused, by the name of what differs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.data.token_files import TokenFile
from spanlm.errors import InputError, SpanlmError
from spanlm.models.memories import AttentiveConfig, KeyValueConfig, NGramConfig
from spanlm.training import trainer as trainer_module
from spanlm.training.config import OptimizerConfig
from spanlm.training.run import train
from tests.training.small import WORDS, make_config, make_corpus, with_batching, with_training

CPU = torch.device("cpu")
Changed = Callable[[RunConfig], RunConfig]


@pytest.fixture
def begun(room: Path, corpus: Corpus) -> Path:
    """A run of one epoch."""
    train(make_config(epochs=1), corpus, room / "run")
    return room / "run"


def model(**fields: Any) -> Changed:
    return lambda config: replace(config, model=replace(config.model, **fields))


def training(**fields: Any) -> Changed:
    return lambda config: with_training(config, **fields)


CHANGES: dict[str, Changed] = {
    "training.seed=1, not 2": training(seed=2),
    "training.precision=fp32, not bf16": training(precision="bf16"),
    "training.optimizer.clip=5.0, not null": training(optimizer=OptimizerConfig(lr=0.02, clip=None)),
    "training.batching.length=6, not 7": lambda config: with_batching(config, length=7),
    "model.memory.window=4, not 5": model(memory=KeyValueConfig(roles=3, window=5)),
    "model.memory.kind=key_value, not ngram": model(memory=NGramConfig(order=3)),
    "data.corpus=tiny, not other": lambda config: replace(config, data=replace(config.data, corpus="other")),
    "data.min_count=1, not 2": lambda config: replace(config, data=replace(config.data, min_count=2)),
}


@pytest.mark.parametrize("difference", CHANGES)
def test_another_configuration_is_refused_by_the_field(begun: Path, corpus: Corpus, difference: str) -> None:
    kept = (begun / "config.yaml").read_bytes()
    with pytest.raises(InputError, match="the run began with") as error:
        train(CHANGES[difference](make_config(epochs=1)), corpus, begun, resume=True)
    assert difference in str(error.value) and error.value.exit_status == 2
    assert (begun / "config.yaml").read_bytes() == kept


def test_random_numbers_go_on_only_where_they_were_drawn(
    room: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was begun on a GPU, on a machine without one; and the other way round."""
    own = trainer_module.generator_states
    with monkeypatch.context() as patch:
        patch.setattr(
            trainer_module, "generator_states", lambda device: own(device) | {"generator.cuda": torch.ones(1)}
        )
        train(make_config(epochs=1), corpus, room)
    with pytest.raises(InputError, match=r"training\.device=cpu: .* was trained on cuda.* Use training\.device=cuda"):
        train(make_config(epochs=2), corpus, room, resume=True)
    with pytest.raises(InputError, match=r"training\.device=cuda: .* was trained on cpu.* Use training\.device=cpu"):
        trainer_module.restore_generators(own(CPU), torch.device("cuda"))


def other_split(corpus: Corpus, split: str, change: Callable[[TokenFile], TokenFile]) -> Corpus:
    return replace(corpus, splits={**corpus.splits, split: change(corpus.splits[split])})


def one_word(tokens: TokenFile) -> TokenFile:
    ids = tokens.ids.copy()
    ids[len(ids) // 2] = 1 + ids[len(ids) // 2] % (len(WORDS) - 1)
    return TokenFile(ids, tokens.documents)


def one_document(tokens: TokenFile) -> TokenFile:
    return TokenFile(tokens.ids, np.delete(tokens.documents, 1))


@pytest.mark.parametrize("split", ["train", "valid"])
@pytest.mark.parametrize("change", [one_word, one_document])
def test_another_text_is_refused(
    begun: Path, corpus: Corpus, split: str, change: Callable[[TokenFile], TokenFile]
) -> None:
    with pytest.raises(InputError, match="was trained on another text than tiny now holds"):
        train(make_config(), other_split(corpus, split, change), begun, resume=True)
    # the test text is not trained on
    assert train(make_config(), other_split(corpus, "test", change), begun, resume=True).epoch == 2


def test_another_vocabulary_of_the_same_size_is_refused(begun: Path) -> None:
    words = (*WORDS[:-2], WORDS[-1], WORDS[-2])
    with pytest.raises(InputError, match=r"vocabulary\.json: is not the vocabulary of tiny"):
        train(make_config(), make_corpus(words=words), begun, resume=True)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_with_a_run_or_any_part_of_one_is_refused_without_resume(
    begun: Path, room: Path, corpus: Corpus
) -> None:
    kept = contents(begun)
    with pytest.raises(InputError, match=r"already holds a run \(config\.yaml.*--resume auto") as error:
        train(make_config(), corpus, begun)
    assert error.value.exit_status == 2
    assert contents(begun) == kept
    for name in ("config.yaml", "checkpoints", "model.safetensors", "metrics.jsonl"):
        (room / name).mkdir()
        (room / name / name).touch()
        with pytest.raises(InputError, match=name):
            train(make_config(), corpus, room / name)


@pytest.mark.parametrize("lost", [("checkpoints",), ("checkpoints", "metrics.jsonl")])
def test_a_model_without_checkpoints_is_not_trained_anew(begun: Path, corpus: Corpus, lost: tuple[str, ...]) -> None:
    train(make_config(), corpus, begun, resume=True)
    for name in lost:
        shutil.rmtree(begun / name) if (begun / name).is_dir() else (begun / name).unlink()
    kept = contents(begun)
    with pytest.raises(InputError, match=r"holds a trained model, but no checkpoints/ to go on from.*another --out"):
        train(make_config(), corpus, begun, resume=True)
    assert contents(begun) == kept


@pytest.mark.parametrize("fields", [{"kind": "streams", "shuffle": True}, {"device": "no-such-device"}])
def test_a_run_that_could_not_begin_leaves_no_run_behind(room: Path, corpus: Corpus, fields: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        train(make_config(**fields), corpus, room / "run")
    assert train(make_config(epochs=1), corpus, room / "run").epoch == 1


def test_a_folder_that_cannot_be_made_or_written_is_refused(room: Path, corpus: Corpus) -> None:
    (room / "file").touch()
    with pytest.raises(InputError, match=r"--out=.*/file/run: cannot be made") as error:
        train(make_config(), corpus, room / "file" / "run")
    assert error.value.exit_status == 2
    (room / ".lock").mkdir()  # root may write everywhere, so stand in for a missing right
    with pytest.raises(SpanlmError, match=str(room)):
        train(make_config(), corpus, room)


def test_what_needs_documents_is_refused_of_a_text_without_before_anything_is_written(room: Path) -> None:
    whole = make_corpus(documents=False)
    shuffled = r"kind=auto, which is streams for this text: training\.batching\.shuffle=true"
    with pytest.raises(InputError, match=shuffled):
        train(make_config(kind="auto"), whole, room / "run")
    with pytest.raises(InputError, match=r"kind=documents: .* one document.*data\.documents") as caught:
        train(make_config(kind="documents", shuffle=False, epochs=1), whole, room / "run")
    assert "\n" not in str(caught.value)
    assert not (room / "run").exists(), "made for this, and of no use"
    for kind in ("auto", "streams", "sentences"):
        train(make_config(kind=kind, shuffle=False, epochs=1), whole, room / kind)
    # of validation it is no error
    documents = make_corpus()
    corpus = replace(documents, splits={**documents.splits, "valid": whole.splits["valid"]})
    train(make_config(kind="documents", epochs=1), corpus, room / "run")


@pytest.mark.parametrize(
    ("kind", "documents", "said"),
    [("streams", True, r"kind=streams\."), ("auto", True, r"kind=auto \(here documents\)\.")],
)
def test_what_remembers_everything_needs_sentences(room: Path, kind: str, documents: bool, said: str) -> None:
    """Refused before anything is written; both ways out are ways out."""
    text = make_corpus(documents=documents)
    config = make_config(AttentiveConfig(score="single"), kind=kind, shuffle=False, epochs=1)
    with pytest.raises(InputError, match=rf"^model\.memory\.window=null: .*training\.batching\.{said}") as caught:
        train(config, text, room / "run")
    assert "Take training.batching.kind=sentences, or give model.memory.window a number." in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (room / "run" / "config.yaml").exists()
    with_a_window = make_config(AttentiveConfig(score="single", window=2), kind=kind, shuffle=False, epochs=1)
    assert train(with_a_window, text, room / "window").epoch == 1
    sentences = make_config(AttentiveConfig(score="single"), kind="sentences", epochs=1)
    assert train(sentences, text, room / "sentences").epoch == 1
    nothing = make_config(AttentiveConfig(score="none"), kind=kind, shuffle=False, epochs=1)
    assert train(nothing, text, room / "nothing").epoch == 1  # the merge alone remembers nothing


def test_sentences_longer_than_allowed_are_refused(room: Path, corpus: Corpus) -> None:
    config = with_batching(make_config(kind="sentences", epochs=1), long_sentences="refuse")
    with pytest.raises(InputError, match=r"^training\.batching\.length=6: .* sentences are longer"):
        train(config, corpus, room / "run")
    assert not (room / "run").exists()
    (room / "run").mkdir()  # one of the user's own stays
    with pytest.raises(InputError):
        train(config, corpus, room / "run")
    assert {path.name for path in (room / "run").iterdir()} == {".lock"}
    train(with_batching(config, length=9), corpus, room / "run")
    # validation sentences are never cut, so none is too long
    short = TokenFile(np.array([1, 2, 0] * 9), np.zeros(1, np.int64))
    longer = make_corpus(seed=5)
    train(config, replace(longer, splits={**longer.splits, "train": short}), room / "short")
