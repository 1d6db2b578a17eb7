"""Averages and finetune stages: what is validated, saved and gone on from; stopped, extended or changed, too."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, RunError
from spanlm.models.memories import NoMemoryConfig
from spanlm.scoring.tally import Tally
from spanlm.store.checkpoints import Checkpoint, save_checkpoint
from spanlm.store.run_folder import save_model
from spanlm.training import trainer as trainer_module
from spanlm.training.config import FinetuneConfig, ScheduleConfig
from spanlm.training.position import Position
from spanlm.training.progress import StepEvent
from spanlm.training.run import ended, refuse_changes, train
from spanlm.training.setup import stage_config
from spanlm.training.trainer import Trainer
from tests.cases import rest_slow
from tests.training.small import (
    LAGGED,
    NT_ASGD,
    RUNS,
    STAGES,
    Follows,
    Heard,
    checkpoints,
    goes_on_exactly,
    make_config,
    make_corpus,
    rows,
    same,
    script,
    with_batching,
    with_model,
    with_training,
)

OF_OPTIMIZER = ("nonmonotone", "switch_after", "lagged_rates")


def averaging(*, finetune: FinetuneConfig | None = None, **fields: Any) -> RunConfig:
    """A plain run over streams that averages after its first epoch unless told otherwise."""
    of_optimizer = {name: fields.pop(name) for name in OF_OPTIMIZER if name in fields}
    training = {"optimizer": replace(NT_ASGD, **of_optimizer), "finetune": finetune or FinetuneConfig(), **fields}
    return make_config(NoMemoryConfig(), kind="streams", shuffle=False, **training)


def saved(folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load((folder / "model.safetensors").read_bytes())


def valid_rows(folder: Path, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows(folder) if row["event"] == "valid"]


@pytest.mark.parametrize("lagged", rest_slow([False, True]))
def test_averages_are_validated_and_saved_and_training_goes_on_from_its_own_weights(
    room: Path, monkeypatch: pytest.MonkeyPatch, lagged: bool
) -> None:
    watcher, seen, kept = Follows(), [], []

    def better_and_better(*arguments: Any, **named: Any) -> Tally:
        seen.append(watcher.weights())
        return Tally(tokens=10, nll=10.0 / len(seen))

    def keep(folder: Path, model: Any, *more: Any) -> str:
        kept.append(len(seen))
        assert same(watcher.weights(), seen[-1])
        return save(folder, model, *more)

    save = trainer_module.save_model
    monkeypatch.setattr(trainer_module, "tally", better_and_better)
    monkeypatch.setattr(trainer_module, "save_model", keep)
    finetune = FinetuneConfig(stages=1, epochs=2)
    watcher.follow(averaging(epochs=3, lagged_rates=lagged, finetune=finetune), room)
    per_epoch = len(watcher.iterates) // 5
    assert same(seen[0], watcher.iterates[per_epoch - 1])
    for epoch in (2, 3, 4, 5):  # a stage averages anew from its first step
        began = 3 * per_epoch if epoch > 3 else per_epoch
        since = watcher.iterates[began + lagged : epoch * per_epoch]
        for name, weight in seen[epoch - 1].items():
            mean = torch.stack([iterate[name].double() for iterate in since]).mean(0)
            torch.testing.assert_close(weight.double(), mean, rtol=1e-5, atol=1e-6)
        assert not same(seen[epoch - 1], watcher.iterates[epoch * per_epoch - 1])
        assert same(watcher.after_epochs[epoch - 1], watcher.iterates[epoch * per_epoch - 1])
    assert kept == [1, 2, 3, 4, 5] and same(saved(room), seen[4])
    assert valid_rows(room, "stage", "averaged") == [(0, False), (0, True), (0, True), (1, True), (1, True)]
    assert {rate for (rate,) in valid_rows(room, "rate")} == {8.0}, "without a rate of its own a stage has the run's"
    averaged_steps = [row["averaged"] for row in rows(room) if row["event"] == "train"]
    assert averaged_steps == sorted(averaged_steps) and set(averaged_steps) == {False, True}


@pytest.mark.parametrize(
    ("fields", "averaged"),
    rest_slow(
        [
            # the loss of epoch 5 is above that of epoch 2
            ({"nonmonotone": 2, "switch_after": None}, [False] * 5 + [True] * 2),
            ({"nonmonotone": 5, "switch_after": None}, [False] * 7),
            ({"switch_after": 3}, [False] * 3 + [True] * 4),
        ]
    ),
)
def test_when_averages_begin(
    room: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], averaged: list[bool]
) -> None:
    losses = [9.0, 5.0, 6.0, 5.5, 5.2, 5.1, 5.3]
    script(monkeypatch, losses)
    watcher = Follows()
    trainer = watcher.follow(averaging(epochs=7, **fields), room)
    assert [event.position.averaged for event in watcher.epochs] == averaged
    before = averaged.count(False)
    assert trainer.position.losses == losses[:before]
    begun = [note for note in watcher.notes if "averages" in note]
    said = (
        f"averages of the weights begin after epoch {before}"
        if before < 7
        else "would begin after epoch 7 at the earliest"
    )
    assert len(begun) == 1 and said in begun[0]
    assert {row["rate"] for row in rows(room)} == {NT_ASGD.lr}


@pytest.mark.parametrize(("patience", "epochs"), rest_slow([(1, 5), (2, 6), (None, 7)]))
def test_patience_counts_from_the_first_average_on(
    room: Path, monkeypatch: pytest.MonkeyPatch, patience: int | None, epochs: int
) -> None:
    script(monkeypatch, [5.0, 6.0, 7.0, 8.0, 9.0, 9.0, 9.0])  # the switch is after epoch 4
    config = averaging(epochs=7, patience=patience, nonmonotone=2, switch_after=None)
    assert Follows().follow(config, room).position.epoch == epochs


def test_the_schedule_goes_on_and_begins_anew_in_a_stage(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, [5.0] * 7)
    finetune = FinetuneConfig(stages=1, lr=4.0, epochs=3)
    schedule = ScheduleConfig(kind="step", factor=2.0, full_epochs=2)
    Follows().follow(averaging(epochs=4, schedule=schedule, finetune=finetune), room)
    assert [rate for (rate,) in valid_rows(room, "rate")] == [8.0, 8.0, 4.0, 2.0, 4.0, 4.0, 2.0]


LOSSES = [5.0, 6.0, 4.0, 4.5, 4.2, 4.6, 4.1, 3.9, 3.8]
"""Two epochs; a stage that the test with n = 1 ends after three; one that ends after the most, four, getting better."""


def test_stages_begin_with_the_best_weights_and_end_by_the_test_or_at_the_most(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, LOSSES)
    best: list[dict[str, Tensor]] = []
    save = trainer_module.save_model

    def keep(folder: Path, model: Any, *more: Any) -> str:
        best.append({name: parameter.detach().clone() for name, parameter in model.named_parameters()})
        return save(folder, model, *more)

    monkeypatch.setattr(trainer_module, "save_model", keep)
    watcher = Follows()
    finetune = FinetuneConfig(stages=2, lr=3.0, epochs=4, nonmonotone=1)
    position = watcher.follow(averaging(epochs=2, finetune=finetune), room).position
    stages = [event.position.stage for event in watcher.epochs]
    assert stages == [0] * 2 + [1] * 3 + [2] * 4
    assert [event.position.averaged for event in watcher.epochs] == [False] + [True] * 8
    assert [event.position.epoch for event in watcher.epochs] == list(range(1, 10))
    assert [event.improved for event in watcher.epochs] == [n in (1, 3, 8, 9) for n in range(1, 10)]
    # stage 1 begins with epoch 1's, stage 2 with epoch 3's: the averages then, not the weights of the last step
    assert len(best) == 4 and same(watcher.begun[0], best[0]) and same(watcher.begun[1], best[1])
    assert same(saved(room), best[3])
    assert (position.best_epoch, position.best_loss, position.stage, position.epoch) == (9, 3.8, 2, 9)
    assert valid_rows(room, "stage", "rate") == [(0, 8.0)] * 2 + [(1, 3.0)] * 3 + [(2, 3.0)] * 4
    assert [e.position.stage_epochs for e in watcher.steps if e.position.segment == 1] == [0, 1, 0, 1, 2, 0, 1, 2, 3]
    assert [note for note in watcher.notes if "finetune" in note] == [
        "finetune stage 1 of 2 begins with the weights of epoch 1",
        "finetune stage 2 of 2 begins with the weights of epoch 3",
    ]


def test_what_a_stage_changes(room: Path) -> None:
    watcher, seen, first_words = Follows(), {}, {}

    def look(event: StepEvent) -> None:
        model: Any = watcher.trainer.model
        head, stage = model.head, event.position.stage
        seen[stage] = (head.adversarial, model.config.input_noise, head.latent_dropout, event.rate)
        if event.position.segment == 1:
            segments = watcher.trainer.batcher.segments(watcher.trainer._order())
            first_words[stage] = next(segments).targets[:5].tolist()

    watcher.step = look  # type: ignore[method-assign]
    assert watcher.follow(RUNS[STAGES](), room).position.stage == 2
    assert seen == {0: (0.0, 0.0, 0.1, 1.0), 1: (0.001, 0.01, 0.1, 0.5), 2: (0.001, 0.01, 0.2, 0.5)}
    assert first_words[0] != first_words[1] != first_words[2]


def test_a_stage_switches_off_what_it_sets_to_nothing() -> None:
    """0 and false are not "as before": the published stages have no noise (Wang et al., 2019)."""
    config = RUNS[STAGES]()
    config = with_model(config, input_noise=0.05, head=replace(config.model.head, adversarial=0.003))
    config = with_batching(config, partial_shuffle=True)
    nothing = FinetuneConfig(stages=1, adversarial=0.0, input_noise=0.0, last_latent_dropout=0.0, partial_shuffle=False)
    stage = stage_config(with_training(config, finetune=nothing), 1)
    head: Any = stage.model.head
    assert (head.adversarial, stage.model.input_noise, head.latent_dropout) == (0.0, 0.0, 0.0)
    assert not stage.training.batching.partial_shuffle


def test_the_rate_of_a_step_is_the_segment_s_share_of_it(room: Path) -> None:
    """Drawn lengths; with lagged rates, once averages began, that of the step before, but for the first."""
    watcher = Follows()
    trainer = watcher.follow(RUNS[LAGGED](), room)
    order = 1_000_003
    shares = [[s.rate_share for s in trainer.batcher.segments(order + epoch)] for epoch in range(2)]
    assert len(set(shares[0])) > 2
    asked = [NT_ASGD.lr * share for share in shares[1]]
    expected = [NT_ASGD.lr * share for share in shares[0]] + [asked[0], *asked[:-1]]
    assert [event.rate for event in watcher.steps] == pytest.approx(expected, rel=1e-15)
    logged = [row["rate"] for row in rows(room) if row["event"] == "train"]
    assert logged == [event.rate for event in watcher.steps][2::3]
    # and it is what the weights were moved by
    for before, after, event in zip(watcher.iterates, watcher.iterates[1:], watcher.steps[1:], strict=False):
        moved = sum(float((after[name] - before[name]).double().pow(2).sum()) for name in after) ** 0.5
        decay = NT_ASGD.weight_decay * sum(float(x.double().pow(2).sum()) for x in before.values()) ** 0.5
        assert moved <= event.rate * (NT_ASGD.clip + decay) * (1 + 1e-4)  # type: ignore[operator]


def with_finetune(config: Any, **fields: Any) -> Any:
    return with_training(config, finetune=replace(config.training.finetune, **fields))


class Died(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("saved", rest_slow([3, 4]))
def test_dead_between_a_better_model_and_its_checkpoint(
    room: Path, monkeypatch: pytest.MonkeyPatch, saved: int
) -> None:
    """The first epoch of a stage is done anew, from the model before, which the file no longer holds."""
    config = with_training(RUNS[STAGES](), checkpoint_every=1000, seed=5)  # which gets better in every epoch
    save, calls = trainer_module.save_model, []

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
    assert ended(config, corpus, room) and not ended(longer, corpus, room)
    goes_on_exactly(longer, room)
    assert ended(longer, corpus, room)


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
