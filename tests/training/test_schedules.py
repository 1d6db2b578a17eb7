"""Learning rates, patience, and which model is kept."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from torch import Tensor

from spanlm.data.corpora import Corpus
from spanlm.training.config import OptimizerConfig, ScheduleConfig
from spanlm.training.optimizers import SGD
from spanlm.training.progress import training_seconds
from spanlm.training.run import train
from tests.cases import rest_slow
from tests.training.small import Follows, make_config, rows, same, script

LOSSES = [3.0, 2.5, 2.6, 2.5, 2.4, 2.41, 2.42]
"""Validation losses epoch by epoch; the fourth equals the best so far and is not better."""


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, LOSSES)


@pytest.mark.usefixtures("scripted")
def test_the_best_by_validation_is_what_the_model_file_holds(corpus: Corpus, room: Path) -> None:
    watcher = Follows()
    position = watcher.follow(make_config(epochs=len(LOSSES)), room, corpus).position
    assert (position.best_epoch, position.best_loss) == (5, 2.4)
    model = safetensors.torch.load((room / "model.safetensors").read_bytes())
    assert [same(model, then) for then in watcher.after_epochs] == [epoch == 5 for epoch in range(1, 8)]
    assert [event.improved for event in watcher.epochs] == [True, True, False, False, True, False, False]
    assert [event.valid_loss for event in watcher.epochs] == LOSSES


@pytest.mark.slow
@pytest.mark.usefixtures("scripted")
def test_patience_and_more_of_it(corpus: Corpus, room: Path) -> None:
    for patience, epochs in ((1, 3), (1, 3), (2, 4), (None, 7)):
        assert train(make_config(epochs=7, patience=patience), corpus, room, resume=True).epoch == epochs


@pytest.mark.parametrize(
    ("schedule", "expected"),
    rest_slow(
        [
            (ScheduleConfig(kind="step", full_epochs=2), [0.5, 0.5, 0.25, 0.125, 2**-4, 2**-5, 2**-6]),
            (ScheduleConfig(kind="milestones", milestones=(2, 4), factor=4.0), [0.5, 0.5, *[0.125] * 2, *[2**-5] * 3]),
            (ScheduleConfig(kind="plateau"), [0.5, 0.5, 0.5, 0.25, 0.125, 0.125, 2**-4]),
            (ScheduleConfig(), [0.5] * 7),
        ]
    ),
)
@pytest.mark.usefixtures("scripted")
def test_the_optimiser_steps_at_the_rate_of_the_schedule(
    corpus: Corpus, room: Path, used: list[float], schedule: ScheduleConfig, expected: list[float]
) -> None:
    optimizer = OptimizerConfig(kind="sgd", lr=0.5)
    config = make_config(epochs=7, schedule=schedule, optimizer=optimizer, kind="streams", shuffle=False, log_every=1)
    train(config, corpus, room)
    steps = len(used) // 7
    assert used == [rate for rate in expected for _ in range(steps)]
    logged = rows(room)
    assert [row["rate"] for row in logged if row["event"] == "valid"] == expected
    assert [row["rate"] for row in logged if row["event"] == "train"] == used


@pytest.mark.usefixtures("scripted")
def test_warm_up_rises_in_a_line_and_then_follows_the_schedule(corpus: Corpus, room: Path, used: list[float]) -> None:
    """Over an epoch and a half: across the end of the first."""
    plain = ScheduleConfig(kind="step", full_epochs=1)
    fields: dict[str, Any] = {"kind": "streams", "shuffle": False, "log_every": 1}
    fields["optimizer"] = OptimizerConfig(kind="sgd", lr=0.5)
    train(make_config(epochs=1, schedule=plain, **fields), corpus, room / "plain")
    steps = len(used)
    warmup = steps + steps // 2 + 1
    used.clear()
    config = make_config(epochs=3, schedule=replace(plain, warmup=warmup), **fields)
    train(config, corpus, room / "warm")
    rate = [0.5 if step < steps else 0.25 if step < 2 * steps else 0.125 for step in range(3 * steps)]
    expected = [rate[step] * min(1.0, (step + 1) / warmup) for step in range(3 * steps)]
    assert used == pytest.approx(expected)
    assert [row["rate"] for row in rows(room / "warm") if row["event"] == "train"] == used


@pytest.mark.usefixtures("scripted")
def test_a_cosine_falls_at_every_step_to_its_last_share(corpus: Corpus, room: Path, used: list[float]) -> None:
    schedule = ScheduleConfig(kind="cosine", final_share=0.2)
    fields: dict[str, Any] = {"kind": "streams", "shuffle": False, "log_every": 1, "schedule": schedule}
    train(make_config(epochs=3, optimizer=OptimizerConfig(kind="sgd", lr=0.5), **fields), corpus, room)
    steps = len(used)
    assert used == pytest.approx([0.5 * (0.6 + 0.4 * math.cos(math.pi * step / steps)) for step in range(steps)])
    assert [row["rate"] for row in rows(room) if row["event"] == "train"] == used


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The rate of every step that SGD does."""
    used: list[float] = []
    update = SGD.update

    def spied(self: SGD, lr: float, unless: Tensor | None = None) -> None:
        used.append(lr)
        update(self, lr, unless)

    monkeypatch.setattr(SGD, "update", spied)
    return used


def test_an_epoch_that_another_process_closed_took_as_long_a_target_as_the_others() -> None:
    rows = [{"tokens": 100, "tokens_per_second": 50.0}, {"tokens": 300, "tokens_per_second": 0.0}]
    assert training_seconds(rows, tokens=1) == 6.0
    assert training_seconds([{"tokens_per_second": 0.0}], tokens=10) == 0.0
