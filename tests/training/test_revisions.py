"""Weights kept during training, after so many words: each a run that loads, to the bit, however the run came there."""

import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

import spanlm
from spanlm.cli.main import main
from spanlm.errors import InputError, RunError
from spanlm.options import short_count, whole_count
from spanlm.store.files import run_name
from spanlm.store.run_folder import model_digest
from spanlm.training.config import TrainingConfig
from spanlm.training.run import train
from tests.training.processes import Processes
from tests.training.small import RUNS, STAGES, Heard, make_config, make_corpus, with_training
from tests.training.test_signals import stopped_at

AT = (100, 300, 600)
"""Words: within the first epoch of 300, at its end, and at the end of the second and last."""


def kept(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in (folder / "revisions").glob("*/model.safetensors")}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", pytest.param(STAGES, marks=pytest.mark.slow)])
def test_a_resumed_run_keeps_the_same_weights(room: Path, name: str) -> None:
    config = with_training(make_config() if name == "adam" else RUNS[name](), keep_at=AT, checkpoint_every=1000)
    train(config, make_corpus(), room / "whole")
    expected = kept(room / "whole")
    assert set(expected) == {"100", "300", "600"} and len(set(expected.values())) == 3
    stopped_at(config, room / "run", 9)
    first = kept(room / "run")
    assert first.keys() == {"100"} and first["100"] == expected["100"]
    train(config, make_corpus(), room / "run", resume=True)
    assert kept(room / "run") == expected
    assert not list((room / "run/revisions").glob(".*")), "nothing unfinished"
    plain = with_training(config, keep_at=None)
    train(plain, make_corpus(), room / "plain")
    for weights in ("model.safetensors", "vocabulary.json"):
        assert (room / "plain" / weights).read_bytes() == (room / "whole" / weights).read_bytes(), "it changes nothing"


@pytest.mark.slow
def test_killed_while_it_keeps_weights(processes: Processes, room: Path) -> None:
    """At a moment of each kind between the first call of `save_revision` and its return."""
    fields = {"keep_at": [100, 300], "epochs": 1, "checkpoint_every": 4}
    arguments: dict[str, Any] = {"name": next(iter(RUNS)), "fields": fields}
    assert processes.run("train_run", folder=str(room / "whole"), survey=str(room / "moments"), **arguments) == 0
    moments = json.loads((room / "moments").read_text())
    first = next(number for number, label in enumerate(moments) if "save_revision call" in label)
    last = next(number for number, label in enumerate(moments) if "save_revision return" in label)
    kinds = {label: first + number for number, label in enumerate(moments[first : last + 1])}
    for number, moment in enumerate(random.Random(3).sample(sorted(kinds.values()), 12)):
        folder = room / f"killed-{number}"
        assert processes.run("train_run", folder=str(folder), kill_at=moment, **arguments) == -signal.SIGKILL
        assert processes.run("train_run", folder=str(folder), **arguments) == 0
        assert kept(folder) == kept(room / "whole"), moments[moment]
        assert sorted(path.name for path in (folder / "revisions").iterdir()) == ["100", "300"], moments[moment]


def test_a_step_that_is_done_again_keeps_its_weights_again(room: Path) -> None:
    """As after a process that was killed with the revision written, and no checkpoint after it."""
    config = with_training(make_config(epochs=1), keep_at=[100])
    train(config, make_corpus(), room / "whole")
    (room / "run/revisions/100").mkdir(parents=True)
    (room / "run/revisions/100/model.safetensors").write_text("of an attempt that was lost")
    (room / "run/revisions/.100.ab.unfinished").mkdir()
    train(config, make_corpus(), room / "run", resume=True)
    assert kept(room / "run") == kept(room / "whole")
    assert [path.name for path in (room / "run/revisions").iterdir()] == ["100"]


@pytest.mark.slow
def test_a_revision_is_the_model_that_validation_read(room: Path) -> None:
    """At an epoch's end: of the best epoch it is the run's own, also where validation reads averages of weights."""
    for name in ("key-value-predict, shuffled documents, adam", STAGES):
        folder = room / name.split(",")[0]
        whole = RUNS[name]()
        train(
            with_training(whole, epochs=2, keep_at=[300, 600], finetune=TrainingConfig().finetune),
            make_corpus(),
            folder,
        )
        best = spanlm.load(folder, "cpu")
        revisions = [spanlm.load(folder / "revisions" / words, "cpu") for words in ("300", "600")]
        assert isinstance(best, spanlm.TrainedModel)
        digests = [model_digest(model.model) for model in revisions]
        assert model_digest(best.model) in digests and digests[0] != digests[1]


def test_a_revision_is_a_run(room: Path, text_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begin = ["train", "demo", "--corpus", str(text_folder), "--epochs", "1"]
    assert main([*begin, "--training.keep_at", "[100, 0.2K, 2M]", "--out", str(room / "run")]) == 0
    assert "training.keep_at: 2M not kept: the run read" in capsys.readouterr().out
    tree = yaml.safe_load((room / "run/config.yaml").read_text())
    assert tree["training"]["keep_at"] == ["100", "200", "2M"]
    assert main(["evaluate", str(room / "run/revisions/100"), "--split", "valid"]) == 0
    assert run_name(room / "run/revisions/100") == "run/100"
    assert main(["train", "--out", str(room / "run/revisions/100"), "--resume", "auto"]) == 2
    assert "holds a trained model, but no checkpoints/" in capsys.readouterr().err


def test_counts_have_one_form() -> None:
    assert TrainingConfig(keep_at=[1500, "1_000K", "2.5M", 10**7]).keep_at == ("1500", "1M", "2500K", "10M")
    assert TrainingConfig(keep_at=["1M"]) == TrainingConfig(keep_at=[1000000])
    assert [whole_count(short_count(n)) for n in (1, 999, 1000, 1500, 10**6)] == [1, 999, 1000, 1500, 10**6]
    for wrong in ([], [0], ["2M", "1M"], [5, 5], ["many"], ["-3"], ["1G"]):
        with pytest.raises(InputError, match=r"^training\.keep_at=.*positive numbers that grow"):
            TrainingConfig(keep_at=wrong)


def test_a_run_may_keep_others_when_it_goes_on(room: Path) -> None:
    heard = Heard()
    train(with_training(make_config(epochs=1), keep_at=[100]), make_corpus(), room)
    more = with_training(make_config(epochs=2), keep_at=[100, 200, 400])
    train(more, make_corpus(), room, heard, resume=True)
    assert set(kept(room)) == {"100", "400"}
    assert any("200 not kept" in note for note in heard.notes)


def test_a_place_that_cannot_be_written_is_named(room: Path) -> None:
    train(make_config(epochs=1), make_corpus(), room)
    (room / "revisions").write_text("a file of its own")
    with pytest.raises(RunError, match=r"revisions/400: could not be written: .* go on with"):
        train(with_training(make_config(epochs=2), keep_at=[400]), make_corpus(), room, resume=True)
