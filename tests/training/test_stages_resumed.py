"""Runs with averages and stages that are stopped, extended or changed: the same bits, or refused by name."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, Interrupted, RunError, SpanlmError
from spanlm.store.checkpoints import Checkpoint, save_checkpoint
from spanlm.store.run_folder import save_model
from spanlm.training import trainer as trainer_module
from spanlm.training.config import FinetuneConfig
from spanlm.training.progress import Position
from spanlm.training.run import finished, refuse_changes, train
from spanlm.training.setup import refuse_unfit
from spanlm.training.trainer import Trainer
from tests.training.processes import Processes
from tests.training.small import (
    NT_ASGD,
    RUNS,
    Heard,
    checkpoints,
    differing,
    make_corpus,
    outcome,
    with_model,
    with_training,
)
from tests.training.test_kills import killed_and_resumed
from tests.training.test_signals import Signals
from tests.training.test_stages import STAGES, averaging

STEPS = 17
"""Of an epoch of `STAGES`: 300 words in 3 streams, 6 steps a segment."""


def with_finetune(config: Any, **fields: Any) -> Any:
    return with_training(config, finetune=replace(config.training.finetune, **fields))


def with_stages(config: Any, count: int) -> Any:
    """No stages: none of the settings either."""
    return with_finetune(config, stages=count) if count else with_training(config, finetune=FinetuneConfig())


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run whose two stages are over."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("done")
    train(RUNS[STAGES](), make_corpus(), folder)
    yield folder


@pytest.mark.slow
@pytest.mark.parametrize("step", [STEPS, STEPS + 1, 2 * STEPS, 2 * STEPS + 1])
def test_interrupted_about_the_ends_of_epochs_and_stages(done: Path, room: Path, step: int) -> None:
    """The first average, the last step before a stage, the first of it: no checkpoint is there but the signal's."""
    config, corpus = with_training(RUNS[STAGES](), checkpoint_every=1000), make_corpus()
    with pytest.raises(Interrupted, match=rf"after step {step}; everything is saved"):
        train(config, corpus, room, Signals(signal.SIGTERM, step))
    train(config, corpus, room, resume=True)
    assert not differing(outcome(room), outcome(done))


class Died(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("saved", [2, 3])
def test_dead_between_a_better_model_and_its_checkpoint(
    done: Path, room: Path, monkeypatch: pytest.MonkeyPatch, saved: int
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
    train(config, make_corpus(), room, resume=True)
    assert not differing(outcome(room), outcome(done))


@pytest.mark.slow
def test_kills_where_a_stage_begins(processes: Processes, room: Path) -> None:
    survey = room / "moments"
    assert processes.run("train_run", name=STAGES, folder=str(room / "whole"), survey=str(survey)) == 0
    expected, moments = outcome(room / "whole"), json.loads(survey.read_text())
    ends = [number for number, label in enumerate(moments) if "Trainer._next_stage " in label]
    within = [range(*ends[:2]), range(*ends[2:])]
    writing = [n for span in within for n in span if moments[n].startswith(("checkpoints.py", "shutil.py"))]
    draw = random.Random(6)
    for number, moment in enumerate([*draw.sample(writing, 4), draw.choice(within[0]), draw.choice(within[1])]):
        folder = room / f"killed-{number}"
        assert killed_and_resumed(processes, folder, STAGES, [moment]) == 1
        assert not differing(outcome(folder), expected), moments[moment]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fewer", "more", "fields"),
    [(0, 2, {}), (0, 0, {"epochs": 3}), (1, 1, {"finetune": 2})],
    ids=["stages", "epochs", "epochs of a stage"],
)
def test_more_is_as_if_wanted_from_the_start(room: Path, fewer: int, more: int, fields: dict[str, int]) -> None:
    config, corpus = with_finetune(RUNS[STAGES](), last_latent_dropout=None), make_corpus()
    config, longer = (with_stages(config, count) for count in (fewer, more))
    if "finetune" in fields:
        longer = with_finetune(longer, epochs=fields["finetune"])
    elif fields:
        longer = with_training(longer, **fields)
    train(longer, corpus, room / "whole")
    train(config, corpus, room / "run")
    assert finished(config, corpus, room / "run") and not finished(longer, corpus, room / "run")
    train(longer, corpus, room / "run", resume=True)
    assert finished(longer, corpus, room / "run")
    assert not differing(outcome(room / "run"), outcome(room / "whole"))


def test_stages_with_other_settings_are_none_of_the_past_of_a_run_without(room: Path) -> None:
    """Settings of stages that were never begun can be set, changed and, with the stages, taken back."""
    config, corpus = RUNS[STAGES](), make_corpus()
    none, other = with_stages(config, 0), with_finetune(config, stages=1, lr=0.25, nonmonotone=2, input_noise=0.3)
    train(with_training(none, epochs=3), corpus, room, resume=True)
    for wanted in (with_training(other, epochs=4), with_training(none, epochs=4)):
        refuse_changes(RunConfig.load(room / "config.yaml"), wanted, room)
        (room / "config.yaml").write_text(wanted.to_yaml())
    with pytest.raises(InputError, match=r"began with training\.optimizer\.lr=1\.0, not 0\.5"):
        changed = replace(other.training.optimizer, lr=0.5)
        refuse_changes(none, with_training(other, optimizer=changed), room)


MAIN = averaging(epochs=3, switch_after=None, finetune=FinetuneConfig(stages=1, epochs=3))
TWO = averaging(epochs=1, switch_after=None, finetune=FinetuneConfig(stages=2, epochs=2))
ALONE = averaging(epochs=3, switch_after=None)
FIRST = {"epoch": 2, "segment": 3, "stale": 1, "averaging_since": 17}
"""In the third epoch."""
FINETUNING = {**FIRST, "epoch": 2, "stage": 1, "stage_began": 1}
"""In the second epoch of the first stage, which is the third in all."""
LAST: dict[str, Any] = {"epoch": 4, "stage": 2, "stage_began": 3, "averaging_since": 51}
"""Two epochs, then one of each stage: the end."""
LAGGED_RATES = replace(NT_ASGD, lr=1.0, clip=1.0, lagged_rates=True)


@pytest.mark.parametrize(
    ("config", "position", "fields", "finetune", "said"),
    [
        (RUNS[STAGES](), LAST, {"epochs": 3}, {}, "training.epochs was 2, not 3, and the run is in finetune stage 2"),
        (RUNS[STAGES](), LAST, {"patience": 1}, {}, "training.patience was null, not 1, and"),
        (RUNS[STAGES](), LAST, {}, {"epochs": 2}, "training.finetune.epochs was 1, not 2, and"),
        *((RUNS[STAGES](), LAST, {}, {"stages": n}, f"finetune.stages was 2, not {n}, and") for n in (1, 3)),
        (
            RUNS[STAGES](),
            {**LAST, "stage": 1},
            {},
            {"stages": 1},
            "was 2, not 1, and the run is in finetune stage 1",
        ),
        (RUNS[STAGES](), LAST, {}, {"nonmonotone": 2}, "the run began with training.finetune.nonmonotone=5, not 2"),
        (RUNS[STAGES](), LAST, {"seed": 5}, {}, "the run began with training.seed=4, not 5; resuming would not be"),
        (RUNS[STAGES](), LAST, {"optimizer": LAGGED_RATES}, {}, "training.optimizer.lagged_rates"),
        (MAIN, FIRST, {"epochs": 2}, {}, "is inside epoch 3, and with the training.epochs, training.patience or"),
        (MAIN, FIRST, {"patience": 1}, {}, "is inside epoch 3, and with the"),
        (TWO, FINETUNING, {}, {"epochs": 1}, "is inside epoch 3, and with the"),
        (MAIN, FIRST, {"epochs": 1}, {}, "training.epochs=1: FOLDER has had 2 already. Take that or more"),
        (ALONE, FIRST, {"epochs": 1}, {}, "training.epochs=1: FOLDER has had 2 already. Take that or more"),
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
    at = Position(rate=1.0, **position)
    save_checkpoint(room / "checkpoints", at.step, Checkpoint({}, {}, {}, at.to_json()))
    refuse_changes(config, with_training(config, device="auto"), room)
    with pytest.raises(InputError) as error:
        refuse_changes(config, with_training(with_finetune(config, **finetune), **fields), room)
    message = str(error.value)
    assert said.replace("FOLDER", str(room)) in message and "choose another --out" in message and "\n" not in message


def test_a_stage_does_not_begin_with_another_model(room: Path, corpus: Corpus) -> None:
    """As when a damaged checkpoint was passed over, and the file holds a later stage's."""
    config = averaging(epochs=1, switch_after=None)
    train(config, corpus, room)
    good = (room / "model.safetensors").read_bytes()
    save_model(room, Trainer(config, corpus, room, Heard()).model, corpus.vocabulary.hash)
    with_stage = with_finetune(config, stages=1, epochs=1)
    with pytest.raises(RunError, match=r"model\.safetensors: is not the model of epoch 1, from which finetune stage 1"):
        train(with_stage, corpus, room, resume=True)
    assert len(checkpoints(room)) == 2
    (room / "model.safetensors").unlink()
    with pytest.raises(SpanlmError, match=r"model\.safetensors: no such file"):
        train(with_stage, corpus, room, resume=True)
    (room / "model.safetensors").write_bytes(good)
    assert train(with_stage, corpus, room, resume=True).stage == 1


@pytest.mark.parametrize(
    ("finetune", "said"),
    [
        (
            {"last_latent_dropout": 0.5},
            "training.finetune.last_latent_dropout=0.5: must be null with model.head.kind=softmax",
        ),
        ({"adversarial": -1.0}, "training.finetune: model.head.adversarial=-1.0"),
        ({"input_noise": -1.0}, "training.finetune: model.input_noise=-1.0"),
    ],
    ids=str,
)
def test_stages_that_do_not_fit_are_refused_before_anything_is_written(
    room: Path, corpus: Corpus, finetune: dict[str, float], said: str
) -> None:
    with pytest.raises(InputError) as error:
        train(averaging(finetune=FinetuneConfig(stages=1, **finetune)), corpus, room)  # type: ignore[arg-type]
    assert str(error.value).startswith(said)
    assert not (room / "config.yaml").exists()


@pytest.mark.parametrize(("name", "value", "kept"), [("direction", "shared", "own"), ("gate", "none", "cosine")])
def test_what_is_said_of_margins_needs_some_in_a_stage_or_another(name: str, value: str, kept: str) -> None:
    config = RUNS[STAGES]()
    head: Any = replace(config.model.head, **{f"adversarial_{name}": value})
    config = with_model(config, head=head)
    refuse_unfit(config)  # which has margins while finetuning
    refuse_unfit(with_model(with_stages(config, 0), head=replace(head, adversarial=0.1)))
    said = rf"^model\.head\.adversarial_{name}={value}: must be {kept} without an .*Use model\.head\.adversarial or"
    with pytest.raises(InputError, match=said):
        refuse_unfit(with_stages(config, 0))
