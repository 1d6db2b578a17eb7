"""A run that begins with the weights of another."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError
from spanlm.models.encoders import ENCODERS
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.memories import KeyValueConfig, NoMemoryConfig, SpanBufferConfig
from spanlm.store.provenance import starts
from spanlm.store.run_folder import CONFIG, read_weights
from spanlm.training.config import OptimizerConfig
from spanlm.training.run import train
from spanlm.training.setup import build_model
from spanlm.training.trainer import Trainer
from tests.cases import rest_slow
from tests.training.small import (
    ADAGRAD,
    NT_ASGD,
    WORDS,
    Heard,
    differing,
    make_config,
    make_corpus,
    outcome,
    with_model,
    with_training,
)

BUFFER = SpanBufferConfig(buffer_size=12, span_length=3, dropout=0.0)


def plain(**training: object) -> RunConfig:
    return make_config(NoMemoryConfig(), dropout=0.0, kind="streams", shuffle=False, **training)


def with_buffer(**training: object) -> RunConfig:
    return with_model(plain(**training), memory=BUFFER)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return make_corpus(documents=False)


@pytest.fixture(scope="module")
def first(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first") / "run"
    train(plain(epochs=1), corpus, folder)
    return folder


def begun(config: RunConfig, corpus: Corpus, folder: Path) -> Trainer:
    return Trainer(config, corpus, folder, Heard())


def test_every_weight_is_that_of_the_other_run_and_new_ones_are_as_the_seed_draws_them(
    corpus: Corpus, first: Path, tmp_path: Path
) -> None:
    config = with_buffer(start_from=str(first))
    trainer = begun(config, corpus, tmp_path)
    read = read_weights(first, corpus.vocabulary.hash)
    theirs, digest = read.tensors, read.digest
    drawn = dict(build_model(config, len(WORDS)).named_parameters())
    for name, weight in trainer.model.named_parameters():
        expected = theirs.get(name, drawn[name])
        assert torch.equal(weight, expected), name
    assert trainer.started is not None
    assert trainer.started.weights == digest
    assert trainer.started.fresh == tuple(sorted(name for name in drawn if name.startswith("memory.")))
    assert trainer.started.fresh


@pytest.mark.parametrize("optimizer", rest_slow([None, ADAGRAD]), ids=["adam", "adagrad"])
def test_one_killed_at_its_first_step_goes_on_with_what_it_began_with(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: OptimizerConfig | None
) -> None:
    other = tmp_path / "other"
    train(plain(epochs=1), corpus, other)
    config = with_buffer(start_from=str(other), epochs=1, optimizer=optimizer)
    digest = read_weights(other, corpus.vocabulary.hash).digest
    train(config, corpus, tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
        patch.setattr(Trainer, "step", killed)
        train(config, corpus, tmp_path / "cut")
    shutil.rmtree(other)  # which is not needed any more
    train(config, corpus, tmp_path / "cut", resume=True)
    assert differing(outcome(tmp_path / "cut"), outcome(tmp_path / "whole")) == []
    assert [start.get("started_from_weights") for start in starts(tmp_path / "cut")] == [digest, None]


@pytest.mark.parametrize("optimizer", rest_slow([None, replace(NT_ASGD, switch_after=None)]), ids=["adam", "nt_asgd"])
def test_only_the_memory_learns_where_that_is_asked_for(
    corpus: Corpus, first: Path, tmp_path: Path, optimizer: OptimizerConfig | None
) -> None:
    """And does so whether the run was interrupted or not."""
    decay = None if optimizer is None else replace(optimizer, weight_decay=0.01)
    config = with_buffer(start_from=str(first), learns="memory", epochs=2, optimizer=decay)
    drawn = {name: p.detach().clone() for name, p in begun(config, corpus, tmp_path / "no").model.named_parameters()}
    train(config, corpus, tmp_path / "whole")
    theirs, mine = (read_weights(folder, corpus.vocabulary.hash).tensors for folder in (first, tmp_path / "whole"))
    assert all(torch.equal(mine[name], weight) for name, weight in theirs.items())
    assert not any(torch.equal(mine[name], drawn[name]) for name in mine.keys() - theirs.keys())
    train(with_training(config, epochs=1), corpus, tmp_path / "cut")
    train(config, corpus, tmp_path / "cut", resume=True)
    assert differing(outcome(tmp_path / "cut"), outcome(tmp_path / "whole")) == []


@pytest.mark.parametrize("kind", rest_slow(["awd_lstm", "variational_lstm", "hornn"]))
def test_every_encoder_can_be_held(corpus: Corpus, tmp_path: Path, kind: str) -> None:
    """Under weight drop, too, and with penalties on what does not learn."""
    encoder = ENCODERS[kind](hidden_size=6)
    fields = {"activation_penalty": 2.0, "temporal_penalty": 1.0, "encoder": encoder, "epochs": 1}
    train(plain(**fields), corpus, tmp_path / "base")
    train(with_buffer(**fields, start_from=str(tmp_path / "base"), learns="memory"), corpus, tmp_path / "run")
    theirs, mine = (read_weights(tmp_path / name, corpus.vocabulary.hash).tensors for name in ("base", "run"))
    assert all(torch.equal(mine[name], weight) for name, weight in theirs.items())


def test_what_cannot_be_held_is_refused(corpus: Corpus, first: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"training\.learns=memory: must be all unless training\.start_from names"):
        plain(learns="memory")
    with pytest.raises(InputError, match=r"training\.learns=buffer: must be all or memory"):
        plain(learns="buffer")
    with pytest.raises(InputError, match=r"training\.learns=memory: the model has no memory with weights"):
        begun(plain(start_from=str(first), learns="memory"), corpus, tmp_path)


def killed(*_: object) -> None:
    raise RuntimeError("killed")


def test_what_cannot_be_begun_with_is_refused_before_anything_is_written(
    corpus: Corpus, first: Path, tmp_path: Path
) -> None:
    train(with_buffer(epochs=1), corpus, tmp_path / "buffered")
    others = make_corpus(words=(*WORDS[:-1], "other"), documents=False)
    mine, wider = plain(start_from=str(first)), with_model(plain(start_from=str(first)), embedding_size=7)
    projected = with_model(mine, head=SoftmaxConfig(projection=True))
    parted = with_model(mine, memory=KeyValueConfig(roles=2, window=3))
    buffered, nowhere = (plain(start_from=str(tmp_path / name)) for name in ("buffered", "nowhere"))
    for config, text, said in (
        (nowhere, corpus, r"training\.start_from=.*nowhere: is not the folder of a run"),
        (wider, corpus, r"its weight embedding\.weight is \(24, 5\), and this model has \(24, 7\)"),
        (buffered, corpus, r"its weight memory\.\w+.* and this model lacks it"),
        (mine, others, "its vocabulary is not that of the training text"),
        (parted, corpus, r"its weight head\.weight .*key_value with roles 2 or 3"),
        (projected, corpus, r"it has no weight head\.projection\.\w+, which would begin at random"),
    ):
        with pytest.raises(InputError, match=said):
            train(config, text, tmp_path / "run")
        assert not (tmp_path / "run" / CONFIG).exists()
