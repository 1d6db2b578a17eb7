"""The scales: what a small reproduction changes of the published models and recipes, and what it keeps."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass, replace
from itertools import accumulate
from typing import Any

import pytest
import torch

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.models.counting import count_configured, lstm_budget
from spanlm.models.encoders import AWDLSTMConfig
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import SpanBufferConfig
from spanlm.presets import find_preset
from spanlm.presets.daniluk2017 import VOCABULARY_SIZE
from spanlm.reproduction.plan import PAPERS
from spanlm.reproduction.scales import (
    LADDER,
    MATCHED,
    PROPORTIONAL,
    SPENT,
    Matched,
    Proportional,
    Scale,
    Shortened,
    compressed,
    published_length,
    scaled,
)
from spanlm.training.config import FinetuneConfig, ScheduleConfig, TrainingConfig
from spanlm.training.optimizers import next_rate

TEXT = DataConfig(corpus="ptb")
PRESETS = {name: sorted({row.preset for row in paper.rows.values()}) for name, paper in PAPERS.items()}
EQUAL = [name for name in PRESETS["daniluk2017"] if "/rm-" not in name]

every_rung = pytest.mark.parametrize("name", PRESETS["li2020"])
every_row = pytest.mark.parametrize("name", PRESETS["salton2017"])
every_short_scale = pytest.mark.parametrize("scale", ["smoke", "small"])


def at(scale: Scale, name: str, words: int = 10_000, tokens: int = 10**6) -> RunConfig:
    return scaled(scale, find_preset(name).config, TEXT, words, tokens)


def proportional(scale: Scale) -> Proportional:
    assert isinstance(scale.sizes, Proportional)
    return scale.sizes


def recipe_of(scale: str) -> Shortened:
    recipe = proportional(LADDER[scale]).recipe
    assert recipe is not None
    return recipe


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


@pytest.mark.parametrize("paper", PAPERS)
def test_every_paper_has_the_usual_scales(paper: str) -> None:
    assert list(PAPERS[paper].scales) == ["smoke", "small", "paper"]


@pytest.mark.parametrize(("scales", "paper"), [(PROPORTIONAL, "salton2017"), (LADDER, "li2020")])
def test_paper_is_the_published_recipe(scales: dict[str, Scale], paper: str) -> None:
    for name in PRESETS[paper]:
        preset, config = find_preset(name).config, at(scales["paper"], name, 33_278)
        assert (config.model, config.training) == (preset.model, preset.training), name
    assert "as published" in " ".join(scales["paper"].describe([], 10_000))


@pytest.mark.parametrize(("scales", "paper"), [(PROPORTIONAL, "salton2017"), (LADDER, "li2020")])
@every_short_scale
def test_every_rate_of_noise_is_halved(scales: dict[str, Scale], paper: str, scale: str) -> None:
    for name in PRESETS[paper]:
        published = noise(find_preset(name).config.model)
        found = noise(at(scales[scale], name).model)
        assert found == {field: pytest.approx(rate / 2) for field, rate in published.items()} and any(found.values())


def test_several_settings_of_dynamic_evaluation_read_all_of_valid() -> None:
    """Of a span buffer the pair that is best for the first words is not the best for the rest."""
    assert LADDER["small"].dynamic.finalists > 1 and LADDER["paper"].dynamic.finalists > 1


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


@every_rung
@every_short_scale
def test_the_short_recipe_keeps_what_it_does_not_name(scale: str, name: str) -> None:
    published, short = find_preset(name).config.training, at(LADDER[scale], name).training
    recipe = recipe_of(scale)
    assert (short.epochs, short.finetune.epochs) == (recipe.epochs, recipe.finetune_epochs)
    assert (short.optimizer.lr, short.optimizer.switch_after) == (recipe.lr, recipe.switch_after)
    assert (short.batching.batch_size, short.batching.length) == (recipe.batch_size, recipe.length)
    batching = replace(short.batching, batch_size=published.batching.batch_size, length=70, group_size=None)
    assert batching == replace(published.batching, group_size=None)
    optimizer = replace(short.optimizer, lr=published.optimizer.lr, switch_after=published.optimizer.switch_after)
    assert optimizer == published.optimizer
    main = replace(short, optimizer=optimizer, batching=published.batching, epochs=published.epochs)
    assert replace(main, finetune=published.finetune, precision="fp32") == published
    theirs = published.finetune
    assert short.finetune == FinetuneConfig(
        stages=1,
        epochs=recipe.finetune_epochs,
        adversarial=theirs.adversarial,
        input_noise=theirs.input_noise,
    )


@every_rung
def test_a_small_rung_has_a_fifth_of_every_width(name: str) -> None:
    published, small = find_preset(name).config.model, at(LADDER["small"], name).model
    assert isinstance(published.encoder, AWDLSTMConfig) and isinstance(small.encoder, AWDLSTMConfig)
    pairs = (
        (small.embedding_size, published.embedding_size),
        (small.encoder.hidden_size, published.encoder.hidden_size),
        (small.encoder.last_size, published.encoder.last_size),
    )
    assert all(ours == theirs / 5 for ours, theirs in pairs)
    assert small.init_range**2 * small.embedding_size == pytest.approx(
        published.init_range**2 * published.embedding_size
    )
    assert small.bias_range == 0


@every_rung
@every_short_scale
def test_head_and_memory_keep_all_but_their_sizes(scale: str, name: str) -> None:
    published, model = find_preset(name).config.model, at(LADDER[scale], name).model
    if isinstance(published.memory, SpanBufferConfig):
        assert isinstance(model.memory, SpanBufferConfig)
        kept = replace(model.memory, buffer_size=published.memory.buffer_size, dropout=published.memory.dropout)
        assert kept == published.memory
        assert model.memory.buffer_size == proportional(LADDER[scale]).buffer_size
    else:
        assert model.memory == published.memory
    if isinstance(published.head, MixtureOfSoftmaxesConfig):
        assert isinstance(model.head, MixtureOfSoftmaxesConfig)
        kept_head = replace(model.head, experts=15, latent_dropout=published.head.latent_dropout)
        assert kept_head == published.head
        assert model.head.experts == proportional(LADDER[scale]).experts
    else:
        assert model.head == published.head
    assert model.input_noise == published.input_noise


@every_rung
@every_short_scale
def test_it_builds(scale: str, name: str) -> None:
    with torch.device("meta"):
        LanguageModel(at(LADDER[scale], name).model, 100)


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
    model = at(PROPORTIONAL["small"], name).model
    assert (model.encoder.output_size, model.embedding_size) == (units, units)


@every_row
def test_a_sum_over_all_units_varies_as_at_full_size(name: str) -> None:
    preset = find_preset(name).config.model
    model = at(PROPORTIONAL["small"], name).model
    full = preset.init_range**2 * preset.encoder.output_size
    assert model.init_range**2 * model.encoder.output_size == pytest.approx(full, rel=0.002)
    assert (model.bias_range or 0) == pytest.approx((preset.bias_range or 0) * math.sqrt(5))


@every_row
def test_nothing_else_is_changed(name: str) -> None:
    preset = find_preset(name).config
    config = at(PROPORTIONAL["small"], name)
    assert (config.model.memory, config.model.head) == (preset.model.memory, preset.model.head)
    kept = replace(config.training, precision="fp32", epochs=preset.training.epochs, schedule=preset.training.schedule)
    batching = preset.training.batching
    assert replace(kept, batching=replace(kept.batching, batch_size=batching.batch_size)) == preset.training
    if batching.kind == "sentences" or batching.batch_size * batching.length <= 800:
        assert kept == preset.training


def test_rows_of_long_segments_have_fewer_streams_that_all_rows_take_about_as_many_steps() -> None:
    name = "merity2017/pointer-ptb"
    config = find_preset(name).config
    batching = config.training.batching
    assert (batching.batch_size, batching.length) == (32, 100)
    smaller = at(PROPORTIONAL["small"], name).training.batching
    assert smaller == replace(batching, batch_size=8)
    assert "at most 800 words a step" in " ".join(PROPORTIONAL["small"].describe([], 10_000))


@pytest.mark.parametrize(("scales", "scale"), [(PROPORTIONAL, "small"), (LADDER, "smoke"), (LADDER, "small")])
def test_a_page_says_what_was_changed(scales: dict[str, Scale], scale: str) -> None:
    chosen, sizes = scales[scale], proportional(scales[scale])
    said = " ".join(chosen.describe([], 10_000))
    parts = [f"{sizes.width:g} of every published width", f"products in {chosen.precision}", "as published"]
    if sizes.recipe is None:
        parts.append(f"at most {sizes.max_epochs} epoch")
    else:
        parts += [f"{sizes.experts} softmaxes of 15", f"a buffer of {sizes.buffer_size} words"]
        parts += [f"rate {sizes.recipe.lr:g}", f"{sizes.recipe.epochs} epochs, of SGD", chosen.dynamic.describe()]
    assert all(part in said for part in parts), said


def units(scale: str) -> int:
    sizes = MATCHED[scale].sizes
    assert isinstance(sizes, Matched)
    return sizes.units


@pytest.mark.parametrize("name", PRESETS["daniluk2017"])
def test_at_the_papers_vocabulary_the_sizes_are_the_papers(name: str) -> None:
    preset = find_preset(name).config
    config = at(MATCHED["paper"], name, VOCABULARY_SIZE, 22_500_000)
    assert (config.model, config.training) == (preset.model, preset.training)


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize(("scale", "size"), [("paper", 10_000), ("small", 16_000), ("smoke", 2_000)])
def test_elsewhere_no_size_is_nearer_to_the_lstms_parameters(name: str, scale: str, size: int) -> None:
    model = at(MATCHED[scale], name, size).model
    budget, parts = lstm_budget(units(scale), model, size), model.memory.parts

    def miss(hidden: int) -> int:
        return abs(count_configured(replace(model, encoder=model.encoder.resized(hidden)), size).model - budget)

    hidden = model.encoder.output_size
    assert miss(hidden) <= min(miss(other) for other in (hidden - parts, hidden + parts) if other > 0)


@pytest.mark.parametrize("name", sorted(set(PRESETS["daniluk2017"]) - set(EQUAL)))
def test_the_recurrent_memory_has_the_units_of_the_lstm_as_in_the_paper(name: str) -> None:
    assert at(MATCHED["small"], name, 16_000).model.encoder.output_size == units("small")


@pytest.mark.parametrize(
    ("row", "share"),
    [("attention-w10", 296 / 300), ("kv-w10", 280 / 300), ("kvp-w5", 262 / 300), ("4-gram", 242 / 300)],
)
def test_small_leaves_the_softmax_the_share_of_width_that_the_paper_leaves_it(row: str, share: float) -> None:
    """What a model's softmax reads, over what the LSTM's reads; KVP by its 786 units, which fit the paper's budget."""
    model = at(MATCHED["small"], f"daniluk2017/{row}", 16_000).model
    assert model.encoder.output_size / model.memory.parts / units("small") == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(("tokens", "epochs"), [(929_589, 8), (2_088_628, 6), (5_809_773, 2), (90_000_000, 1)])
def test_small_reads_about_the_same_number_of_tokens_of_every_corpus(tokens: int, epochs: int) -> None:
    assert at(MATCHED["small"], "daniluk2017/lstm", 16_000, tokens).training.epochs == epochs


@pytest.mark.parametrize(("scale", "asked", "most"), [("small", 500, 500), ("small", None, 16_000), ("paper", 9, 9)])
def test_a_vocabulary_that_is_asked_for_stays_if_it_is_smaller(scale: str, asked: int | None, most: int) -> None:
    assert MATCHED[scale].data(DataConfig(max_size=asked)).max_size == most
