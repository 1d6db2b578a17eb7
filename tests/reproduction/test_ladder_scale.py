"""The scales of tables whose rows are rungs: one short recipe for all of them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.models.encoders import AWDLSTMConfig
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import SpanBufferConfig
from spanlm.presets import find_preset
from spanlm.reproduction.ladder_scale import SCALES
from spanlm.reproduction.li2020 import LI
from spanlm.training.optimizer_config import FinetuneConfig

PRESETS = sorted({row.preset for row in LI.rows.values()})
TEXT = DataConfig(corpus="ptb")
SHORT = [name for name, scale in SCALES.items() if scale.recipe is not None]

every_preset = pytest.mark.parametrize("name", PRESETS)
every_short_scale = pytest.mark.parametrize("scale", SHORT)


def at(scale: str, name: str) -> RunConfig:
    return SCALES[scale].configure(find_preset(name).config, TEXT, 10_000, 10**6)


def test_there_are_the_usual_scales_and_one_of_them_is_the_papers() -> None:
    assert (list(SCALES), SHORT) == (["smoke", "small", "paper"], ["smoke", "small"])


@pytest.mark.parametrize("name", ["small", "paper"])
def test_several_settings_of_dynamic_evaluation_read_all_of_valid(name: str) -> None:
    """Of a span buffer the pair that is best for the first words is not the best for the rest."""
    search = SCALES[name].dynamic
    assert search.finalists > 1
    assert (
        f"the best {search.finalists} of them by all of it, and more, one by one, until one helps" in search.describe()
    )


@every_preset
def test_paper_is_the_published_recipe(name: str) -> None:
    preset = find_preset(name).config
    config = at("paper", name)
    assert (config.model, config.training) == (preset.model, preset.training)


@every_short_scale
def test_all_rungs_have_one_recipe_but_for_what_makes_a_rung(scale: str) -> None:
    """Partial shuffle, and the ε and the noise of the adversarial rows, are what is compared."""
    found = set()
    for name in PRESETS:
        training = at(scale, name).training
        rung = replace(training.batching, partial_shuffle=False, longest_over=None)
        stages = replace(training.finetune, adversarial=None, input_noise=None)
        found.add(replace(training, batching=rung, finetune=stages))
    assert len(found) == 1


@every_preset
@every_short_scale
def test_the_short_recipe_keeps_what_it_does_not_name(scale: str, name: str) -> None:
    published, short = find_preset(name).config.training, at(scale, name).training
    recipe = SCALES[scale].recipe
    assert recipe is not None
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


@every_short_scale
def test_averages_begin_while_there_is_time(scale: str) -> None:
    recipe = SCALES[scale].recipe
    assert recipe is not None and 1 <= recipe.switch_after < recipe.epochs


@every_preset
def test_small_is_a_fifth_of_every_width(name: str) -> None:
    published, small = find_preset(name).config.model, at("small", name).model
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


def noise(config: Any, prefix: str = "") -> dict[str, float]:
    """Every rate of dropout of a configuration, wherever it is."""
    found = {}
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            found |= noise(value, f"{prefix}{field.name}.")
        elif ("dropout" in field.name or "drop" in field.name) and not isinstance(value, bool):
            found[prefix + field.name] = value
    return found


@every_preset
@every_short_scale
def test_every_rate_of_dropout_is_halved(scale: str, name: str) -> None:
    published = noise(find_preset(name).config.model)
    assert noise(at(scale, name).model) == {field: pytest.approx(rate / 2) for field, rate in published.items()}
    wanted = {"embedding_dropout", "input_dropout", "encoder.hidden_dropout", "encoder.weight_drop"}
    assert wanted <= {field for field, rate in published.items() if rate}
    assert published["output_dropout"] or published["memory.dropout"]


@every_preset
@every_short_scale
def test_head_and_memory_keep_all_but_their_sizes(scale: str, name: str) -> None:
    published, model = find_preset(name).config.model, at(scale, name).model
    if isinstance(published.memory, SpanBufferConfig):
        assert isinstance(model.memory, SpanBufferConfig)
        kept = replace(model.memory, buffer_size=published.memory.buffer_size, dropout=published.memory.dropout)
        assert kept == published.memory
        assert model.memory.buffer_size == SCALES[scale].buffer_size
    else:
        assert model.memory == published.memory
    if isinstance(published.head, MixtureOfSoftmaxesConfig):
        assert isinstance(model.head, MixtureOfSoftmaxesConfig)
        kept_head = replace(model.head, experts=15, latent_dropout=published.head.latent_dropout)
        assert kept_head == published.head
        assert model.head.experts == SCALES[scale].experts
    else:
        assert model.head == published.head
    assert model.input_noise == published.input_noise


@every_preset
@every_short_scale
def test_it_builds(scale: str, name: str) -> None:
    with torch.device("meta"):
        LanguageModel(at(scale, name).model, 100)


@every_short_scale
def test_a_page_says_what_was_changed(scale: str) -> None:
    chosen = SCALES[scale]
    recipe = chosen.recipe
    assert recipe is not None
    said = " ".join(chosen.describe([], 10_000))
    for part in (
        f"{chosen.width:g} of every published width",
        f"{chosen.experts} softmaxes of 15",
        f"a buffer of {chosen.buffer_size} words",
        f"{recipe.batch_size} streams × {recipe.length} steps",
        f"rate {recipe.lr:g}",
        f"{recipe.epochs} epochs, of SGD until averages begin after {recipe.switch_after}",
        f"finetuning of {recipe.finetune_epochs} epoch",
        f"products in {chosen.precision}",
        "the same for all rows, which it is not in the papers",
        f"by the first {chosen.dynamic.first_tokens:,} words of valid",
        f"MS of the gradients over {chosen.dynamic.statistics} segments of train",
    ):
        assert part in said, part


def test_the_papers_scale_says_that_all_is_as_published() -> None:
    assert "as published" in " ".join(SCALES["paper"].describe([], 10_000))
