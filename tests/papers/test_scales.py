"""The scales: what a small reproduction changes of the published models and recipes, and what it keeps."""

import math
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from spanlm.config import RunConfig
from spanlm.models.counting import count_configured, lstm_budget
from spanlm.models.encoders import AWDLSTMConfig
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.models.memories import SpanBufferConfig
from spanlm.papers.published.daniluk2017 import TEXT
from spanlm.papers.registry import PAPERS, find_preset
from spanlm.papers.scales import SPENT, DynamicSearch, Matched, Proportional, Scale, compressed, scaled
from spanlm.training.config import FinetuneConfig, ScheduleConfig, TrainingConfig
from spanlm.training.optimizers import next_rate
from tests.cases import rest_slow

PRESETS = {
    name: sorted({row.preset.name for row in paper.rows.values() if isinstance(row.preset.config, RunConfig)})
    for name, paper in PAPERS.items()
}
MATCHED, PROPORTIONAL, LADDER = (
    {scale.name: scale for scale in PAPERS[name].scales} for name in ("daniluk2017", "salton2017", "li2020")
)
SHARES = [(PROPORTIONAL, "salton2017"), (LADDER, "li2020")]

every_share = pytest.mark.parametrize(("scales", "paper"), SHARES, ids=[paper for _, paper in SHARES])
every_short_scale = pytest.mark.parametrize("scale", ["smoke", "small"])


def at(scale: Scale, name: str, words: int = 10_000, tokens: int = 10**6) -> RunConfig:
    preset = find_preset(name)
    return scaled(scale, preset.config, words, tokens, own_size=preset.own_size)


def noise(config: Any, prefix: str = "") -> dict[str, float]:
    """Every rate of dropout or zoneout of a configuration, wherever it is."""
    found = {}
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            found |= noise(value, f"{prefix}{field.name}.")
        elif any(word in field.name for word in ("drop", "zoneout")) and not isinstance(value, bool):
            found[prefix + field.name] = value
    return found


@every_share
def test_paper_is_the_published_recipe(scales: dict[str, Scale], paper: str) -> None:
    for name in PRESETS[paper]:
        preset, config = find_preset(name).config, at(scales["paper"], name, 33_278)
        assert (config.model, config.training) == (preset.model, preset.training), name


@every_share
@every_short_scale
def test_every_rate_of_noise_is_halved(scales: dict[str, Scale], paper: str, scale: str) -> None:
    for name in PRESETS[paper]:
        published = noise(find_preset(name).config.model)
        found = noise(at(scales[scale], name).model)
        assert found == {field: pytest.approx(rate / 2) for field, rate in published.items()} and any(found.values())


@every_share
def test_small_has_a_fifth_of_every_width_and_a_sum_over_it_varies_as_at_full_size(
    scales: dict[str, Scale], paper: str
) -> None:
    for name in PRESETS[paper]:
        full, small = find_preset(name).config.model, at(scales["small"], name).model
        pairs = [(small.embedding_size, full.embedding_size), (small.encoder.output_size, full.encoder.output_size)]
        if isinstance(full.encoder, AWDLSTMConfig) and isinstance(small.encoder, AWDLSTMConfig):
            pairs.append((small.encoder.hidden_size, full.encoder.hidden_size))
        assert all(ours == pytest.approx(theirs / 5, abs=0.5) for ours, theirs in pairs), name
        variance = full.init_range**2 * full.encoder.output_size
        assert small.init_range**2 * small.encoder.output_size == pytest.approx(variance, rel=0.002)
        assert (small.bias_range or 0) == pytest.approx((full.bias_range or 0) * math.sqrt(5))


@pytest.mark.parametrize("name", PRESETS["li2020"])
@every_short_scale
def test_the_short_recipe_and_the_parts_keep_what_they_do_not_name(scale: str, name: str) -> None:
    published, config, sizes = find_preset(name).config, at(LADDER[scale], name), LADDER[scale].sizes
    assert isinstance(sizes, Proportional) and sizes.recipe is not None
    short, theirs, recipe = config.training, published.training, sizes.recipe
    kept = {name: getattr(theirs.finetune, name) for name in ("adversarial", "input_noise")}
    assert short.finetune == FinetuneConfig(stages=1, epochs=recipe["finetune.epochs"], **kept)
    settings = {"epochs": short.epochs, "optimizer.lr": short.optimizer.lr, "batching.length": short.batching.length}
    assert settings == {name: recipe[name] for name in settings}
    parts = {name: getattr(short, name) for name in ("optimizer", "batching", "epochs", "finetune", "precision")}
    assert short == replace(theirs, **parts)
    memory, head = published.model.memory, published.model.head
    if isinstance(memory, SpanBufferConfig):
        memory = replace(memory, buffer_size=sizes.buffer_size, dropout=memory.dropout / 2)
    if isinstance(head, MixtureOfSoftmaxesConfig):
        head = replace(head, experts=sizes.experts, latent_dropout=head.latent_dropout / 2)
    assert (config.model.memory, config.model.head) == (memory, head)
    assert config.model.input_noise == published.model.input_noise


@every_short_scale
def test_all_rungs_have_one_recipe_but_for_what_makes_a_rung(scale: str) -> None:
    """Partial shuffle, and the ε and the noise of the adversarial rows, are what is compared."""
    found = set()
    for name in PRESETS["li2020"]:
        training = at(LADDER[scale], name).training
        rung = replace(training.batching, partial_shuffle=False, longest_over=None)
        stages = replace(training.finetune, adversarial=None, input_noise=None)
        found.add(replace(training, batching=rung, finetune=stages))
    assert len(found) == 1


@pytest.mark.parametrize("name", PRESETS["salton2017"])
def test_own_recipes_keep_all_but_time_and_streams(name: str) -> None:
    preset, config = find_preset(name).config, at(PROPORTIONAL["small"], name)
    assert (config.model.memory, config.model.head) == (preset.model.memory, preset.model.head)
    kept = replace(config.training, precision="fp32", epochs=preset.training.epochs, schedule=preset.training.schedule)
    batching, found = preset.training.batching, config.training.batching
    assert replace(kept, batching=batching) == preset.training
    words = batching.batch_size * batching.length
    streams = batching.batch_size if batching.kind == "sentences" or words <= 800 else 800 // batching.length
    assert found == replace(batching, batch_size=streams)


def rates(training: TrainingConfig, epochs: int) -> list[float]:
    """The rate of each epoch, as training has it."""
    found = [1.0]
    for done in range(1, epochs):
        found.append(next_rate(training.schedule, found[-1], done, True))
    return found


def step(factor: float, full_epochs: int, epochs: int, patience: int | None = None) -> TrainingConfig:
    schedule = ScheduleConfig(kind="step", factor=factor, full_epochs=full_epochs)
    return TrainingConfig(schedule=schedule, epochs=epochs, patience=patience)


@pytest.mark.parametrize("training", [step(1.2, 7, 39), step(1.15, 15, 55), step(1.15, 11, 55), step(2.0, 30, 39)])
def test_a_compressed_schedule_ends_with_the_published_rate(training: TrainingConfig) -> None:
    for most in (2, 3, 8, 20):
        shorter = compressed(training, most)
        found, published = rates(shorter, shorter.epochs), rates(training, training.epochs)
        assert shorter.epochs == len(found) == most
        assert found[-1] == pytest.approx(published[-1], rel=1e-9)
        full, theirs = found.count(1.0) / len(found), published.count(1.0) / len(published)
        assert abs(full - theirs) <= 1 / most
    assert compressed(training, training.epochs) == compressed(training, 100) == training
    plateau = replace(training, schedule=ScheduleConfig(kind="plateau"))
    assert compressed(plateau, 8) == replace(plateau, epochs=8), "a schedule without a plan is only cut"


@pytest.mark.parametrize(("factor", "full", "length"), [(2.0, 13, 21), (1.15, 15, 55)])
def test_a_bound_that_patience_never_reaches_is_no_length(factor: float, full: int, length: int) -> None:
    training = step(factor, full, 100, patience=10)
    assert factor ** (length - full) >= SPENT > factor ** (length - full - 1)
    shorter = compressed(training, 8)
    assert rates(shorter, 8)[-1] == pytest.approx(factor ** (full - length), rel=1e-9)
    assert shorter.schedule.full_epochs == round(8 * full / length)
    assert compressed(training, length + 9) == replace(training, epochs=length + 9)


@pytest.mark.parametrize("name", rest_slow(PRESETS["daniluk2017"], always=8))
def test_models_are_the_papers_at_its_vocabulary_and_else_have_about_the_lstms_parameters(name: str) -> None:
    preset = find_preset(name).config
    config = at(MATCHED["paper"], name, TEXT.vocabulary_size, 22_500_000)
    assert (config.model, config.training) == (preset.model, preset.training)
    for scale, size in (("paper", 10_000), ("small", 16_000)):
        model, target = at(MATCHED[scale], name, size).model, MATCHED[scale].sizes
        assert isinstance(target, Matched)
        if "/rm-" in name:
            assert model.encoder.output_size == target.units, "as in the paper"
        else:
            budget = lstm_budget(target.units, model, size)
            assert count_configured(model, size).model == pytest.approx(budget, rel=0.02)


def test_the_published_grid_has_the_point_of_the_models_authors_too() -> None:
    published = find_preset("yang2018/mos-wt2").dynamic
    assert published is not None and DynamicSearch().own_point(published) == [published]
    assert not DynamicSearch().own_point(None)
    for own in (DynamicSearch(rates=(1e-4,)), DynamicSearch(decays=(0.002,))):
        assert not own.own_point(published)


def test_memories_on_texts_of_known_laws_have_as_many_parameters_as_their_lstm() -> None:
    (scale,) = PAPERS["yardstick"].scales
    counts = {name: count_configured(at(scale, name, 60, 200_000).model, 60).model for name in PRESETS["yardstick"]}
    assert all(abs(count / counts["yardstick/lstm"] - 1) < 0.05 for count in counts.values()), counts
