"""Runs with averages and stages that are stopped, extended or changed: the same bits, or refused by name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, RunError
from spanlm.store.checkpoints import Checkpoint, save_checkpoint
from spanlm.store.run_folder import save_model
from spanlm.training import trainer as trainer_module
from spanlm.training.config import FinetuneConfig
from spanlm.training.progress import Position
from spanlm.training.run import finished, refuse_changes, train
from spanlm.training.trainer import Trainer
from tests.cases import rest_slow
from tests.training.small import RUNS, STAGES, Heard, checkpoints, goes_on_exactly, make_corpus, with_training
from tests.training.test_stages import averaging


def with_finetune(config: Any, **fields: Any) -> Any:
    return with_training(config, finetune=replace(config.training.finetune, **fields))


class Died(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("saved", rest_slow([2, 3]))
def test_dead_between_a_better_model_and_its_checkpoint(
    room: Path, monkeypatch: pytest.MonkeyPatch, saved: int
) -> None:
    """The first epoch of a stage is done anew, from the model before, which the file no longer holds."""
    config, save, calls = with_training(RUNS[STAGES](), checkpoint_every=1000), trainer_module.save_model, []

    def dies(*arguments: Any) -> str:
        digest = save(*arguments)
        calls.append(1)
        if len(calls) == saved:
            raise Died
        return digest

    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(trainer_module, "save_model", dies)
        train(config, make_corpus(), room)
    goes_on_exactly(config, room)


@pytest.mark.slow
@pytest.mark.parametrize("more", ["stages", "epochs", "epochs of a stage"])
def test_more_is_as_if_wanted_from_the_start(room: Path, corpus: Corpus, more: str) -> None:
    staged = with_finetune(RUNS[STAGES](), last_latent_dropout=None)
    none, one = with_training(staged, finetune=FinetuneConfig()), with_finetune(staged, stages=1)
    config, longer = {
        "stages": (none, staged),
        "epochs": (none, with_training(none, epochs=3)),
        "epochs of a stage": (one, with_finetune(one, epochs=2)),
    }[more]
    train(config, corpus, room)
    assert finished(config, corpus, room) and not finished(longer, corpus, room)
    goes_on_exactly(longer, room)
    assert finished(longer, corpus, room)


def test_stages_with_other_settings_are_none_of_the_past_of_a_run_without(room: Path) -> None:
    """Settings of stages that were never begun can be set, changed and, with the stages, taken back."""
    config, corpus = RUNS[STAGES](), make_corpus()
    none = with_training(config, finetune=FinetuneConfig())
    other = with_finetune(config, stages=1, lr=0.25, nonmonotone=2, input_noise=0.3)
    train(with_training(none, epochs=3), corpus, room, resume=True)
    for wanted in (with_training(other, epochs=4), with_training(none, epochs=4)):
        refuse_changes(RunConfig.load(room / "config.yaml"), wanted, room)
        (room / "config.yaml").write_text(wanted.to_yaml())
    with pytest.raises(InputError, match=r"began with training\.optimizer\.lr=1\.0, not 0\.5"):
        changed = replace(other.training.optimizer, lr=0.5)
        refuse_changes(none, with_training(other, optimizer=changed), room)


MAIN = averaging(epochs=3, switch_after=None, finetune=FinetuneConfig(stages=1, epochs=3))
TWO = averaging(epochs=1, switch_after=None, finetune=FinetuneConfig(stages=2, epochs=2))
FIRST = {"epoch": 2, "segment": 3, "stale": 1, "averaging_since": 17}
"""In the third epoch."""
FINETUNING = {**FIRST, "epoch": 2, "stage": 1, "stage_began": 1}
"""In the second epoch of the first stage, which is the third in all."""
LAST: dict[str, Any] = {"epoch": 4, "stage": 2, "stage_began": 3, "averaging_since": 51}
"""Two epochs, then one of each stage: the end."""


@pytest.mark.parametrize(
    ("config", "position", "fields", "finetune", "said"),
    [
        (RUNS[STAGES](), LAST, {"epochs": 3}, {}, "training.epochs was 2, not 3, and the run is in finetune stage 2"),
        (RUNS[STAGES](), LAST, {}, {"epochs": 2}, "training.finetune.epochs was 1, not 2, and"),
        (RUNS[STAGES](), LAST, {}, {"stages": 3}, "finetune.stages was 2, not 3, and"),
        (RUNS[STAGES](), {**LAST, "stage": 1}, {}, {"stages": 1}, "was 2, not 1, and the run is in finetune stage 1"),
        (RUNS[STAGES](), LAST, {}, {"nonmonotone": 2}, "the run began with training.finetune.nonmonotone=5, not 2"),
        (RUNS[STAGES](), LAST, {"seed": 5}, {}, "the run began with training.seed=4, not 5; resuming would not be"),
        (MAIN, FIRST, {"epochs": 2}, {}, "is inside epoch 3, and with the training.epochs, training.patience or"),
        (MAIN, FIRST, {"patience": 1}, {}, "is inside epoch 3, and with the"),
        (TWO, FINETUNING, {}, {"epochs": 1}, "is inside epoch 3, and with the"),
        (MAIN, FIRST, {"epochs": 1}, {}, "training.epochs=1: FOLDER has had 2 already. Take that or more"),
        (
            TWO,
            {**FINETUNING, "epoch": 3, "segment": 0},
            {},
            {"epochs": 1},
            "finetune.epochs=1: FOLDER has had 2 already in",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_changed_past_is_refused(
    room: Path, config: RunConfig, position: dict[str, Any], fields: Any, finetune: dict[str, Any], said: str
) -> None:
    at = Position(rate=1.0, step=60, epoch_tokens=9, **position)
    save_checkpoint(room / "checkpoints", at.step, Checkpoint({}, {}, {}, at.to_json()))
    refuse_changes(config, with_training(config, device="auto"), room)
    with pytest.raises(InputError) as error:
        refuse_changes(config, with_training(with_finetune(config, **finetune), **fields), room)
    message = str(error.value)
    assert (
        said.replace("FOLDER", str(room)) in message
        and re.search("choose another (--out|folder)", message)
        and "\n" not in message
    )


def test_a_stage_does_not_begin_with_another_model(room: Path, corpus: Corpus) -> None:
    """As when a damaged checkpoint was passed over, and the file holds a later stage's."""
    config = averaging(epochs=1, switch_after=None)
    train(config, corpus, room)
    save_model(room, Trainer(config, corpus, room, Heard()).model, corpus.vocabulary.hash)
    with_stage = with_finetune(config, stages=1, epochs=1)
    with pytest.raises(RunError, match=r"model\.safetensors: is not the model of epoch 1, from which finetune stage 1"):
        train(with_stage, corpus, room, resume=True)
    assert len(checkpoints(room)) == 2
    (room / "model.safetensors").unlink()
    assert train(with_stage, corpus, room, resume=True).stage == 1, "the checkpoint has the weights"
