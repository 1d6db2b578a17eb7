"""The scales of tables that hold models of many papers."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass, replace
from itertools import accumulate
from typing import Any

import pytest

from spanlm.data.config import DataConfig
from spanlm.presets import find_preset
from spanlm.reproduction.proportional_scale import SCALES, SPENT, compressed, published_length
from spanlm.reproduction.salton2017 import SALTON
from spanlm.training.config import ScheduleConfig, TrainingConfig
from spanlm.training.optimizers import next_rate

PRESETS = sorted({row.preset for row in SALTON.rows.values()})
TEXT = DataConfig(corpus="ptb")

every_preset = pytest.mark.parametrize("name", PRESETS)


def rates(training: TrainingConfig, epochs: int) -> list[float]:
    """The rate of each epoch, as training has it."""
    return list(
        accumulate(range(1, epochs), lambda rate, done: next_rate(training.schedule, rate, done, True), initial=1.0)
    )


def step(factor: float, full_epochs: int, epochs: int, patience: int | None = None) -> TrainingConfig:
    schedule = ScheduleConfig(kind="step", factor=factor, full_epochs=full_epochs)
    return TrainingConfig(schedule=schedule, epochs=epochs, patience=patience)


PUBLISHED = {
    "zaremba2014/medium": step(1.2, 7, 39),
    "zaremba2014/large": step(1.15, 15, 55),
    "press2017/large-bd-wt": step(1.15, 11, 55),
    "one long plateau": step(2.0, 30, 39),
}


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("most", [2, 3, 8, 20])
def test_a_compressed_schedule_ends_with_the_published_rate(name: str, most: int) -> None:
    training = PUBLISHED[name]
    shorter = compressed(training, most)
    found, published = rates(shorter, shorter.epochs), rates(training, training.epochs)
    assert shorter.epochs == len(found) == most
    assert found[-1] == pytest.approx(published[-1], rel=1e-9)
    full, theirs = found.count(1.0) / len(found), published.count(1.0) / len(published)
    assert abs(full - theirs) <= 1 / most


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_schedule_that_has_its_time_stays(name: str) -> None:
    training = PUBLISHED[name]
    assert compressed(training, training.epochs) == training
    assert compressed(training, 100) == training


def test_one_epoch_has_the_full_rate() -> None:
    assert rates(compressed(PUBLISHED["zaremba2014/medium"], 1), 1) == [1.0]


@pytest.mark.parametrize("schedule", [ScheduleConfig(), ScheduleConfig(kind="plateau")])
def test_a_schedule_without_a_plan_is_only_cut(schedule: ScheduleConfig) -> None:
    training = TrainingConfig(schedule=schedule, epochs=64, patience=3)
    assert compressed(training, 8) == replace(training, epochs=8)


@pytest.mark.parametrize(("factor", "full", "length"), [(2.0, 13, 21), (1.15, 15, 55)])
def test_a_bound_that_patience_never_reaches_is_no_length(factor: float, full: int, length: int) -> None:
    training = step(factor, full, 100, patience=10)
    assert published_length(training) == length
    assert factor ** (length - full) >= SPENT > factor ** (length - full - 1)
    shorter = compressed(training, 8)
    assert rates(shorter, 8)[-1] == pytest.approx(factor ** (full - length), rel=1e-9)
    assert shorter.schedule.full_epochs == round(8 * full / length)
    assert compressed(training, length + 9) == replace(training, epochs=length + 9)


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("zaremba2014/medium", 130),
        ("zaremba2014/large", 300),
        ("salton2017/single-ptb", 130),
        ("salton2017/single-wt2", 200),
        ("grave2017/lstm-wt2", 205),
        ("merity2017/pointer-ptb", 130),
    ],
)
def test_small_is_a_fifth_of_every_width(name: str, units: int) -> None:
    model = SCALES["small"].configure(find_preset(name).config, TEXT, 10_000, 10**6).model
    assert (model.encoder.output_size, model.embedding_size) == (units, units)


def noise(config: Any, prefix: str = "") -> dict[str, float]:
    """Every rate of dropout or zoneout of a configuration, wherever it is."""
    found = {}
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            found |= noise(value, f"{prefix}{field.name}.")
        elif ("dropout" in field.name or "zoneout" in field.name) and not isinstance(value, bool):
            found[prefix + field.name] = value
    return found


@every_preset
@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_every_rate_of_noise_is_halved(name: str, scale: str) -> None:
    preset = find_preset(name).config.model
    model = SCALES[scale].configure(find_preset(name).config, TEXT, 10_000, 10**6).model
    assert noise(model) == {field: pytest.approx(rate / 2) for field, rate in noise(preset).items()}
    assert any(noise(model).values())


@every_preset
def test_a_sum_over_all_units_varies_as_at_full_size(name: str) -> None:
    preset = find_preset(name).config.model
    model = SCALES["small"].configure(find_preset(name).config, TEXT, 10_000, 10**6).model
    full = preset.init_range**2 * preset.encoder.output_size
    assert model.init_range**2 * model.encoder.output_size == pytest.approx(full, rel=0.002)
    assert (model.bias_range or 0) == pytest.approx((preset.bias_range or 0) * math.sqrt(5))


@every_preset
def test_nothing_else_is_changed(name: str) -> None:
    preset = find_preset(name).config
    config = SCALES["small"].configure(preset, TEXT, 10_000, 10**6)
    assert (config.model.memory, config.model.head) == (preset.model.memory, preset.model.head)
    kept = replace(config.training, precision="fp32", epochs=preset.training.epochs, schedule=preset.training.schedule)
    batching = preset.training.batching
    assert replace(kept, batching=replace(kept.batching, batch_size=batching.batch_size)) == preset.training
    if batching.kind == "sentences" or batching.batch_size * batching.length <= 800:
        assert kept == preset.training


def test_rows_of_long_segments_have_fewer_streams_that_all_rows_take_about_as_many_steps() -> None:
    config = find_preset("merity2017/pointer-ptb").config
    batching = config.training.batching
    assert (batching.batch_size, batching.length) == (32, 100)
    smaller = SCALES["small"].configure(config, TEXT, 10_000, 10**6).training.batching
    assert smaller == replace(batching, batch_size=8)
    assert "at most 800 words a step" in " ".join(SCALES["small"].describe([], 10_000))


@every_preset
def test_paper_is_the_published_recipe(name: str) -> None:
    preset = find_preset(name).config
    config = SCALES["paper"].configure(preset, TEXT, 33_278, 10**6)
    assert (config.model, config.training) == (preset.model, preset.training)


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
def test_a_page_says_what_was_changed(scale: str) -> None:
    chosen = SCALES[scale]
    said = " ".join(chosen.describe([], 10_000))
    assert ("as published" in said) and (f"{chosen.width:g} of every published width" in said) == (scale != "paper")
    assert (f"at most {chosen.max_epochs} epoch" in said) == (scale != "paper")
