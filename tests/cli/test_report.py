"""What is said of averages, stages and span buffers while a run trains."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spanlm.cli.report import TrainingReport, describe
from spanlm.models.config import ModelConfig
from spanlm.models.encoders import LSTMConfig
from spanlm.models.heads import AnyHeadConfig, MixtureOfSoftmaxesConfig, SoftmaxConfig
from spanlm.models.memories import NoMemoryConfig
from spanlm.training.journal import EpochEvent, Phase, StepEvent
from spanlm.training.run import train
from tests.training.small import RUNS, make_config, make_corpus, with_batching, with_training
from tests.training.test_stages import STAGES

PARTS = {
    "steps": 90.0,
    "encoder_nll": math.log(60.0),
    "buffer_nll": math.log(400.0),
    "reward": -0.25,
    "gate": 0.4,
    "utilisation": 0.123,
    "oracle_utilisation": 0.07,
}


def said(capsys: pytest.CaptureFixture[str], event: EpochEvent) -> list[str]:
    with TrainingReport() as report:
        report.epoch(event)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("phase", "improved", "end"),
    [
        (Phase(), False, "s"),
        (Phase(), True, "s  best, saved"),
        (Phase(stages=3), True, "s  best, saved"),
        (Phase(averaged=True), False, "s  averaged"),
        (Phase(averaged=True), True, "s  averaged, best, saved"),
        (Phase(1, 3, True), True, "s  finetune 1/3, averaged, best, saved"),
    ],
)
def test_the_line_of_an_epoch_says_what_was_validated(
    capsys: pytest.CaptureFixture[str], phase: Phase, improved: bool, end: str
) -> None:
    (line,) = said(capsys, EpochEvent(7, 4.0, 4.1, improved, 1000.0, 65.0, phase))
    assert line.startswith("epoch   7  train ppl") and re.search(rf"\d {end}$", line), line


def test_what_of_the_text_is_never_predicted_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = make_corpus()
    tokens, eos = corpus.splits["train"].ids, corpus.vocabulary.eos_id
    ends = np.union1d(np.flatnonzero(tokens == eos) + 1, [len(tokens)])
    lengths = np.diff(ends, prepend=0)
    lost = int((lengths - 3).clip(0).sum())
    assert lost
    firsts, of_all = len(lengths), f"of {len(tokens)} training tokens"
    whole = make_config(kind="sentences", epochs=1)
    for changes, steps, left_out in (
        ({}, "3 sentences a step;", ""),
        (
            {"long_sentences": "cut", "length": 3, "bucket": True},
            "3 sentences a step, of similar length;",
            f"{lost} {of_all} ({lost / len(tokens):.1%}): what is beyond 3 words of a sentence",
        ),
        (
            {"predict_first": False},
            "3 sentences a step;",
            f"{firsts} {of_all} ({firsts / len(tokens):.1%}): the first word of each",
        ),
    ):
        with TrainingReport() as report:
            train(with_batching(whole, **changes), corpus, tmp_path / str(len(changes)), report)
        said = " ".join(capsys.readouterr().out.split())
        assert steps in said
        assert left_out in said and ("left out" in said) == bool(left_out)


def test_an_unk_that_is_never_trained_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = make_corpus()
    tokens, unk = corpus.splits["train"], corpus.vocabulary.unk_id
    known = np.where(tokens.ids == unk, unk + 1, tokens.ids)
    for name, ids in (("there", tokens.ids), ("not", known)):
        assert bool((ids == unk).any()) == (name == "there")
        splits = {**corpus.splits, "train": replace(tokens, ids=ids.astype(tokens.ids.dtype))}
        with TrainingReport() as report:
            train(make_config(epochs=1), replace(corpus, splits=splits), tmp_path / name, report)
        said = " ".join(capsys.readouterr().out.split())
        assert ("<unk> occurs nowhere in the training text" in said) == (name == "not")


def test_what_learns_is_said_where_that_is_not_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(make_config(epochs=1), make_corpus(), tmp_path / "first")
    for learns in ("all", "memory"):
        config = make_config(epochs=1, start_from=str(tmp_path / "first"), learns=learns)
        with TrainingReport() as report:
            train(config, make_corpus(), tmp_path / learns, report)
        said = " ".join(capsys.readouterr().out.split())
        assert ("learns the memory alone" in said) == (learns == "memory")
        assert f"begins with the weights of {tmp_path / 'first'}"[:40] in said


def test_a_span_buffer_has_a_line_for_each_split(capsys: pytest.CaptureFixture[str]) -> None:
    event = EpochEvent(7, 4.0, 4.1, True, 1000.0, 65.0, train_parts=PARTS, valid_parts={**PARTS, "gate": 0.6})
    _, *lines = said(capsys, event)
    alone = "encoder alone 60.00, buffer alone 400.00, PoU 12.3%, oracle PoU 7.0%, buffer's share"
    assert [line.strip() for line in lines] == [
        f"train {alone} 0.400, reward -0.250",
        f"valid {alone} 0.600, reward -0.250",
    ]


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (SoftmaxConfig(), "softmax"),
        (SoftmaxConfig(tied=True), "softmax, tied"),
        (MixtureOfSoftmaxesConfig(), "mixture of 15 softmaxes, tied"),
        (MixtureOfSoftmaxesConfig(tied=False, experts=1), "mixture of 1 softmax"),
    ],
)
def test_a_head_is_named_in_words(head: AnyHeadConfig, said: str) -> None:
    model = ModelConfig(embedding_size=6, encoder=LSTMConfig(hidden_size=6), memory=NoMemoryConfig(), head=head)
    assert describe(model) == f"{model.encoder.description}, {model.memory.description}, {said}"


def test_progress_names_the_stage_and_counts_its_epochs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanlm.cli.report.PLAIN_SECONDS", 0.0)
    with TrainingReport() as report:
        report.step(StepEvent(2, 1000, 3, 17, 4.0, 25.0, 20, 60, 100.0, Phase(1, 3, True)))
    assert capsys.readouterr().out.startswith("epoch 2/1000, finetune 1/3, averaged  3/17  loss 4.000")


def test_the_time_left_is_that_of_segments_as_they_were_on_the_mean(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter had 60 tokens; the other three have 180, at 2 a second; and so has another epoch, of 240."""
    monkeypatch.setattr("spanlm.cli.report.PLAIN_SECONDS", 0.0)
    with TrainingReport() as report:
        report.step(StepEvent(1, 2, 5, 20, 4.0, 25.0, 1, 60, 2.0))
    assert capsys.readouterr().out.rstrip().endswith("eta 0:01:30, all at most 0:03:30")


@pytest.mark.parametrize("stages", [1, 2])
def test_the_whole_story(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, stages: int
) -> None:
    # a slow machine would show progress between the lines
    monkeypatch.setattr("spanlm.cli.report.PLAIN_SECONDS", math.inf)
    config = RUNS[STAGES]()
    config = with_training(config, finetune=replace(config.training.finetune, stages=stages))
    with TrainingReport() as report:
        position = train(config, make_corpus(), tmp_path, report)
    report.ended(position, tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert f"; seed 4; then {stages} finetune stage{'s' * (stages > 1)}" in lines[3]
    found = [line for line in lines if not line.startswith(" ")][5:]
    assert re.fullmatch(r"epoch   1 .* s  best, saved", found[0])
    assert re.fullmatch(r"epoch   2 .* s  averaged(, best, saved)?", found[2])
    assert found[1] == "averages of the weights begin after epoch 1"
    assert re.fullmatch(rf"finetune stage 1 of {stages} begins with the weights of epoch [12]", found[3])
    assert re.fullmatch(rf"epoch   3 .* s  finetune 1/{stages}, averaged(, best, saved)?", found[4])
    assert found[-1].startswith(f"best epoch {position.best_epoch} of {2 + stages}: valid ppl")
